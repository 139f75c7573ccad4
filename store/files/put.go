package files

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/store"
)

// step is how much is copied between two looks at the context and at the disk's room.
const step = 256 << 10

var buffers = sync.Pool{New: func() any { return new([step]byte) }}

// Put implements blob.Store. A failure of the disk leaves nothing, except that after a failed sync of a folder the blob
// may be there; storing it again is the answer to every failure.
func (s *Store) Put(ctx context.Context, space blob.Space, r io.Reader, limit int64, want string) (blob.Ref, error) {
	ref, err := s.put(ctx, space, r, limit, want)
	if err != nil {
		if noRoom(err) {
			err = fmt.Errorf("%w: %w", blob.ErrFull, err)
		}
		return blob.Ref{}, fmt.Errorf("failed to store blob: %w", err)
	}
	return ref, nil
}

func (s *Store) put(ctx context.Context, space blob.Space, r io.Reader, limit int64, want string) (blob.Ref, error) {
	if s.closed.Load() {
		return blob.Ref{}, store.ErrClosed
	}
	p, err := s.place(space)
	if err != nil {
		return blob.Ref{}, err
	}
	if want != "" {
		if err := checkHash(want); err != nil {
			return blob.Ref{}, err
		}
	}
	if limit < 0 || limit == math.MaxInt64 {
		return blob.Ref{}, fmt.Errorf("%w: limit must not be negative or endless", store.ErrInvalid)
	}
	unfinished := filepath.Join(s.root, newName, rand.Text())
	ref, err := s.write(ctx, unfinished, r, limit)
	if err == nil && want != "" && ref.Hash != want {
		err = blob.ErrHash
	}
	if err == nil {
		err = s.settle(unfinished, p, ref.Hash)
	}
	if err != nil {
		if rest := os.Remove(unfinished); rest != nil && !missing(rest) { // the next opening removes it
			s.opts.Logger.Warn("unfinished blob is left", "err", rest)
		}
		return blob.Ref{}, err
	}
	return ref, nil
}

// write makes the content durable under a name that nobody looks for.
func (s *Store) write(ctx context.Context, path string, r io.Reader, limit int64) (blob.Ref, error) {
	if err := s.room(s.opts.MinFreeBytes); err != nil {
		return blob.Ref{}, err
	}
	f, err := s.system.create(path)
	if err != nil {
		return blob.Ref{}, fmt.Errorf("failed to make file: %w", err)
	}
	ref, err := s.copy(ctx, f, r, limit)
	if err == nil {
		if err = f.Sync(); err != nil {
			err = fmt.Errorf("failed to sync file: %w", err)
		}
	}
	if closing := f.Close(); err == nil && closing != nil {
		err = fmt.Errorf("failed to close file: %w", closing)
	}
	return ref, err
}

func (s *Store) copy(ctx context.Context, w io.Writer, r io.Reader, limit int64) (blob.Ref, error) {
	buf := buffers.Get().(*[step]byte)
	defer buffers.Put(buf)
	sum, size := sha256.New(), int64(0)
	for {
		if ctx.Err() != nil {
			return blob.Ref{}, context.Cause(ctx)
		}
		n, err := fill(r, buf[:min(step, limit-size+1)])
		if size += int64(n); size > limit {
			return blob.Ref{}, fmt.Errorf("%w: more than %d bytes", blob.ErrTooLarge, limit)
		}
		if n > 0 {
			if size > step { // the first step was judged before
				if err := s.room(s.opts.MinFreeBytes); err != nil {
					return blob.Ref{}, err
				}
			}
			sum.Write(buf[:n])
			if _, err := w.Write(buf[:n]); err != nil {
				return blob.Ref{}, fmt.Errorf("failed to write file: %w", err)
			}
		}
		if err == io.EOF { //nolint:errorlint // a wrapped one is a failure
			return blob.Ref{Hash: hex.EncodeToString(sum.Sum(nil)), Size: size}, nil
		}
		if err != nil {
			return blob.Ref{}, fmt.Errorf("failed to read content: %w", err)
		}
	}
}

// maxIdleReads bounds the reads in a row that give nothing and no error.
const maxIdleReads = 100

// fill reads until p is full or the reader has an error, which it gives as it is. io.ReadFull would give the same error
// for content that ends and for content that was cut off.
func fill(r io.Reader, p []byte) (n int, err error) {
	for idle := 0; n < len(p) && err == nil; idle++ {
		var m int
		m, err = r.Read(p[n:])
		if n += m; m > 0 {
			idle = 0
		}
		if idle >= maxIdleReads && err == nil {
			err = io.ErrNoProgress
		}
	}
	return n, err
}

// settle gives the written file its name and makes the name durable.
func (s *Store) settle(unfinished string, p place, hash string) error {
	s.places.RLock()
	defer s.places.RUnlock()
	leave, err := s.useFolders()
	if err != nil {
		return err
	}
	defer leave()
	target := p.folder(hash)
	if err := s.makeFolders(target); err != nil {
		return err
	}
	// Over a blob of that name too: it is the same, or it is damaged.
	if err := s.system.rename(unfinished, p.file(hash)); err != nil {
		return fmt.Errorf("failed to name file: %w", err)
	}
	return s.system.sync(target)
}

// maxKnown bounds the memory of what is durable already; beyond it all is forgotten, and synced once more.
const maxKnown = 1 << 16

// makeFolders makes the folder and those above it, up to the root, and makes their names durable. That a folder is there
// does not prove that its name is durable: a process may have died between the two.
func (s *Store) makeFolders(path string) error {
	if path == s.root || s.isKnown(path) {
		return nil
	}
	above := filepath.Dir(path)
	if err := s.makeFolders(above); err != nil {
		return err
	}
	if err := s.system.mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("failed to make folder: %w", err)
	}
	if err := s.system.sync(above); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[path] = true
	return nil
}

func (s *Store) isKnown(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[path]
}
