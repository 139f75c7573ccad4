package worker

import (
	"time"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// DefaultParkedTTL is how long a worker whose turn is parked lives without any call or open stream.
const DefaultParkedTTL = 24 * time.Hour

// parkedRun is the interrupted run whose native call waits in this process, or empty. The caller holds h.mu.
func (h *Host) parkedRun() string {
	if p, ok := h.driver.(Parker); ok && h.interrupted != "" && h.abandoning == nil && !h.stuck && p.Parked() {
		return h.interrupted
	}
	return ""
}

// parks reports whether something is parked.
func (h *Host) parks() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.parkedRun() != ""
}

// resumable refuses a turn that goes on with another interrupt than the one that this worker knows of. A worker that knows
// of none leaves it to the driver, whose interrupts may survive a process. The caller holds h.mu.
func (h *Host) resumable(r *harness.Resume) *Error {
	if r != nil && (h.abandoning != nil || h.interrupted != "" && h.interrupted != r.RunID) {
		return &Error{Code: CodeInterruptLost, Message: "what waited for the decision is not here any more"}
	}
	return nil
}

// abandon ends what is parked for the run, if it is, by ending the driver's processes, and returns what is closed when
// that is over; nil when there is nothing to end. The caller holds h.mu.
func (h *Host) abandon(runID string) <-chan struct{} {
	if h.abandoning != nil {
		return h.abandoning
	}
	if h.active != nil || runID == "" || h.parkedRun() != runID {
		return nil
	}
	over := make(chan struct{})
	h.abandoning = over
	go func() {
		defer close(over)
		if err := h.tree.KillAll(); err != nil {
			h.o.Log.Error("failed to end processes of a parked turn", "run", runID, "error", err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.interrupted, h.abandoning = "", nil
	}()
	return over
}
