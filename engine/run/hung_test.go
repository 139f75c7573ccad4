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

// TestCancelOfDeafWorker: a worker that has not even heard of the cancel does not get the time that one gets which has, in
// whatever call it hangs. It is ended before the terminal is logged.
func TestCancelOfDeafWorker(t *testing.T) {
	ended := func(t *testing.T, e *engine, r run.Run) {
		t.Helper()
		if _, err := e.Cancel(e.ctx, r.ID); err != nil {
			t.Fatal(err)
		}
		if end := last[event.RunCancelled](t, e.events(r.ID)); end.SideEffects != event.SideEffectsPossible {
			t.Fatalf("cancelled as %+v", end)
		}
		if e.host.only() != nil {
			t.Fatal("the terminal is logged, and the worker lives")
		}
		e.settled(r.ID)
		last[event.RunFinished](t, e.events(e.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID))
	}
	patient := run.Limits{CancelGrace: time.Hour, ReconnectFor: time.Hour}
	t.Run("in the cancel", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		e := w.boot(patient)
		r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
		e.begun(r).hang()
		ended(t, e, r)
	})
	t.Run("in a reconnect", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		e := w.boot(patient)
		r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
		wk := e.begun(r)
		hung := wk.hang()
		wk.mu.Lock()
		wk.cut = true
		wk.change()
		wk.mu.Unlock()
		<-hung
		ended(t, e, r)
	})
	t.Run("in the start of the turn", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		e := w.boot(patient)
		w.host.born = func(wk *worker) { wk.hang() }
		r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
		w.eventually(func() bool { return w.host.only() != nil })
		w.eventually(func() bool { r, err := w.store.Run(w.ctx, r.ID); return err == nil && r.Status == run.StatusRunning })
		w.host.born = nil
		ended(t, e, r)
	})
	t.Run("in the attach of a later engine", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		e := w.boot(patient)
		r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
		wk := e.begun(r)
		e.leave()
		hung := wk.hang()
		e = w.boot(patient)
		if err := e.Recover(w.ctx); err != nil {
			t.Fatal(err)
		}
		<-hung
		ended(t, e, r)
	})
}

// TestCancelIsRepeated: a worker that could not be reached for a moment hears of the cancel when it is back.
func TestCancelIsRepeated(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{CancelGrace: time.Hour, ReconnectFor: time.Hour})
	r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e.begun(r)
	wk.mu.Lock()
	wk.refuses = true
	wk.mu.Unlock()
	if _, err := e.Cancel(w.ctx, r.ID); err != nil {
		t.Fatal(err)
	}
	if end := last[event.RunCancelled](t, e.events(r.ID)); end.SideEffects != event.SideEffectsNone {
		t.Fatalf("cancelled as %+v", end)
	}
	w.settled(r.ID)
}

// hang makes the worker take calls that attach, start, read or cancel, and answer none. The channel is closed at the first one.
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
