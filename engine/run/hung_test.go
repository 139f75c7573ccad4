package run_test

import (
	"context"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
)

// TestCancelWhileWorkerHangs: a worker that is there and does not answer must not hold a cancel up.
func TestCancelWhileWorkerHangs(t *testing.T) {
	t.Run("in the turn", func(t *testing.T) {
		w := newWorld(t)
		e := w.boot(run.Limits{CancelGrace: 30 * time.Millisecond})
		r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
		e.begun(r).hang()
		if _, err := e.Cancel(w.ctx, r.ID); err != nil {
			t.Fatal(err)
		}
		if end := last[event.RunCancelled](t, e.events(r.ID)); end.SideEffects != event.SideEffectsPossible {
			t.Fatalf("cancelled as %+v", end)
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
		attached := w.host.only().hang()
		r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
		select {
		case <-attached:
		case <-w.ctx.Done():
			t.Fatal("the worker was not asked")
		}
		if _, err := e.Cancel(w.ctx, r.ID); err != nil {
			t.Fatal(err)
		}
		events := e.events(r.ID)
		if end := last[event.RunCancelled](t, events); len(events) != 2 || end.SideEffects != event.SideEffectsNone {
			t.Fatalf("cancelled as %+v", events)
		}
		w.settled(r.ID)
	})
}

// hang makes the worker take calls that attach or cancel, and answer none. The channel is closed at the first one.
func (w *worker) hang() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hung = make(chan struct{})
	return w.hung
}

// answer returns when a call gets an answer, or with the caller's patience.
func (w *worker) answer(ctx context.Context) error {
	w.mu.Lock()
	if w.hung == nil {
		w.mu.Unlock()
		return nil
	}
	select {
	case <-w.hung:
	default:
		close(w.hung)
	}
	w.mu.Unlock()
	<-ctx.Done()
	return context.Cause(ctx)
}
