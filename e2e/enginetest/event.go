package enginetest

import (
	"bytes"
	"fmt"

	"github.com/harness-engine/harness-engine/internal/client"
)

// Event types that the tools of this package look at; the others are only compared.
const (
	RunStarted         = client.RunStarted
	RunRecovered       = client.RunRecovered
	TextStarted        = client.TextStarted
	TextDelta          = client.TextDelta
	TextFinished       = client.TextFinished
	ReasoningDelta     = client.ReasoningDelta
	ReasoningFinished  = client.ReasoningFinished
	ToolStarted        = client.ToolStarted
	ToolFinished       = client.ToolFinished
	ToolError          = client.ToolError
	InterruptRequested = client.InterruptRequested
	Warning            = client.Warning
	UsageUpdated       = client.UsageUpdated
	PlanUpdated        = client.PlanUpdated
	RunFinished        = client.RunFinished
	RunInterrupted     = client.RunInterrupted
	RunCancelled       = client.RunCancelled
	RunFailed          = client.RunFailed
)

// Event is one event as a client got it.
type Event = client.Event

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
		case e.String() != w.String():
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
