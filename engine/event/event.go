// Package event is the only language between harness drivers and everything that clients read: canonical events,
// their codec and bounds, the lifecycle validator, the log port with its writer, and the hub that subscribers read.
package event

import (
	"encoding/json"
	"time"
)

// Version is the version of the envelope.
const Version = 1

// Type names what happened.
type Type string

// The event types, version 1.
const (
	TypeRunStarted         Type = "run.started"
	TypeRunRecovered       Type = "run.recovered"
	TypeTextStarted        Type = "text.started"
	TypeTextDelta          Type = "text.delta"
	TypeTextFinished       Type = "text.finished"
	TypeReasoningStarted   Type = "reasoning.started"
	TypeReasoningDelta     Type = "reasoning.delta"
	TypeReasoningFinished  Type = "reasoning.finished"
	TypeToolStarted        Type = "tool.started"
	TypeToolArgumentsDelta Type = "tool.arguments.delta"
	TypeToolFinished       Type = "tool.finished"
	TypeToolError          Type = "tool.error"
	TypeInterruptRequested Type = "interrupt.requested"
	TypeNamespaceEntered   Type = "namespace.entered"
	TypeNamespaceExited    Type = "namespace.exited"
	TypePlanUpdated        Type = "plan.updated"
	TypeWarning            Type = "warning"
	TypeUsageUpdated       Type = "usage.updated"
	TypeRunFinished        Type = "run.finished"
	TypeRunInterrupted     Type = "run.interrupted"
	TypeRunCancelled       Type = "run.cancelled"
	TypeRunError           Type = "run.error"
)

// Terminal reports whether an event of this type ends its run.
func (t Type) Terminal() bool {
	switch t {
	case TypeRunFinished, TypeRunInterrupted, TypeRunCancelled, TypeRunError:
		return true
	}
	return false
}

// Event is one canonical event with its envelope. RunID, SessionID and Sequence are set by the engine at append; a
// driver leaves them empty.
type Event struct {
	RunID     string
	SessionID string
	Sequence  int64     // 1, 2, 3, ... per run, no gap, no repeat
	Time      time.Time // UTC, milliseconds; never used for ordering
	Namespace []string  // path of delegated agents' ids; empty at the root
	Data      Data
}

// Type is the type of the event's data.
func (e Event) Type() Type { return e.Data.Type() }

// Data is the payload of one event type. The implementations are the structs of this package.
type Data interface{ Type() Type }

// Durability says how far a thread's native state is safe when a run ends.
type Durability string

// Durability levels, from the least.
const (
	DurabilityNone      Durability = "NONE"      // nothing is kept between turns
	DurabilityLocal     Durability = "LOCAL"     // kept in the worker's state folder on its host
	DurabilityCommitted Durability = "COMMITTED" // the engine committed a head
	DurabilityUncertain Durability = "UNCERTAIN" // cannot be known
)

// ThreadState is carried by every terminal.
type ThreadState struct {
	Durability Durability `json:"durability"`
	Revision   int64      `json:"revision,omitempty"` // of the head, 0 where there is none
}

// SideEffects says what a run may have done outside before it ended badly.
type SideEffects string

// Side-effect statements.
const (
	SideEffectsNone     SideEffects = "none"     // no tool was started
	SideEffectsPossible SideEffects = "possible" // work may have been done that the log does not show
	SideEffectsKnown    SideEffects = "known"    // tools ran; the log shows all of them with their outcome
)

// Category is the class of an error.
type Category string

// Error categories.
const (
	CategoryConfiguration  Category = "configuration"
	CategoryAuthentication Category = "authentication"
	CategoryAuthorization  Category = "authorization"
	CategoryCapacity       Category = "capacity"
	CategoryThrottled      Category = "throttled"
	CategoryUnavailable    Category = "unavailable"
	CategoryTimeout        Category = "timeout"
	CategoryProtocol       Category = "protocol"
	CategoryPersistence    Category = "persistence"
	CategoryCancelled      Category = "cancelled"
	CategoryInternal       Category = "internal"
)

// Isolation says what stands between model-directed code and the host.
type Isolation string

// Isolation levels of version 1.
const (
	IsolationNone Isolation = "none" // an ordinary process of the engine's user
)

