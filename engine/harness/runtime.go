package harness

import (
	"context"
	"errors"

	"github.com/harness-engine/harness-engine/engine/event"
)

// Binding identifies whom a runtime serves: one conversation in one epoch, by one worker generation.
type Binding struct {
	SessionID  string `json:"sessionId"`
	Epoch      int64  `json:"epoch"`
	SandboxGen int64  `json:"sandboxGen"`
}

// Turn is the start of one run on a bound runtime.
type Turn struct {
	RunID      string `json:"runId"`
	Text       string `json:"text"`       // the user's message
	Capability string `json:"capability"` // short-lived token for the broker, for this run only
	DeadlineMs int64  `json:"deadlineMs"` // longest duration of the turn from its start, milliseconds; 0 is none
}

// SourceEvent is one step of a native stream, translated. A step that yields nothing keeps its number.
type SourceEvent struct {
	Seq    int64
	Events []event.Event
	Facts  map[string]string // for the engine only: native session id, provider metadata
}

// Errors of a Runtime.
var (
	// ErrUnreachable: no answer; the work may go on.
	ErrUnreachable = errors.New("runtime unreachable")
	// ErrGone: the runtime, its incarnation or the asked part of its journal no longer exists.
	ErrGone = errors.New("runtime gone")
	// ErrStaleLease: another engine holds a higher lease generation. Disconnect, and do nothing else.
	ErrStaleLease = errors.New("stale lease")
	// ErrConflict: the runtime serves another binding, or the run id is tombstoned with another request.
	ErrConflict = errors.New("runtime conflict")
	// ErrUnknownRun: the runtime never started this run.
	ErrUnknownRun = errors.New("runtime does not know the run")
)

// Runtime is one bound worker, or a provider that serves as one. Every call carries the caller's lease generation,
// fixed when the runtime was attached.
type Runtime interface {
	// Instance is the incarnation: it changes when the process behind it does.
	Instance() string
	// Isolation is what stands between model-directed code and the host.
	Isolation() event.Isolation
	// StartTurn is idempotent by run id for the runtime's life.
	StartTurn(ctx context.Context, t Turn) error
	// Cancel is idempotent; it stops model, tools and children, and does not undo effects. The stream then ends with
	// a terminal.
	Cancel(ctx context.Context, runID string, reason event.CancelReason) error
	// Events replays what the journal holds after the source sequence, then goes on live. ErrGone when after is below
	// the journal's floor or above its tail.
	Events(ctx context.Context, runID string, after int64) (Stream, error)
	// Ack lets the journal forget everything up to seq. Cumulative.
	Ack(ctx context.Context, runID string, seq int64) error
	// Close disconnects and leaves the worker as it is.
	Close() error
}

// Stream is one reading of a run's journal.
type Stream interface {
	// Next blocks for the next event. io.EOF after the last event of an ended run; ErrUnreachable when the
	// connection is lost (reconnect with Events).
	Next(ctx context.Context) (SourceEvent, error)
	Close() error
}
