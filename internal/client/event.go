package client

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"
)

// Event types; docs/events.md tells what each means. Expect others.
const (
	RunStarted         = "run.started"
	RunRecovered       = "run.recovered"
	TextStarted        = "text.started"
	TextDelta          = "text.delta"
	TextFinished       = "text.finished"
	ReasoningStarted   = "reasoning.started"
	ReasoningDelta     = "reasoning.delta"
	ReasoningFinished  = "reasoning.finished"
	ToolStarted        = "tool.started"
	ToolArgumentsDelta = "tool.arguments.delta"
	ToolFinished       = "tool.finished"
	ToolError          = "tool.error"
	InterruptRequested = "interrupt.requested"
	NamespaceEntered   = "namespace.entered"
	NamespaceExited    = "namespace.exited"
	Warning            = "warning"
	UsageUpdated       = "usage.updated"
	PlanUpdated        = "plan.updated"
	RunFinished        = "run.finished"
	RunInterrupted     = "run.interrupted"
	RunCancelled       = "run.cancelled"
	RunFailed          = "run.error"
)

var terminals = []string{RunFinished, RunInterrupted, RunCancelled, RunFailed}

// eventFields selects everything that the schema tells of an event, so that two readings can be compared whole.
const eventFields = `
fragment EventFields on RunEvent {
  __typename runId sequence time namespace type
  ... on RunStartedEvent { harnessId adapterVersion agentVersion sandboxGeneration isolation continues }
  ... on RunRecoveredEvent { generation }
  ... on TextStartedEvent { messageId role }
  ... on TextDeltaEvent { messageId delta }
  ... on TextFinishedEvent { messageId }
  ... on ReasoningStartedEvent { messageId }
  ... on ReasoningDeltaEvent { messageId delta }
  ... on ReasoningFinishedEvent { messageId }
  ... on ToolStartedEvent { toolCallId name toolKind: kind title arguments parentMessageId }
  ... on ToolArgumentsDeltaEvent { toolCallId delta }
  ... on ToolFinishedEvent { toolCallId result truncated resultRef }
  ... on ToolErrorEvent { toolCallId code message retryable }
  ... on InterruptRequestedEvent {
    interruptId kind prompt revision deadline
    fields { name label kind required choices }
    calls { toolCallId name arguments allowed }
  }
  ... on NamespaceEnteredEvent { childId name parentToolCallId }
  ... on NamespaceExitedEvent { childId outcome }
  ... on PlanUpdatedEvent { entries { content status priority } }
  ... on WarningEvent { code message details }
  ... on UsageUpdatedEvent { usage { inputTokens outputTokens cachedInputTokens reasoningTokens cost currency final } }
  ... on RunFinishedEvent { outcome stopReason thread { durability revision } }
  ... on RunInterruptedEvent { interruptId reason thread { durability revision } }
  ... on RunCancelledEvent { reason sideEffects thread { durability revision } }
  ... on RunErrorEvent { error { code message category retryable retryAfterMs sideEffects } thread { durability revision } }
}`

// Event is one event as a client got it. Only the fields of its type are set.
type Event struct {
	RunID     string    `json:"runId"`
	Sequence  int64     `json:"sequence"`
	Time      time.Time `json:"time"`
	Namespace []string  `json:"namespace"`
	Type      string    `json:"type"`

	HarnessID         string          `json:"harnessId"`
	AgentVersion      int64           `json:"agentVersion"`
	SandboxGeneration int64           `json:"sandboxGeneration"`
	Isolation         string          `json:"isolation"`
	Continues         string          `json:"continues"`
	Generation        int64           `json:"generation"`
	MessageID         string          `json:"messageId"`
	Delta             string          `json:"delta"`
	ToolCallID        string          `json:"toolCallId"`
	Name              string          `json:"name"`
	Arguments         json.RawMessage `json:"arguments"`
	Result            string          `json:"result"`
	Truncated         bool            `json:"truncated"`
	ChildID           string          `json:"childId"`
	Outcome           string          `json:"outcome"`
	Entries           []PlanEntry     `json:"entries"`
	Usage             *Usage          `json:"usage"`
	InterruptID       string          `json:"interruptId"`
	Revision          int64           `json:"revision"`
	Kind              string          `json:"kind"`   // of an interrupt
	Prompt            string          `json:"prompt"` // of an interrupt
	Fields            []FormField     `json:"fields"`
	Calls             []ApprovalCall  `json:"calls"`
	Deadline          *time.Time      `json:"deadline"`
	Code              string          `json:"code"`
	Message           string          `json:"message"`
	StopReason        string          `json:"stopReason"`
	Reason            string          `json:"reason"`
	SideEffects       string          `json:"sideEffects"`
	Failure           *Failure        `json:"error"`
	Thread            *Thread         `json:"thread"`

	whole []byte // as it came
}

// Failure is the error of a failed run.
type Failure struct {
	Code        string `json:"code"`
	Message     string `json:"message"`
	Category    string `json:"category"`
	Retryable   bool   `json:"retryable"`
	SideEffects string `json:"sideEffects"`
}

// Thread is the thread state of a terminal.
type Thread struct {
	Durability string `json:"durability"`
	Revision   *int64 `json:"revision"`
}

// PlanEntry is one step of a plan.
type PlanEntry struct {
	Content  string `json:"content"`
	Status   string `json:"status"`
	Priority string `json:"priority"`
}

// Usage is consumption; nil is unknown.
type Usage struct {
	InputTokens       *int64   `json:"inputTokens"`
	OutputTokens      *int64   `json:"outputTokens"`
	CachedInputTokens *int64   `json:"cachedInputTokens"`
	ReasoningTokens   *int64   `json:"reasoningTokens"`
	Cost              *float64 `json:"cost"`
	Currency          string   `json:"currency"`
	Final             bool     `json:"final"`
}

// UnmarshalJSON keeps, beside the typed fields, everything that came.
func (e *Event) UnmarshalJSON(raw []byte) error {
	type plain Event
	if err := json.Unmarshal(raw, (*plain)(e)); err != nil {
		return err
	}
	e.whole = bytes.Clone(raw)
	return nil
}

// Terminal reports whether the event ends its run.
func (e Event) Terminal() bool { return slices.Contains(terminals, e.Type) }

// String is everything that came, in canonical form: two readings of one event give the same.
func (e Event) String() string {
	d := json.NewDecoder(bytes.NewReader(e.whole))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return string(e.whole)
	}
	canonical, err := json.Marshal(tree) // map keys are sorted
	if err != nil {
		return string(e.whole)
	}
	return string(canonical)
}
