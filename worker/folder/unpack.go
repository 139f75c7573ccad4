package folder

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// maxPadding bounds what may follow the last entry in the tar stream: its end mark, and blocks of zeroes.
const maxPadding = 1 << 20

// Unpack restores what Pack wrote into an empty folder. When it fails, a part may be there.
func Unpack(ctx context.Context, r io.Reader, dir string, l Limits) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("failed to restore folder: %w", err)
	}
	defer func() { _ = root.Close() }() // only a handle
	packed := &countedReader{r: &boundReader{ctx: ctx, r: r}, left: l.Packed}
	in := bufio.NewReaderSize(packed, 64<<10)
	if err := unpack(in, root, l); err != nil {
		if packed.err != nil { // of the source, or the bound: more telling than what gzip and tar make of it
			err = packed.err
		}
		return fmt.Errorf("failed to restore folder: %w", err)
	}
	return nil
}

func unpack(in *bufio.Reader, root *os.Root, l Limits) error {
	z, err := gzip.NewReader(in)
	if err != nil {
		return damaged(err)
	}
	z.Multistream(false)
	t := tar.NewReader(z)
	entries, content := 0, int64(0)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return damaged(err)
		}
		if entries++; entries > l.Entries {
			return fmt.Errorf("%w: more than %d files and folders", ErrTooLarge, l.Entries)
		}
		if content += h.Size; h.Size < 0 || content > l.Content {
			return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, l.Content)
		}
		if err := restore(root, h, t); err != nil {
			return err
		}
	}
	if n, err := io.Copy(io.Discard, io.LimitReader(z, maxPadding+1)); err != nil || n > maxPadding {
		return damaged(err)
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return damaged(errors.New("something follows it"))
	}
	return nil
}

func damaged(err error) error { return fmt.Errorf("%w: %w", ErrDamaged, err) }

func restore(root *os.Root, h *tar.Header, content io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	if !nameOK(name) {
		return damaged(errors.New("an entry has a path that leaves the folder or is too long"))
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o700)
	case tar.TypeReg:
	default:
		return fmt.Errorf("%w: %w", ErrDamaged, ErrKind)
	}
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	mode := os.FileMode(0o600)
	if h.Mode&0o100 != 0 {
		mode = 0o700
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, os.ErrExist) {
		return damaged(errors.New("an entry is there twice"))
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err != nil {
		err = damaged(err)
	}
	return errors.Join(err, f.Close())
}

// countedReader refuses to read beyond its bound, and keeps the error of what it reads from.
type countedReader struct {
	r    io.Reader
	left int64
	err  error
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.left -= int64(n); c.left < 0 {
		err = fmt.Errorf("%w: packed, it has more bytes than are allowed", ErrTooLarge)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}
