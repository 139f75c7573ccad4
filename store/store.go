// Package store holds what every backend of the engine's storage ports shares: the bounds of documents and chunks,
// the checks at the boundary, the document codec, and the names of the values that a store keeps beside documents.
// The ports themselves are declared by the packages that use them (engine/event, engine/session, engine/run,
// engine/agent); the backends are store/sqlite and, later, others; all must pass store/storetest.
package store

import (
	"context"
	"errors"
)

// Bounds of what a store accepts. MongoDB's 16 MB document limit leaves ample room above them.
const (
	MaxDocumentBytes = 4 << 20  // encoded document
	MaxKeyBytes      = 256      // any identifier or other string that is part of a key
	MaxChunkMeta     = 64 << 10 // encoded cursors and facts of a chunk, each
	MaxValueBytes    = 64 << 10 // one named value
	MaxPage          = 1000     // documents in one listing
	MaxReadEvents    = 10_000   // events in one read of the log
	MaxReadBytes     = 8 << 20  // bodies in one read of the log, except that one chunk is always given
)

// Errors of every backend.
var (
	// ErrTooLarge: the document or chunk is above its bound. Nothing was written.
	ErrTooLarge = errors.New("store: too large")
	// ErrInvalid: the document, chunk or argument breaks a rule of the port. Nothing was written.
	ErrInvalid = errors.New("store: invalid")
	// ErrNoValue: no value has that name.
	ErrNoValue = errors.New("store: no such value")
	// ErrOverloaded: too many writes wait already. Nothing was written; try again later.
	ErrOverloaded = errors.New("store: too many writes waiting")
	// ErrClosed: the store was closed. Nothing was written.
	ErrClosed = errors.New("store: closed")
)

// Names of values that the engine keeps in its store.
const (
	// ValueIDSecret names the key of the digests that make identifiers (idempotency keys, conversations).
	ValueIDSecret = "secret.ids"
	// ValueBrokerSecret names the key that signs the capabilities of workers.
	ValueBrokerSecret = "secret.broker"
	// AppliedPrefix begins the names of values that say of an authorization store that the tuples of all documents are in it;
	// its id follows.
	AppliedPrefix = "authz.applied."
	// ValueIncarnation names the store's incarnation (id.Log): made with the store, and anew when it is restored from a
	// backup. Cursors of another incarnation count events that may be gone.
	ValueIncarnation = "store.incarnation"
)

// Values keeps a few small named values: secrets and marks that are made once and never change.
type Values interface {
	// Value returns the value, or ErrNoValue.
	Value(ctx context.Context, name string) ([]byte, error)
	// PutValueIfAbsent stores the value unless the name has one, and returns the value that the name has now. So
	// whoever comes second gets the first one's.
	PutValueIfAbsent(ctx context.Context, name string, value []byte) ([]byte, error)
}
