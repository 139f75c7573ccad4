package run

import (
	"encoding/json"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/event"
)

// Projection is what a run's log says of the run, for whoever compares documents with logs. The zero value is of an empty log.
type Projection struct{ p projection }

// Add takes the next event of the log.
func (p *Projection) Add(e event.Event) { p.p.add(e) }

// Into writes what the whole log of an ended run says into its document, as the engine does when it projects the terminal:
// what became of an interrupt is the session's to say, and stays. So does what the run left open, which the log says only together
// with those of the runs that it goes on from.
func (p *Projection) Into(r *Run) error {
	if p.p.terminal.Data == nil {
		return fmt.Errorf("failed to project run %s: its log has no terminal", r.ID)
	}
	raw, err := event.Encode(p.p.terminal)
	if err != nil {
		return fmt.Errorf("failed to project run %s: %w", r.ID, err)
	}
	p.p.raw = raw
	before := r.Interrupt
	r.Interrupt, r.Halted = nil, nil
	p.p.into(r)
	if r.Interrupt != nil && before != nil {
		r.Interrupt.Settled, r.Interrupt.ResumedBy, r.Interrupt.Open = before.Settled, before.ResumedBy, before.Open
	}
	return nil
}

// TerminalOfHead is the type of the terminal that goes with a committed head; empty where the head carries none.
func TerminalOfHead(raw json.RawMessage) (event.Type, error) {
	if len(raw) == 0 {
		return "", nil
	}
	var e ending
	if err := json.Unmarshal(raw, &e); err != nil {
		return "", fmt.Errorf("failed to decode the terminal of a head: %w", err)
	}
	b, err := e.batch()
	if err != nil {
		return "", err
	}
	if len(b.Events) == 0 {
		return "", nil
	}
	return b.Events[len(b.Events)-1].Type(), nil
}
