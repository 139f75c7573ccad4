package event

import (
	"context"
	"errors"
	"fmt"
)

// Limits of one chunk. MaxChunkBytes counts the body.
const (
	MaxChunkEvents = 256
	MaxChunkBytes  = 1 << 20
)

// Cursor is how far one source of events has been taken into the log.
type Cursor struct {
	Incarnation string `json:"incarnation"` // of the source, for instance a worker instance
	Seq         int64  `json:"seq"`         // last source event taken, also where it yielded nothing
}

// Sources of cursors.
const (
	SourceWorker = "worker"
)

// Chunk is the unit of the log: consecutive events of one run, written at once under the unique key (RunID, First).
type Chunk struct {
	RunID     string
	SessionID string
	First     int64             // sequence of the first event
	Last      int64             // sequence of the last event; Last-First+1 events
	Gen       int64             // run lease generation of the writer
	Writer    string            // nonce of the writer's boot
	Cursors   map[string]Cursor // full vector, by source
	Facts     map[string]string // for the engine only, without a sequence: native session id, provider metadata
	Body      []byte            // JSON array of the encoded events
	SHA256    [32]byte          // over everything above, see Seal
	Terminal  bool              // the last event is terminal; a copy of what Body says, for readers without a decoder
}

// Errors of a Log.
var (
	// ErrEmpty: the run has no chunk.
	ErrEmpty = errors.New("event log: run has no events")
	// ErrUnknownOutcome: the append may or may not be durable. Resolve it by reading the key, never by another batch.
	ErrUnknownOutcome = errors.New("event log: append outcome unknown")
	// ErrDiskFull: nothing was written and nothing will be until there is room.
	ErrDiskFull = errors.New("event log: disk full")
)

// DuplicateError: the key (run, first) is taken. Nothing was written.
type DuplicateError struct {
	RunID string
	First int64
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("event log: %s already has a chunk that starts at %d", e.RunID, e.First)
}

// Log is the durable, append-only store of chunks. Implementations must pass store/storetest.
//
// Retention removes chunks of ended runs from below, after the run's document says up to where. Each read knows that mark
// from the same state that it reads the chunks from, and answers *ExpiredError instead of a log with a hole: Get of a chunk
// that begins at or below it, Tail when all is gone, Read from before it. Tail of a run that was given up is *GivenUpError.
type Log interface {
	// Append makes c durable and returns nil only then. It returns *DuplicateError when the key is taken,
	// ErrUnknownOutcome (wrapped) when it cannot tell, any other error when nothing was written. It keeps no
	// reference to c. At most one append per run is in flight (the caller's duty).
	Append(ctx context.Context, c Chunk) error
	// Get returns the chunk that starts at first, or ErrEmpty when there is none.
	Get(ctx context.Context, runID string, first int64) (Chunk, error)
	// Tail returns the last chunk of a run, or ErrEmpty.
	Tail(ctx context.Context, runID string) (Chunk, error)
	// Read returns, in order, the chunks with Last > after, at most as many as hold maxEvents events but at least
	// one when there is one. The first chunk may start at or before after: the caller trims. The read is the
	// newest committed state.
	Read(ctx context.Context, runID string, after int64, maxEvents int) ([]Chunk, error)
}