// RunStarted is the first event of every run. It is durable before any start call to a worker or provider, so that
// after a crash it means "may have run".
type RunStarted struct {
	Harness           string    `json:"harness"`
	AdapterVersion    string    `json:"adapterVersion"`
	AgentVersion      int64     `json:"agentVersion"`
	SandboxGeneration int64     `json:"sandboxGeneration,omitempty"`
	WorkerInstance    string    `json:"workerInstance,omitempty"` // absent where the run ended before it had a worker
	Isolation         Isolation `json:"isolation,omitempty"`
	Continues         string    `json:"continues,omitempty"` // run that was interrupted
}

// RunRecovered is the fence of an engine that took the run over.
type RunRecovered struct {
	Generation int64 `json:"generation"`
}

// TextStarted opens a message.
type TextStarted struct {
	MessageID string `json:"messageId"`
	Role      string `json:"role"` // "assistant"
}

// TextDelta adds to an open message.
type TextDelta struct {
	MessageID string `json:"messageId"`
	Delta     string `json:"delta"`
}

// TextFinished closes a message.
type TextFinished struct {
	MessageID string `json:"messageId"`
}

// ReasoningStarted opens a span of reasoning.
type ReasoningStarted struct {
	MessageID string `json:"messageId"`
}

// ReasoningDelta adds to an open span of reasoning.
type ReasoningDelta struct {
	MessageID string `json:"messageId"`
	Delta     string `json:"delta"`
}

// ReasoningFinished closes a span of reasoning.
type ReasoningFinished struct {
	MessageID string `json:"messageId"`
}

// ToolStarted opens a tool call.
type ToolStarted struct {
	ToolCallID      string          `json:"toolCallId"`
	Name            string          `json:"name"`
	Kind            string          `json:"kind,omitempty"`
	Title           string          `json:"title,omitempty"`
	Arguments       json.RawMessage `json:"arguments,omitempty"` // a JSON object; absent when they stream
	ParentMessageID string          `json:"parentMessageId,omitempty"`
}

// ToolArgumentsDelta is a fragment of the JSON text of an open call's arguments.
type ToolArgumentsDelta struct {
	ToolCallID string `json:"toolCallId"`
	Delta      string `json:"delta"`
}

// ToolFinished closes a call that returned.
type ToolFinished struct {
	ToolCallID string `json:"toolCallId"`
	Result     string `json:"result"`              // for display, bounded
	Truncated  bool   `json:"truncated,omitempty"` // Result was cut at the bound
	ResultRef  string `json:"resultRef,omitempty"` // where the whole result is kept
}

// ToolError closes a call that failed.
type ToolError struct {
	ToolCallID string `json:"toolCallId"`
	Code       string `json:"code"`
	Message    string `json:"message"`
	Retryable  bool   `json:"retryable"`
}

// InterruptKind is what a person is asked for.
type InterruptKind string

// Interrupt kinds.
const (
	InterruptForm     InterruptKind = "form_input"
	InterruptApproval InterruptKind = "tool_approval"
)

// InterruptRequested asks a person; only span closings and RunInterrupted may follow.
type InterruptRequested struct {
	InterruptID string         `json:"interruptId"`
	Kind        InterruptKind  `json:"kind"`
	Prompt      string         `json:"prompt,omitempty"`
	Fields      []FormField    `json:"fields,omitempty"`
	Calls       []ApprovalCall `json:"calls,omitempty"`
	Revision    int64          `json:"revision"`
	Deadline    *time.Time     `json:"deadline,omitempty"`
}

// FormField is one value that a form asks for.
type FormField struct {
	Name     string   `json:"name"`
	Label    string   `json:"label,omitempty"`
	Kind     string   `json:"kind"` // string, number, boolean, choice
	Required bool     `json:"required,omitempty"`
	Choices  []string `json:"choices,omitempty"`
}

// ApprovalCall is one tool call that waits for a person.
type ApprovalCall struct {
	ToolCallID string          `json:"toolCallId"`
	Name       string          `json:"name"`
	Arguments  json.RawMessage `json:"arguments,omitempty"`
	Allowed    []string        `json:"allowed"`          // of approve, edit, reject
	Schema     json.RawMessage `json:"schema,omitempty"` // JSON Schema of the arguments, an object, where the harness tells it
}

// NamespaceEntered opens a delegated agent. Its envelope's namespace is the parent's path; events of the child carry
// that path plus ID.
type NamespaceEntered struct {
	ID               string `json:"id"`
	Name             string `json:"name"`
	ParentToolCallID string `json:"parentToolCallId"`
}

