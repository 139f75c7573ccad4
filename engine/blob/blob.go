// Package blob is the port of what is stored whole and by its content: packed thread states and attachments.
package blob

import (
	"context"
	"errors"
	"io"
)

// Space keeps one use of blobs apart from another.
type Space string

// Spaces.
const (
	Threads     Space = "threads"     // packed native state, owned by the head that refers to it
	Attachments Space = "attachments" // what users sent
)

// Ref names a stored blob. Its Hash is the SHA-256 of its content, hexadecimal.
type Ref struct {
	Hash string `json:"hash"`
	Size int64  `json:"size"`
}

// Errors of a Store.
var (
	ErrNotFound = errors.New("blob: not found")
	ErrTooLarge = errors.New("blob: too large")
	// ErrHash: the content is not what the reference says. Nothing was stored, or what is stored is damaged.
	ErrHash = errors.New("blob: content does not match its hash")
	ErrFull = errors.New("blob: no room")
)

// Store keeps immutable blobs. Implementations must pass store/storetest.
type Store interface {
	// Put stores what r gives, at most limit bytes, durably before it returns. Storing the same content again is
	// storing it once. ErrTooLarge when r has more; ErrHash when want is not empty and the content has another hash.
	Put(ctx context.Context, space Space, r io.Reader, limit int64, want string) (Ref, error)
	// Open reads a blob; reading it to its end verifies the hash (ErrHash instead of io.EOF).
	Open(ctx context.Context, space Space, hash string) (io.ReadCloser, int64, error)
	// Delete removes a blob; it is no error when it is not there.
	Delete(ctx context.Context, space Space, hash string) error
	// List gives the hashes of a space, ascending, hash > after, at most limit.
	List(ctx context.Context, space Space, after string, limit int) ([]string, error)
}
