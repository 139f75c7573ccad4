package folder

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"
)

// Pack writes what is at the paths below dir, as CheckPaths wants them, to w. What does not exist is left out. It
// returns an error of this package for what it refuses; what was written to w is then of no use.
func Pack(ctx context.Context, w io.Writer, dir string, paths []string, l Limits) error {
	if err := CheckPaths(paths); err != nil {
		return fmt.Errorf("failed to pack folder: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("failed to pack folder: %w", err)
	}
	defer func() { _ = root.Close() }() // only a handle
	// No compression level but the fastest: the end of every turn waits for this.
	z, err := gzip.NewWriterLevel(&boundedWriter{w: w, left: l.Packed}, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("failed to pack folder: %w", err)
	}
	p := packer{ctx: ctx, root: root, tar: tar.NewWriter(z), limits: l}
	for _, path := range slices.Sorted(slices.Values(paths)) {
		if err := p.add(path); err != nil {
			return fmt.Errorf("failed to pack folder: %w", err)
		}
	}
	if err := errors.Join(p.tar.Close(), z.Close()); err != nil {
		return fmt.Errorf("failed to pack folder: %w", err)
	}
	return nil
}

type packer struct {
	ctx     context.Context
	root    *os.Root
	tar     *tar.Writer
	limits  Limits
	entries int
	content int64
}

// add packs a path. The folders above it are looked at too: a link there would lead to other content.
func (p *packer) add(name string) error {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		st, err := p.root.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !st.IsDir() {
			return fmt.Errorf("%q: %w", dir, ErrKind)
		}
	}
	st, err := p.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return p.entry(name, st)
}

func (p *packer) entry(name string, st fs.FileInfo) error {
	if err := p.ctx.Err(); err != nil {
		return context.Cause(p.ctx)
	}
	if p.entries++; p.entries > p.limits.Entries {
		return fmt.Errorf("%w: more than %d files and folders", ErrTooLarge, p.limits.Entries)
	}
	if !nameOK(name) {
		return fmt.Errorf("%w: a path is longer than %d bytes or not valid UTF-8", ErrKind, maxName)
	}
	switch {
	case st.IsDir():
		return p.dir(name)
	case st.Mode().IsRegular():
		return p.file(name, st)
	}
	return fmt.Errorf("%q: %w", name, ErrKind)
}

func (p *packer) dir(name string) error {
	if err := p.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o700, ModTime: epoch}); err != nil {
		return err
	}
	f, err := p.root.Open(name)
	if err != nil {
		return err
	}
	children, err := f.Readdirnames(p.limits.Entries + 1)
	if err = errors.Join(noEOF(err), f.Close()); err != nil {
		return err
	}
	slices.Sort(children)
	for _, c := range children {
		child := path.Join(name, c)
		st, err := p.root.Lstat(child)
		if err != nil {
			return errors.Join(ErrChanged, err)
		}
		if err := p.entry(child, st); err != nil {
			return err
		}
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (p *packer) file(name string, seen fs.FileInfo) (err error) {
	// Not blocking: what was a file a moment ago could be a pipe now.
	f, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || !os.SameFile(seen, st) {
		return fmt.Errorf("%q: %w", name, ErrChanged)
	}
	if p.content += st.Size(); p.content > p.limits.Content {
		return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, p.limits.Content)
	}
	mode := int64(0o600)
	if st.Mode()&0o100 != 0 {
		mode = 0o700
	}
	if err := p.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: st.Size(), ModTime: epoch}); err != nil {
		return err
	}
	if n, err := io.Copy(p.tar, &boundReader{ctx: p.ctx, r: io.LimitReader(f, st.Size())}); err != nil {
		return err
	} else if n < st.Size() {
		return fmt.Errorf("%q: %w", name, ErrChanged)
	}
	after, err := f.Stat()
	if err != nil {
		return err
	}
	if after.Size() != st.Size() || !after.ModTime().Equal(st.ModTime()) {
		return fmt.Errorf("%q: %w", name, ErrChanged)
	}
	return nil
}

// epoch is the time of every entry.
var epoch = time.Unix(0, 0)

// boundReader ends with its context.
type boundReader struct {
	ctx context.Context
	r   io.Reader
}

func (b *boundReader) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	return b.r.Read(p)
}

// boundedWriter refuses what is beyond its bound.
type boundedWriter struct {
	w    io.Writer
	left int64
}

func (b *boundedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, fmt.Errorf("%w: packed, it has more bytes than are allowed", ErrTooLarge)
	}
	n, err := b.w.Write(p)
	b.left -= int64(n)
	return n, err
}
