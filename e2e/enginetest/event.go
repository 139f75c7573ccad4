package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Event types that the tools of this package look at; the others are only compared.
const (
	RunStarted        = "run.started"
	RunRecovered      = "run.recovered"
	TextStarted       = "text.started"
	TextDelta         = "text.delta"
	TextFinished      = "text.finished"
	ReasoningDelta    = "reasoning.delta"
	ReasoningFinished = "reasoning.finished"
	ToolStarted       = "tool.started"
	ToolFinished      = "tool.finished"
	ToolError         = "tool.error"
	Warning           = "warning"
	UsageUpdated      = "usage.updated"
	PlanUpdated       = "plan.updated"
	RunFinished       = "run.finished"
	RunInterrupted    = "run.interrupted"
	RunCancelled      = "run.cancelled"
	RunFailed         = "run.error"
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
	Generation        int64           `json:"generation"`
	MessageID         string          `json:"messageId"`
	Delta             string          `json:"delta"`
	ToolCallID        string          `json:"toolCallId"`
	Name              string          `json:"name"`
	Arguments         json.RawMessage `json:"arguments"`
	Result            string          `json:"result"`
	Code              string          `json:"code"`
	Message           string          `json:"message"`
	StopReason        string          `json:"stopReason"`
	Reason            string          `json:"reason"`
	SideEffects       string          `json:"sideEffects"`
	Failure           *Failure        `json:"error"`
	Thread            *Thread         `json:"thread"`

	whole string // everything that came, in canonical form
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

// UnmarshalJSON keeps, beside the typed fields, everything that came.
func (e *Event) UnmarshalJSON(raw []byte) error {
	type plain Event
	if err := json.Unmarshal(raw, (*plain)(e)); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return err
	}
	canonical, err := json.Marshal(tree) // map keys are sorted
	e.whole = string(canonical)
	return err
}

// Terminal reports whether the event ends its run.
func (e Event) Terminal() bool { return slices.Contains(terminals, e.Type) }

// String is the whole event.
func (e Event) String() string { return e.whole }

// Differences compares two readings of one log: what a client got against what it should have got. Lost events are
// those it should have got and did not, doubled those it got more than once, changed those that differ in anything.
type Differences struct {
	Lost, Doubled, Foreign, Changed, Disordered int
	First                                       string // description of the first difference
}

// None reports whether the readings are identical, event by event.
func (d Differences) None() bool { return d == Differences{} }

// String tells the counts and the first difference.
func (d Differences) String() string {
	return fmt.Sprintf("%d lost, %d doubled, %d foreign, %d changed, %d out of order: %s",
		d.Lost, d.Doubled, d.Foreign, d.Changed, d.Disordered, d.First)
}

func (d *Differences) note(count *int, format string, args ...any) {
	*count++
	if d.First == "" {
		d.First = fmt.Sprintf(format, args...)
	}
}

// Compare compares what a client got with what it should have got.
func Compare(got, want []Event) Differences {
	var d Differences
	due := make(map[int64]Event, len(want))
	for _, e := range want {
		due[e.Sequence] = e
	}
	seen := make(map[int64]int, len(got))
	var last int64
	for _, e := range got {
		seen[e.Sequence]++
		w, ok := due[e.Sequence]
		switch {
		case !ok:
			d.note(&d.Foreign, "sequence %d should not be there: %s", e.Sequence, e)
		case seen[e.Sequence] > 1:
			d.note(&d.Doubled, "sequence %d came %d times", e.Sequence, seen[e.Sequence])
		case e.whole != w.whole:
			d.note(&d.Changed, "sequence %d: got %s, want %s", e.Sequence, e, w)
		case e.Sequence < last:
			d.note(&d.Disordered, "sequence %d came after %d", e.Sequence, last)
		}
		last = e.Sequence
	}
	for _, e := range want {
		if seen[e.Sequence] == 0 {
			d.note(&d.Lost, "sequence %d is missing: %s", e.Sequence, e)
		}
	}
	return d
}

// CheckLog reports what is wrong with a whole log: sequences 1, 2, 3, ..., run.started first, one terminal, at the end.
func CheckLog(events []Event) error {
	if len(events) == 0 {
		return fmt.Errorf("the log is empty")
	}
	for i, e := range events {
		switch {
		case e.Sequence != int64(i)+1:
			return fmt.Errorf("event %d has sequence %d", i+1, e.Sequence)
		case (i == 0) != (e.Type == RunStarted):
			return fmt.Errorf("event %d is %s", i+1, e.Type)
		case e.Terminal() != (i == len(events)-1):
			return fmt.Errorf("event %d of %d is %s", i+1, len(events), e.Type)
		}
	}
	return nil
}

// Text joins the text deltas at the root, which is what the agent said.
func Text(events []Event) string { return join(events, TextDelta) }

// Reasoning joins the reasoning deltas at the root.
func Reasoning(events []Event) string { return join(events, ReasoningDelta) }

func join(events []Event, kind string) string {
	var b bytes.Buffer
	for _, e := range events {
		if e.Type == kind && len(e.Namespace) == 0 {
			b.WriteString(e.Delta)
		}
	}
	return b.String()
}

// Find returns the events of a type, in order.
func Find(events []Event, kind string) []Event {
	var out []Event
	for _, e := range events {
		if e.Type == kind {
			out = append(out, e)
		}
	}
	return out
}

// Last returns the last event, or the zero Event.
func Last(events []Event) Event {
	if len(events) == 0 {
		return Event{}
	}
	return events[len(events)-1]
}
