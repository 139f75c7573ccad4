package session

import (
	"encoding/json"
	"fmt"
	"time"
)

// Pending is the interrupt that the conversation waits for. It is written in the same update as the head from which
// the run can go on.
type Pending struct {
	Interrupt string          `json:"interrupt"` // id.OfInterrupt(Run)
	Run       string          `json:"run"`       // that it ended
	Revision  int64           `json:"revision"`
	Deadline  *time.Time      `json:"deadline,omitempty"`
	Request   json.RawMessage `json:"request"` // data of the interrupt.requested event
}

// Settlement says what became of an interrupt.
type Settlement string

// Settlements.
const (
	Resumed    Settlement = "RESUMED"
	Dismissed  Settlement = "DISMISSED"
	Expired    Settlement = "EXPIRED"
	Superseded Settlement = "SUPERSEDED" // by a new run of the conversation
	Cleared    Settlement = "CLEARED"
)

// Decided is the last interrupt that was settled.
type Decided struct {
	Interrupt string     `json:"interrupt"`
	Revision  int64      `json:"revision"`
	How       Settlement `json:"how"`
	Digest    string     `json:"digest,omitempty"` // of the decision, where it was RESUMED
	Run       string     `json:"run,omitempty"`    // that goes on, where it was RESUMED
}

// ConflictError: the interrupt does not wait for this decision.
type ConflictError struct {
	Interrupt string
	How       Settlement // what became of it; empty: not known here
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("session: interrupt %s does not wait for this decision (%s)", e.Interrupt, e.How)
}

// settle records what became of the pending interrupt.
func (n *Binding) settle(how Settlement) {
	n.Decided = &Decided{Interrupt: n.Pending.Interrupt, Revision: n.Pending.Revision, How: how}
	n.Pending = nil
}

// Commit writes the thread state of the active run's end, with the interrupt that the run ends in, if any. head is nil
// where the harness keeps no state. ErrUnchanged when it was written before; ErrCleared when the run drains: its thread
// belongs to nobody any more; ErrWorker when the state is not of the binding's worker or not the next revision.
func Commit(b Binding, l Lease, sandboxGen int64, head *Head, pending *Pending, op Op) (Binding, error) {
	if err := b.held(l); err != nil {
		return b, err
	}
	switch {
	case b.Draining != "":
		return b, ErrCleared
	case head != nil && b.Head.ByRun == l.Run && b.Head.Hash == head.Hash,
		head == nil && pending != nil && (b.Pending != nil && b.Pending.Run == l.Run || b.Decided != nil && b.Decided.Interrupt == pending.Interrupt):
		return b, ErrUnchanged
	case b.Head.ByRun == l.Run, b.Pending != nil && b.Pending.Run == l.Run: // a run has one end
		return b, ErrWorker
	case b.Sandbox == nil || b.Sandbox.Gen != sandboxGen, head != nil && head.Rev != b.Head.Rev+1, head != nil && head.ByRun != l.Run:
		return b, ErrWorker
	}
	n := b.next(op)
	if head != nil {
		n.Head = *head
	}
	n.Pending = pending
	return n, nil
}

// Resume takes the decision on a pending interrupt: run goes on from it, under a lease of owner. ErrUnchanged when the
// decision with this digest was taken before; *ConflictError when another was, or the interrupt does not wait any more.
func Resume(b Binding, interrupt string, revision int64, run, digest, owner string, op Op) (Binding, error) {
	if d := b.Decided; d != nil && d.Interrupt == interrupt {
		if d.How == Resumed && d.Revision == revision && d.Digest == digest && d.Run == run {
			return b, ErrUnchanged
		}
		return b, &ConflictError{Interrupt: interrupt, How: d.How}
	}
	switch p := b.Pending; {
	case p == nil || p.Interrupt != interrupt || p.Revision != revision:
		return b, &ConflictError{Interrupt: interrupt}
	case p.Deadline != nil && !op.Now.Before(*p.Deadline):
		return b, &ConflictError{Interrupt: interrupt, How: Expired}
	case b.Active != nil: // its run has not settled yet
		return b, &BusyError{Run: b.Active.Run}
	}
	n := b.next(op)
	n.settle(Resumed)
	n.Decided.Digest, n.Decided.Run = digest, run
	n.activate(Queued{Run: run}, owner)
	return n, nil
}

// Settle gives a pending interrupt up, and the conversation to the head of its queue. ErrUnchanged when it was settled
// that way before; *ConflictError when in another way, or it does not wait.
func Settle(b Binding, interrupt string, revision int64, how Settlement, owner string, op Op) (Binding, error) {
	if d := b.Decided; d != nil && d.Interrupt == interrupt {
		if d.How == how {
			return b, ErrUnchanged
		}
		return b, &ConflictError{Interrupt: interrupt, How: d.How}
	}
	if p := b.Pending; p == nil || p.Interrupt != interrupt || p.Revision != revision {
		return b, &ConflictError{Interrupt: interrupt}
	}
	n := b.next(op)
	n.settle(how)
	n.activateNext(owner)
	return n, nil
}
