package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/store"
)

// Open implements blob.Store. The last bytes are given only when the hash is right, so that whoever reads exactly the
// size is told too.
func (s *Store) Open(_ context.Context, space blob.Space, hash string) (io.ReadCloser, int64, error) {
	path, err := s.path(space, hash)
	if err != nil {
		return nil, 0, fmt.Errorf("failed to open blob: %w", err)
	}
	f, err := os.Open(path)
	if missing(err) {
		return nil, 0, fmt.Errorf("blob %s: %w", hash, blob.ErrNotFound)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("failed to open blob %s: %w", hash, err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("failed to open blob %s: %w", hash, err), f.Close())
	}
	return &reader{f: f, want: hash, left: st.Size(), sum: sha256.New()}, st.Size(), nil
}

// path is the file of a blob.
func (s *Store) path(space blob.Space, hash string) (string, error) {
	if s.closed.Load() {
		return "", store.ErrClosed
	}
	p, err := s.place(space)
	if err != nil {
		return "", err
	}
	if err := checkHash(hash); err != nil {
		return "", err
	}
	return p.file(hash), nil
}

// reader verifies what it gives.
type reader struct {
	f    *os.File
	want string
	left int64 // bytes that the file still had when it was opened
	sum  hash.Hash
	err  error // final
}

func (r *reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if len(p) == 0 && r.left > 0 {
		return 0, nil
	}
	n, err := r.f.Read(p[:min(int64(len(p)), r.left)])
	r.sum.Write(p[:n])
	r.left -= int64(n)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		r.err = fmt.Errorf("failed to read blob %s: %w", r.want, err)
	case r.left == 0 && hex.EncodeToString(r.sum.Sum(nil)) == r.want:
		if r.err = io.EOF; n == 0 {
			return 0, io.EOF
		}
		return n, nil
	case r.left == 0, err != nil: // it is shorter than it was
		r.err = fmt.Errorf("blob %s: %w", r.want, blob.ErrHash)
		clear(p[:n])
		return 0, r.err
	}
	return n, r.err
}

func (r *reader) Close() error { return r.f.Close() }

// Delete implements blob.Store. It is not synced: a blob that a power loss brings back is one that nobody refers to. While
// blobs are held it removes nothing, see Hold.
func (s *Store) Delete(_ context.Context, space blob.Space, hash string) error {
	path, err := s.path(space, hash)
	if err != nil {
		return fmt.Errorf("failed to delete blob: %w", err)
	}
	leave, ok, err := s.removing()
	if err != nil {
		return fmt.Errorf("failed to delete blob %s: %w", hash, err)
	}
	if !ok {
		return nil
	}
	defer leave()
	if err := os.Remove(path); err != nil && !missing(err) {
		return fmt.Errorf("failed to delete blob %s: %w", hash, err)
	}
	if p, _ := s.place(space); p.flat {
		s.removeEmpty(p.base)
	}
	return nil
}

// removeEmpty removes the folder of a space that has no blob any more. Others only lose a moment when it fails.
func (s *Store) removeEmpty(path string) {
	d, err := os.Open(path)
	if err != nil {
		return
	}
	names, _ := d.Readdirnames(1)
	_ = d.Close()
	if len(names) > 0 {
		return
	}
	s.places.Lock()
	defer s.places.Unlock()
	leave, err := s.removeFolders()
	if err != nil {
		return
	}
	defer leave()
	if os.Remove(path) == nil { // it is refused when something is in it again
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.known, path)
	}
}

// List implements blob.Store.
func (s *Store) List(ctx context.Context, space blob.Space, after string, limit int) ([]string, error) {
	out, err := s.list(ctx, space, after, limit)
	if err != nil {
		return nil, fmt.Errorf("failed to list blobs: %w", err)
	}
	return out, nil
}

func (s *Store) list(ctx context.Context, space blob.Space, after string, limit int) ([]string, error) {
	if s.closed.Load() {
		return nil, store.ErrClosed
	}
	p, err := s.place(space)
	if err != nil {
		return nil, err
	}
	if after != "" {
		if err := checkHash(after); err != nil {
			return nil, err
		}
	}
	if err := store.CheckPage(limit); err != nil {
		return nil, err
	}
	levels := 2
	if p.flat {
		levels = 0
	}
	return walk(ctx, p.base, "", after, levels, limit)
}

// walk lists the hashes below a folder, in order. prefix is what the folders above say of their hashes.
func walk(ctx context.Context, path, prefix, after string, levels, limit int) (out []string, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	entries, err := os.ReadDir(path) // sorted
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		if levels == 0 {
			if isHash(name) && name > after {
				out = append(out, name)
			}
		} else if begin := prefix + name; e.IsDir() && len(name) == 2 && begin >= after[:min(len(begin), len(after))] {
			more, err := walk(ctx, filepath.Join(path, name), begin, after, levels-1, limit-len(out))
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
		if len(out) >= limit {
			return out, nil
		}
	}
	return out, nil
}
