package harness

import (
	"context"
	"encoding/json"
	"errors"
	"io"

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

	Files  []File  `json:"files,omitempty"`  // attachments of the message
	Head   Head    `json:"head"`             // thread state that the turn starts from; another is ErrStaleHead
	Resume *Resume `json:"resume,omitempty"` // goes on after an interrupt; Text is empty then
}

// MaxFilesBytes bounds the attachments of one turn together.
const MaxFilesBytes = 10 << 20

// File is one attachment.
type File struct {
	Name      string `json:"name"`
	MediaType string `json:"mediaType"`
	Data      []byte `json:"data"`
}

// Head names a committed thread state. The zero value is a conversation without one.
type Head struct {
	Rev  int64  `json:"rev"`
	Hash string `json:"hash,omitempty"` // SHA-256 of the packed state, hexadecimal
}

// Snapshot is a committed thread state for a worker that starts. The zero value is the state of a conversation that has
// committed none: the worker starts with nothing, whatever an uncommitted turn left on its host.
type Snapshot struct {
	Head
	Codec string
	Size  int64
	Open  func(ctx context.Context) (io.ReadCloser, error)
}

// State is the packed native state as of the end of a run.
type State struct {
	Codec string
	Hash  string // SHA-256 of Body, hexadecimal
	Size  int64  // bytes of Body, at most MaxStateBytes
	Body  io.ReadCloser
}

// MaxStateBytes bounds one packed thread state.
const MaxStateBytes = 64 << 20

// Resume is the decision that a run goes on with.
type Resume struct {
	RunID       string            `json:"runId"` // that was interrupted
	InterruptID string            `json:"interruptId"`
	Revision    int64             `json:"revision"`
	Decision    Decision          `json:"decision"`
	Inherit     event.Inheritance `json:"inherit"` // calls and namespaces that the interrupted run left open
}

// Verdict on one call.
type Verdict string

// Verdicts.
const (
	Approve Verdict = "approve"
	Edit    Verdict = "edit"
	Reject  Verdict = "reject"
)

// Decision answers an interrupt: Form for a form, Calls for an approval.
type Decision struct {
	Form  json.RawMessage `json:"form,omitempty"` // object, by field name
	Calls []CallDecision  `json:"calls,omitempty"`
}

// CallDecision is the verdict on one call of an approval.
type CallDecision struct {
	ToolCallID string          `json:"toolCallId"`
	Verdict    Verdict         `json:"verdict"`
	Arguments  json.RawMessage `json:"arguments,omitempty"` // of Edit: the whole new arguments
	Message    string          `json:"message,omitempty"`   // of Reject: why, for the agent
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
	// ErrStaleHead: the runtime's thread state is not the one that the turn shall start from.
	ErrStaleHead = errors.New("runtime has another thread state")
	// ErrNoState: the harness keeps no state that could be committed.
	ErrNoState = errors.New("runtime has no thread state")
	// ErrInterruptLost: what waited for the decision died with its process.
	ErrInterruptLost = errors.New("runtime lost the interrupt")
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

// StateKeeper is a Runtime whose harness keeps native state that can be packed, committed and restored elsewhere.
type StateKeeper interface {
	// State gives the native state as of the run's terminal. It can be asked for again until the run is committed or
	// another turn starts. ErrNoState where the harness keeps none.
	State(ctx context.Context, runID string) (State, error)
	// Commit tells that the state of the run's end is the head. Idempotent.
	Commit(ctx context.Context, runID string, head Head) error
}

// Stream is one reading of a run's journal.
type Stream interface {
	// Next blocks for the next event. io.EOF after the last event of an ended run; ErrUnreachable when the
	// connection is lost (reconnect with Events).
	Next(ctx context.Context) (SourceEvent, error)
	Close() error
}
