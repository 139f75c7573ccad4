package run_test

import (
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
)

// TestWorkerClaimsAnotherOwner: the binding says who owns a run. A worker that was told of a higher lease by something
// beside it, which can read its secret, must not keep its conversation busy for ever.
func TestWorkerClaimsAnotherOwner(t *testing.T) {
	t.Run("in the turn", func(t *testing.T) {
		w := newWorld(t)
		e := w.boot(run.Limits{})
		r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
		e.begun(r).usurp()
		end := last[event.RunError](t, e.events(r.ID))
		if end.Code != "worker_lost" || end.SideEffects != event.SideEffectsPossible || end.Thread.Durability != event.DurabilityUncertain {
			t.Fatalf("ended as %+v", end)
		}
		w.settled(r.ID)
		e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
	})
	t.Run("before the turn", func(t *testing.T) {
		w := newWorld(t)
		e := w.boot(run.Limits{})
		first := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
		e.events(first.ID)
		w.settled(first.ID)
		w.host.only().usurp()
		r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
		last[event.RunFinished](t, e.events(r.ID))
		w.settled(r.ID)
		if w.host.started() != 2 || w.host.begun(r.ID) != 1 {
			t.Fatalf("%d workers, %d turns", w.host.started(), w.host.begun(r.ID))
		}
	})
}

// usurp tells the worker of an owner that is none.
func (w *worker) usurp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lease = 1 << 40
	w.change()
}
