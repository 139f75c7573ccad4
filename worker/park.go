package worker

import (
	"context"
	"errors"
	"time"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// DefaultParkedTTL is how long a worker whose turn is parked lives without any call or open stream.
const DefaultParkedTTL = 24 * time.Hour

// abandonTime bounds how long a driver may take to end what is parked; as long again is for it to return when its
// processes were ended.
const abandonTime = 5 * time.Second

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

// resumable checks that a turn that resumes finds what it goes on with. Where interrupts survive the process, the driver
// knows better. The caller holds h.mu.
func (h *Host) resumable(r *harness.Resume) *Error {
	if r == nil {
		return nil
	}
	_, parker := h.driver.(Parker)
	if parker && h.parkedRun() != r.RunID || !parker && h.interrupted != "" && h.interrupted != r.RunID {
		return &Error{Code: CodeInterruptLost, Message: "what waited for the decision is not here any more"}
	}
	return nil
}

// abandonment is the ending of a parked call while no turn runs.
type abandonment struct{ done chan struct{} }

// abandon ends what is parked for the run, if it is, and returns the abandonment to wait for, or nil. The caller holds
// h.mu.
func (h *Host) abandon(runID string) *abandonment {
	if h.abandoning != nil {
		return h.abandoning
	}
	if h.active != nil || runID == "" || h.parkedRun() != runID {
		return nil
	}
	a := &abandonment{done: make(chan struct{})}
	h.abandoning = a
	go func() {
		defer close(a.done)
		returned := h.endParked(h.driver.(Parker), runID)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.stuck = h.stuck || !returned
		h.interrupted, h.abandoning = "", nil
	}()
	return a
}

// endParked reports whether the driver returned.
func (h *Host) endParked(p Parker, runID string) bool {
	ctx, cancel := context.WithTimeoutCause(context.Background(), abandonTime, errors.New("it takes too long"))
	defer cancel()
	returned := make(chan error, 1)
	go func() { returned <- guarded(func() error { return p.Abandon(ctx) }) }()
	for _, last := range []bool{false, true} {
		timer := time.NewTimer(abandonTime)
		select {
		case err := <-returned:
			timer.Stop()
			if err != nil || p.Parked() {
				h.o.Log.Error("driver did not end what was parked, ending its processes", "run", runID, "error", err)
				h.killAll(runID)
			}
			return true
		case <-timer.C:
			if !last {
				h.killAll(runID)
			}
		}
	}
	h.o.Log.Error("driver does not return from ending what was parked", "run", runID)
	return false
}

func (h *Host) killAll(runID string) {
	if err := h.tree.KillAll(); err != nil {
		h.o.Log.Error("failed to end processes of a parked turn", "run", runID, "error", err)
	}
}
