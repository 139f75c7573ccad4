package session

import "fmt"

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
	case len(b.Queue) > MaxQueue:
		return fmt.Errorf("session %s: %d runs are queued, at most %d", b.ID, len(b.Queue), MaxQueue)
	case b.Active == nil && b.Pending == nil && len(b.Queue) > 0:
		return fmt.Errorf("session %s: %d runs are queued and nothing is ahead of them", b.ID, len(b.Queue))
	case b.Active != nil && b.Pending != nil && b.Pending.Run != b.Active.Run:
		return fmt.Errorf("session %s: run %s is active while interrupt %s waits", b.ID, b.Active.Run, b.Pending.Interrupt)
	case b.Pending != nil && b.Decided != nil && b.Decided.Interrupt == b.Pending.Interrupt:
		return fmt.Errorf("session %s: interrupt %s waits and is decided", b.ID, b.Pending.Interrupt)
	case b.Sandbox != nil && (b.Sandbox.Gen < 1 || b.Sandbox.Gen > b.SandboxGen || b.Sandbox.Addr == ""):
		return fmt.Errorf("session %s: worker generation %d of %d", b.ID, b.Sandbox.Gen, b.SandboxGen)
	}
	seen := map[string]bool{}
	for _, q := range b.Queue {
		if q.Run == "" || seen[q.Run] || (b.Active != nil && b.Active.Run == q.Run) {
			return fmt.Errorf("session %s: run %q is queued twice, or active too", b.ID, q.Run)
		}
		seen[q.Run] = true
	}
	return nil
}
