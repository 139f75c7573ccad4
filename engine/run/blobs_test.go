package run_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/harness-engine/harness-engine/engine/blob"
)

// blobs keeps blobs in memory, or refuses to.
type blobs struct {
	mu     sync.Mutex
	by     map[blob.Space]map[string][]byte
	refuse bool
}

func newBlobs() *blobs { return &blobs{by: map[blob.Space]map[string][]byte{}} }

func (b *blobs) Put(_ context.Context, space blob.Space, r io.Reader, limit int64, want string) (blob.Ref, error) {
	raw, err := io.ReadAll(io.LimitReader(r, limit))
	if err != nil {
		return blob.Ref{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse {
		return blob.Ref{}, errors.New("refused")
	}
	sum := sha256.Sum256(raw)
	hash := hex.EncodeToString(sum[:])
	if want != "" && hash != want {
		return blob.Ref{}, blob.ErrHash
	}
	if b.by[space] == nil {
		b.by[space] = map[string][]byte{}
	}
	b.by[space][hash] = raw
	return blob.Ref{Hash: hash, Size: int64(len(raw))}, nil
}

func (b *blobs) Open(_ context.Context, space blob.Space, hash string) (io.ReadCloser, int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	raw, ok := b.by[space][hash]
	if !ok {
		return nil, 0, blob.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(raw)), int64(len(raw)), nil
}

func (b *blobs) Delete(_ context.Context, space blob.Space, hash string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.by[space], hash)
	return nil
}

func (b *blobs) List(_ context.Context, space blob.Space, after string, limit int) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, h := range slices.Sorted(maps.Keys(b.by[space])) {
		if h > after && len(out) < limit {
			out = append(out, h)
		}
	}
	return out, nil
}

// count is the number of blobs in all spaces.
func (b *blobs) count() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.by {
		n += len(s)
	}
	return n
}
