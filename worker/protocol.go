package worker

import (
	"encoding/json"
	"net/http"
	"regexp"
	"time"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// ProtocolVersion is the version of the worker protocol that this package speaks. See docs/workers.md.
const ProtocolVersion = 1

// Headers of every call, and the incarnation that every answer carries.
const (
	headerProtocol   = "Harness-Protocol"
	headerSecret     = "Harness-Secret"
	headerSession    = "Harness-Session"
	headerEpoch      = "Harness-Epoch"
	headerSandboxGen = "Harness-Sandbox-Gen"
	headerLeaseGen   = "Harness-Lease-Gen"
	headerInstance   = "Harness-Instance"
)

// Headers of a packed thread state, in the direction in which its bytes go.
const (
	headerStateCodec = "Harness-State-Codec"
	headerStateHash  = "Harness-State-Hash" // SHA-256 of the bytes, hexadecimal
	headerHeadRev    = "Harness-Head-Rev"   // revision of the head that the bytes are
)

// Limits of the protocol.
const (
	MaxTextBytes      = 1 << 20 // of a turn's message
	MaxPromptBytes    = 1 << 20 // of a rendered system prompt
	MaxCapability     = 8 << 10 // of a turn's capability token
	MaxSocketPath     = 107     // bytes of a unix socket's path (unix(7): sun_path is 108 with its end)
	MaxStreams        = 32      // event streams open at a time
	MaxConnections    = 64
	MaxRuns           = 10_000 // runs in a worker's life: each leaves a tombstone
	MaxUnacknowledged = 16     // ended runs whose journal is kept for a late acknowledgement
	MaxFiles          = 16     // of a turn
	MaxCalls          = 64     // that one decision is about
	MaxDecisionBytes  = 1 << 20

	maxBody       = 4 << 20  // of a request
	maxTurnBody   = 24 << 20 // of the start of a turn: harness.MaxFilesBytes in base64, and the rest
	maxSmallBody  = 16 << 10
	maxAnswerBody = 64 << 10
	maxHeader     = 32 << 10
	maxLine       = 2 << 20   // of the event stream
	maxStepBytes  = 512 << 10 // of one step's events; a longer one becomes several steps
	maxStepEvents = 192

	// Heartbeat is the longest silence of an event stream. A client that hears nothing for SilenceLimit has lost it.
	Heartbeat    = 10 * time.Second
	SilenceLimit = 3 * Heartbeat
)

// Limits are the bounds of one binding. Zero fields mean the defaults.
type Limits struct {
	JournalBytes  int64 `json:"journalBytes,omitempty"`  // of one run, 64 KiB to 256 MiB; DefaultJournalBytes
	JournalSteps  int   `json:"journalSteps,omitempty"`  // of one run, 8 to 1,048,576; DefaultJournalSteps
	CancelGraceMs int64 `json:"cancelGraceMs,omitempty"` // for a driver to obey a cancel, 1 to 600,000; 10 s
}

// BindRequest makes a worker serve a binding. Without a construction it attaches to one that is bound already.
type BindRequest struct {
	Construction *harness.Construction `json:"construction,omitempty"`
	BrokerSocket string                `json:"brokerSocket,omitempty"` // path of the broker's unix socket; empty: there is none
	Limits       Limits                `json:"limits"`
}

// Ready is what a worker says of itself.
type Ready struct {
	ProtocolVersions []int    `json:"protocolVersions"`
	Instance         string   `json:"instance"`
	Harnesses        []string `json:"harnesses"` // that it can drive, sorted
	Bound            *Bound   `json:"bound,omitempty"`
	ActiveRun        string   `json:"activeRun,omitempty"`
	ParkedRun        string   `json:"parkedRun,omitempty"` // interrupted run whose native call waits in this process
}

// Bound is whom a worker serves.
type Bound struct {
	Binding  harness.Binding `json:"binding"`
	LeaseGen int64           `json:"leaseGen"` // highest that it has seen
	Harness  string          `json:"harness"`
}

type bindAnswer struct {
	Instance string `json:"instance"`
}

type commitRequest struct {
	Head harness.Head `json:"head"`
}

type cancelRequest struct {
	Reason string `json:"reason"`
}

// shutdownRequest ends the worker: at once, or only when it has been idle for a time.
type shutdownRequest struct {
	IfIdleMs int64 `json:"ifIdleMs,omitempty"`
}

type ackRequest struct {
	Seq int64 `json:"seq"`
}

// line is one line of the event stream: a step, or one of the control lines.
type line struct {
	Seq       int64             `json:"seq,omitempty"`
	Events    []json.RawMessage `json:"events,omitempty"`
	Facts     map[string]string `json:"facts,omitempty"`
	Heartbeat bool              `json:"heartbeat,omitempty"`
	End       bool              `json:"end,omitempty"`    // the run has ended and everything was sent
	Closed    string            `json:"closed,omitempty"` // code: the worker ends this stream, not the run
}

// Code is a stable error code of the protocol.
type Code string

// The codes, with the status that carries them.
const (
	CodeBadRequest      Code = "bad_request"
	CodeUnsupported     Code = "unsupported_protocol"
	CodeUnauthorized    Code = "unauthorized"
	CodeNotFound        Code = "not_found"
	CodeUnknownRun      Code = "unknown_run"
	CodeNotBound        Code = "not_bound"
	CodeWrongBinding    Code = "wrong_binding"
	CodeWrongGeneration Code = "wrong_generation"
	CodeStaleLease      Code = "stale_lease"
	CodeConflict        Code = "conflict"
	CodeBusy            Code = "busy"
	CodeGone            Code = "gone"
	CodeTooLarge        Code = "too_large"
	CodeOpenFailed      Code = "open_failed"
	CodeTooMany         Code = "too_many"
	CodeClosing         Code = "closing"
	CodeExhausted       Code = "exhausted"
	CodeStaleHead       Code = "stale_head"
	CodeNoState         Code = "no_state"
	CodeStateFailed     Code = "state_failed" // it could not be packed
	CodeInterruptLost   Code = "interrupt_lost"
	CodeInternal        Code = "internal"
)

var statusOf = map[Code]int{
	CodeBadRequest:      http.StatusBadRequest,
	CodeUnsupported:     http.StatusBadRequest,
	CodeUnauthorized:    http.StatusUnauthorized,
	CodeNotFound:        http.StatusNotFound,
	CodeUnknownRun:      http.StatusNotFound,
	CodeNotBound:        http.StatusConflict,
	CodeWrongBinding:    http.StatusConflict,
	CodeWrongGeneration: http.StatusConflict,
	CodeStaleLease:      http.StatusConflict,
	CodeConflict:        http.StatusConflict,
	CodeBusy:            http.StatusConflict,
	CodeGone:            http.StatusGone,
	CodeTooLarge:        http.StatusRequestEntityTooLarge,
	CodeOpenFailed:      http.StatusUnprocessableEntity,
	CodeTooMany:         http.StatusTooManyRequests,
	CodeClosing:         http.StatusServiceUnavailable,
	CodeExhausted:       http.StatusServiceUnavailable,
	CodeStaleHead:       http.StatusConflict,
	CodeNoState:         http.StatusConflict,
	CodeStateFailed:     http.StatusConflict,
	CodeInterruptLost:   http.StatusGone,
	CodeInternal:        http.StatusInternalServerError,
}

// meaningOf maps a code to the error of harness.Runtime that an engine acts on. Codes without an entry are plain
// failures: the call was wrong, or the worker is.
var meaningOf = map[Code]error{
	CodeUnauthorized:    harness.ErrConflict, // another worker listens there
	CodeWrongBinding:    harness.ErrConflict,
	CodeWrongGeneration: harness.ErrConflict,
	CodeConflict:        harness.ErrConflict,
	CodeBusy:            harness.ErrConflict,
	CodeStaleLease:      harness.ErrStaleLease,
	CodeUnknownRun:      harness.ErrUnknownRun,
	CodeNotBound:        harness.ErrGone,
	CodeGone:            harness.ErrGone,
	CodeClosing:         harness.ErrGone,
	CodeExhausted:       harness.ErrGone,
	CodeStaleHead:       harness.ErrStaleHead,
	CodeNoState:         harness.ErrNoState,
	CodeStateFailed:     harness.ErrNoState,
	CodeInterruptLost:   harness.ErrInterruptLost,
}

// Error is the answer of a worker that did not do what was asked, and did nothing else either.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Field   string `json:"field,omitempty"` // path of the input field, for bad_request
}

func (e *Error) Error() string {
	if e.Field != "" {
		return string(e.Code) + ": " + e.Field + ": " + e.Message
	}
	return string(e.Code) + ": " + e.Message
}

// Unwrap gives the error of harness.Runtime that the code stands for, or nil.
func (e *Error) Unwrap() error { return meaningOf[e.Code] }

// idPattern is the form of session and run ids at this boundary. It is narrower than what a header, a path or a file
// name can hold.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