// NamespaceExited closes a delegated agent; its envelope's namespace is the parent's path.
type NamespaceExited struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"` // success, error, cancelled
}

// PlanUpdated replaces the visible plan.
type PlanUpdated struct {
	Entries []PlanEntry `json:"entries"`
}

// PlanEntry is one step of a plan.
type PlanEntry struct {
	Content  string `json:"content"`
	Status   string `json:"status"`             // pending, in_progress, completed
	Priority string `json:"priority,omitempty"` // high, medium, low
}

// Warning tells of something that did not end the run.
type Warning struct {
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"` // scalars only
}

// UsageUpdated gives what is known of consumption so far; unknown is absent, never an invented 0.
type UsageUpdated struct {
	InputTokens       *int64   `json:"inputTokens,omitempty"`
	OutputTokens      *int64   `json:"outputTokens,omitempty"`
	CachedInputTokens *int64   `json:"cachedInputTokens,omitempty"`
	ReasoningTokens   *int64   `json:"reasoningTokens,omitempty"`
	Cost              *float64 `json:"cost,omitempty"`
	Currency          string   `json:"currency,omitempty"` // ISO 4217
	Final             bool     `json:"final"`
}

// RunFinished ends a run that came to its own end.
type RunFinished struct {
	Outcome    string      `json:"outcome"`    // success
	StopReason string      `json:"stopReason"` // end_turn, max_tokens, max_turn_requests, refusal
	Thread     ThreadState `json:"thread"`
}

// RunInterrupted ends a run that waits for a person; another run continues it.
type RunInterrupted struct {
	InterruptID string      `json:"interruptId"`
	Reason      string      `json:"reason"`
	Thread      ThreadState `json:"thread"`
}

// CancelReason says who or what cancelled a run.
type CancelReason string

// Cancel reasons.
const (
	CancelClientRequest  CancelReason = "client_request"
	CancelSuperseded     CancelReason = "superseded"
	CancelShutdown       CancelReason = "shutdown"
	CancelDeadline       CancelReason = "deadline"
	CancelSessionCleared CancelReason = "session_cleared"
)

// RunCancelled ends a run that was stopped from outside.
type RunCancelled struct {
	Reason      CancelReason `json:"reason"`
	SideEffects SideEffects  `json:"sideEffects"`
	Thread      ThreadState  `json:"thread"`
}

// RunError ends a run that failed. Code and Message are safe to show.
type RunError struct {
	Code         string      `json:"code"`
	Message      string      `json:"message"`
	Category     Category    `json:"category"`
	Retryable    bool        `json:"retryable"`
	RetryAfterMs int64       `json:"retryAfterMs,omitempty"`
	SideEffects  SideEffects `json:"sideEffects"`
	Thread       ThreadState `json:"thread"`
}

func (RunStarted) Type() Type         { return TypeRunStarted }
func (RunRecovered) Type() Type       { return TypeRunRecovered }
func (TextStarted) Type() Type        { return TypeTextStarted }
func (TextDelta) Type() Type          { return TypeTextDelta }
func (TextFinished) Type() Type       { return TypeTextFinished }
func (ReasoningStarted) Type() Type   { return TypeReasoningStarted }
func (ReasoningDelta) Type() Type     { return TypeReasoningDelta }
func (ReasoningFinished) Type() Type  { return TypeReasoningFinished }
func (ToolStarted) Type() Type        { return TypeToolStarted }
func (ToolArgumentsDelta) Type() Type { return TypeToolArgumentsDelta }
func (ToolFinished) Type() Type       { return TypeToolFinished }
func (ToolError) Type() Type          { return TypeToolError }
func (InterruptRequested) Type() Type { return TypeInterruptRequested }
func (NamespaceEntered) Type() Type   { return TypeNamespaceEntered }
func (NamespaceExited) Type() Type    { return TypeNamespaceExited }
func (PlanUpdated) Type() Type        { return TypePlanUpdated }
func (Warning) Type() Type            { return TypeWarning }
func (UsageUpdated) Type() Type       { return TypeUsageUpdated }
func (RunFinished) Type() Type        { return TypeRunFinished }
func (RunInterrupted) Type() Type     { return TypeRunInterrupted }
func (RunCancelled) Type() Type       { return TypeRunCancelled }
func (RunError) Type() Type           { return TypeRunError }
