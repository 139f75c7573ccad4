package files

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/store"
)

// Reader reads the blobs of a folder that engines may have open. It takes no lock and changes nothing.
type Reader struct{ s *Store }

// NewReader makes a reader of a folder, which may be missing: then every blob is.
func NewReader(folder string) (*Reader, error) {
	if folder == "" {
		return nil, fmt.Errorf("%w: folder of the blobs is empty", store.ErrInvalid)
	}
	root, err := filepath.Abs(folder)
	if err != nil {
		return nil, fmt.Errorf("failed to resolve folder of the blobs: %w", err)
	}
	return &Reader{&Store{root: root, system: &realSystem}}, nil
}

// Open opens a blob as blob.Store does: reading it to its end verifies it.
func (r *Reader) Open(ctx context.Context, space blob.Space, hash string) (io.ReadCloser, int64, error) {
	return r.s.Open(ctx, space, hash)
}

// File is the path of a blob below the folder, whether or not it is there.
func (r *Reader) File(space blob.Space, hash string) (string, error) {
	path, err := r.s.path(space, hash)
	if err != nil {
		return "", err
	}
	return filepath.Rel(r.s.root, path)
}
