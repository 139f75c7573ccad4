package session

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Op identifies one attempt to change a binding. Its id is stored with the revision that it makes, so that an unknown
// outcome is resolved by reading.
type Op struct {
	ID  string
	Now time.Time
}

// Errors of the transitions. The binding is unchanged then.
var (
	// ErrFenced: the lease generation is not the current one; the caller owns nothing any more.
	ErrFenced = errors.New("session: fenced by a higher lease generation")
	// ErrNotActive: the run is not the active one.
	ErrNotActive = errors.New("session: run is not active")
	// ErrCleared: the run's epoch is over; nothing of it is kept.
	ErrCleared = errors.New("session: epoch is over")
	// ErrWorker: the state is not of the worker that serves the binding, or does not follow the head.
	ErrWorker = errors.New("session: state of another worker or revision")
	// ErrUnchanged: the binding already is what the transition would make of it; there is nothing to write.
	ErrUnchanged = errors.New("session: unchanged")
)

// BusyError: another run is active or queued, or one of an older epoch is still draining.
type BusyError struct {
	Run  string
	Full bool // the queue has no room
}

func (e *BusyError) Error() string { return fmt.Sprintf("session: busy with %s", e.Run) }

// Lease names the holder of the right to append to a run's log.
type Lease struct {
	Run string
	Gen int64
}

// Pin is the agent version that an epoch stays on.
type Pin struct {
	AgentVersion int64  `json:"agentVersion"`
	Harness      string `json:"harness"`
}

// New makes the first revision of a binding.
func New(id string, key Key, op Op) Binding {
	return Binding{ID: id, Rev: 1, Key: key, Epoch: 1, NextOrd: 1, LastOp: op.ID, CreatedAt: op.Now, UpdatedAt: op.Now}
}

// next is b as the operation's new revision.
func (b Binding) next(op Op) Binding {
	b.Rev++
	b.LastOp = op.ID
	b.UpdatedAt = op.Now
	return b
}

// Lease returns the lease of the active run, and false when there is none.
func (b Binding) Lease() (Lease, bool) {
	if b.Active == nil {
		return Lease{}, false
	}
	return Lease{Run: b.Active.Run, Gen: b.Active.Gen}, true
}

// Policy says what becomes of a run that finds the conversation busy.
type Policy string

// Policies.
const (
	Reject    Policy = "REJECT"    // it is refused
	Enqueue   Policy = "ENQUEUE"   // it waits behind the others
	Interrupt Policy = "INTERRUPT" // it waits before the others, and the active run is to be cancelled
)

// Admit makes run the active one under a new lease of owner, or queues it as the policy says. An interrupt that waits
// for a decision is superseded by a run that becomes active; a run that is admitted by Enqueue waits for it. ErrUnchanged when the run is
// active or queued already, *BusyError when it is refused.
func Admit(b Binding, run, owner string, pin Pin, policy Policy, op Op) (Binding, error) {
	if b.holds(run) {
		return b, ErrUnchanged
	}
	waits := len(b.Queue) > 0 || b.Pending != nil && policy == Enqueue
	if b.Active == nil && (!waits || policy == Interrupt) {
		n := b.next(op)
		if n.Pending != nil {
			n.settle(Superseded)
		}
		n.activate(Queued{Run: run, Pin: pin}, owner)
		return n, nil
	}
	if policy == Reject || len(b.Queue) >= MaxQueue {
		return b, &BusyError{Run: b.ahead(), Full: policy != Reject}
	}
	n := b.next(op)
	if policy == Interrupt {
		n.Queue = append([]Queued{{Run: run, Pin: pin, Urgent: true}}, b.Queue...)
	} else {
		n.Queue = append(slices.Clone(b.Queue), Queued{Run: run, Pin: pin})
	}
	return n, nil
}

// holds says whether the run is active or queued.
func (b Binding) holds(run string) bool {
	return b.Active != nil && b.Active.Run == run || b.Queued(run) >= 0
}

// Claim takes the active run over under a higher lease generation.
func Claim(b Binding, run, owner string, op Op) (Binding, error) {
	if b.Active == nil || b.Active.Run != run {
		return b, ErrNotActive
	}
	n := b.next(op)
	n.LeaseGen++
	active := *b.Active
	active.Gen, active.Owner = n.LeaseGen, owner
	n.Active = &active
	return n, nil
}

