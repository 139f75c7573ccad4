package session

import (
	"errors"
	"fmt"
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
	// ErrUnchanged: the binding already is what the transition would make of it; there is nothing to write.
	ErrUnchanged = errors.New("session: unchanged")
)

// BusyError: another run is active, or one of an older epoch is still draining.
type BusyError struct{ Run string }

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

// Admit makes run the active one under a new lease of owner and pins the version where the epoch has none yet. A run
// that is active already is ErrUnchanged; any other active or draining run is *BusyError.
func Admit(b Binding, run, owner string, pin Pin, op Op) (Binding, error) {
	if b.Active != nil {
		if b.Active.Run == run {
			return b, ErrUnchanged
		}
		return b, &BusyError{Run: b.Active.Run}
	}
	n := b.next(op)
	n.LeaseGen++
	if n.AgentVersion == 0 {
		n.AgentVersion, n.Harness = pin.AgentVersion, pin.Harness
	}
	n.Active = &Active{Run: run, Ord: n.NextOrd, Epoch: n.Epoch, Pin: Pin{n.AgentVersion, n.Harness}, Gen: n.LeaseGen, Owner: owner}
	n.NextOrd++
	return n, nil
}

// Claim takes the active run over under a higher lease generation.
func Claim(b Binding, run, owner string, op Op) (Binding, error) {
	if b.Active == nil || b.Active.Run != run {
		return b, ErrNotActive
	}
	n := b.next(op)
	n.LeaseGen++
	active := *b.Active
	active.Gen, active.Owner, active.Beat = n.LeaseGen, owner, 0
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

// Finish frees the binding after the run's terminal is in its log. ErrUnchanged when the run is not active (it was
// freed before); ErrFenced when another engine holds it. A draining run takes its epoch's worker with it.
func Finish(b Binding, l Lease, op Op) (Binding, error) {
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
	return n, nil
}

// Clear begins a new epoch: nothing is pinned, queued or remembered. A run that is active drains: the binding is busy
// until its terminal is logged, and the worker stays with it.
func Clear(b Binding, op Op) Binding {
	n := b.next(op)
	n.Epoch++
	n.AgentVersion, n.Harness = 0, ""
	n.Queue = nil
	n.Head = Head{}
	if n.Active != nil {
		n.Draining = n.Active.Run
	} else {
		n.Sandbox = nil
	}
	return n
}

// Check verifies the invariants of a binding document; it is what `verify` and the property tests ask.
func (b Binding) Check() error {
	switch {
	case b.ID == "" || b.Rev < 1 || b.Epoch < 1 || b.NextOrd < 1:
		return fmt.Errorf("session %q: id, revision, epoch or order is missing", b.ID)
	case b.Active != nil && (b.Active.Run == "" || b.Active.Gen > b.LeaseGen || b.Active.Gen < 1):
		return fmt.Errorf("session %s: active run has lease generation %d of %d", b.ID, b.Active.Gen, b.LeaseGen)
	case b.Active != nil && (b.Active.Ord < 1 || b.Active.Ord >= b.NextOrd):
		return fmt.Errorf("session %s: active run has order %d, next is %d", b.ID, b.Active.Ord, b.NextOrd)
	case b.Active != nil && (b.Draining != "") != (b.Active.Epoch < b.Epoch):
		return fmt.Errorf("session %s: active run of epoch %d, binding of %d, draining %q", b.ID, b.Active.Epoch, b.Epoch, b.Draining)
	case b.Active != nil && b.Active.Pin.AgentVersion == 0:
		return fmt.Errorf("session %s: active run without a pinned version", b.ID)
	case b.Draining != "" && (b.Active == nil || b.Active.Run != b.Draining):
		return fmt.Errorf("session %s: draining %s, which is not active", b.ID, b.Draining)
	case b.Sandbox != nil && (b.Sandbox.Gen < 1 || b.Sandbox.Gen > b.SandboxGen || b.Sandbox.Addr == ""):
		return fmt.Errorf("session %s: worker generation %d of %d", b.ID, b.Sandbox.Gen, b.SandboxGen)
	}
	return nil
}