// Reclaim raises the lease generation of a run that the caller holds already.
func Reclaim(b Binding, l Lease, op Op) (Binding, error) {
	if err := b.held(l); err != nil {
		return b, err
	}
	return Claim(b, l.Run, b.Active.Owner, op)
}

// held says whether the lease is the current one of the active run.
func (b Binding) held(l Lease) error {
	switch {
	case b.Active == nil || b.Active.Run != l.Run:
		return ErrNotActive
	case b.Active.Gen != l.Gen:
		return ErrFenced
	}
	return nil
}

// Replace raises the worker generation before the old worker is destroyed and the new one started. addr gives the
// new worker's address for its generation.
func Replace(b Binding, l Lease, addr func(gen int64) string, op Op) (Binding, error) {
	if err := b.held(l); err != nil {
		return b, err
	}
	n := b.next(op)
	n.SandboxGen++
	n.Sandbox = &Sandbox{Gen: n.SandboxGen, Addr: addr(n.SandboxGen)}
	return n, nil
}

// Discard raises the worker generation and leaves the binding without a worker, so that whatever the old one still
// does is stale. It is for the holder of the lease whose worker is lost or not to be trusted.
func Discard(b Binding, l Lease, op Op) (Binding, error) {
	if err := b.held(l); err != nil {
		return b, err
	}
	n := b.next(op)
	n.SandboxGen++
	n.Sandbox = nil
	return n, nil
}

// Retire takes the worker of generation gen off an idle binding. ErrUnchanged when it is another worker's turn or a
// run is active.
func Retire(b Binding, gen int64, op Op) (Binding, error) {
	if b.Active != nil || b.Sandbox == nil || b.Sandbox.Gen != gen {
		return b, ErrUnchanged
	}
	n := b.next(op)
	n.Sandbox = nil
	return n, nil
}

// Finish frees the binding after the run's terminal is in its log and gives it to the head of the queue, under a lease
// of owner. ErrUnchanged when the run is not active (it was freed before); ErrFenced when another engine holds it. A
// draining run takes its epoch's worker with it.
func Finish(b Binding, l Lease, owner string, op Op) (Binding, error) {
	switch err := b.held(l); {
	case errors.Is(err, ErrNotActive):
		return b, ErrUnchanged
	case err != nil:
		return b, err
	}
	n := b.next(op)
	if n.Draining != "" {
		n.Sandbox = nil
	}
	n.Active, n.Draining = nil, ""
	n.activateNext(owner)
	return n, nil
}

// GiveUp frees the binding of a run whose log is damaged, so that no terminal can be logged. It asks for no lease: the owner
// drives the run no more, and finds that it is not active. The worker is taken off under a higher generation, an interrupt of
// the run with it, and the head of the queue becomes active. ErrUnchanged when the run is not active.
func GiveUp(b Binding, run, owner string, op Op) (Binding, error) {
	if b.Active == nil || b.Active.Run != run {
		return b, ErrUnchanged
	}
	n := b.next(op)
	if n.Pending != nil && n.Pending.Run == run {
		n.settle(Superseded)
	}
	n.SandboxGen++
	n.Sandbox, n.Active, n.Draining = nil, nil, ""
	n.activateNext(owner)
	return n, nil
}

// Clear begins a new epoch: nothing is pinned, queued, asked or remembered. A run that is active drains: the binding is
// busy until its terminal is logged, and the worker stays with it. The runs that were queued are returned.
func Clear(b Binding, op Op) (Binding, []Dropped) {
	n := b.next(op)
	var dropped []Dropped
	for _, q := range b.Queue {
		dropped = append(dropped, n.drop(q))
	}
	if n.Pending != nil {
		n.settle(Cleared)
	}
	n.Epoch++
	n.AgentVersion, n.Harness = 0, ""
	n.Queue = nil
	n.Head = Head{}
	if n.Active != nil {
		n.Draining = n.Active.Run
	} else {
		n.Sandbox = nil
	}
	return n, dropped
}
