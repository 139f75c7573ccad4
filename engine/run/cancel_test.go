package run_test

import (
	"slices"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

func TestCancel(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		grace   time.Duration
		effects event.SideEffects
	}{
		"obeyed": {"wait", time.Hour, event.SideEffectsNone}, "not obeyed": {"deaf", 30 * time.Millisecond, event.SideEffectsPossible},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			e := w.boot(run.Limits{CancelGrace: c.grace})
			r := w.start(e, run.StartRequest{Text: c.text, ConversationID: "c"})
			e.begun(r)
			for range 2 {
				if _, err := e.Cancel(w.ctx, r.ID); err != nil {
					t.Fatal(err)
				}
			}
			end := last[event.RunCancelled](t, e.events(r.ID))
			if end.Reason != event.CancelClientRequest || end.SideEffects != c.effects {
				t.Fatalf("cancelled as %+v", end)
			}
			if r = w.settled(r.ID); r.Status != run.StatusCancelled {
				t.Fatalf("projected as %s", r.Status)
			}
			e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
			if r, err := e.Cancel(w.ctx, r.ID); err != nil || r.Status != run.StatusCancelled {
				t.Fatalf("cancel after the end: %v, %v", r.Status, err)
			}
		})
	}
	w := newWorld(t)
	_, err := w.boot(run.Limits{}).Cancel(w.ctx, "run_none")
	wantCode(t, err, problem.NotFound)
}

func TestDeadline(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{MaxRunDuration: 50 * time.Millisecond})
	r := w.start(e, run.StartRequest{Text: "wait"})
	if end := last[event.RunCancelled](t, e.events(r.ID)); end.Reason != event.CancelDeadline {
		t.Fatalf("ended as %+v", end)
	}
}

func TestClear(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	say := func() run.Run {
		t.Helper()
		r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
		e.events(r.ID)
		return w.settled(r.ID)
	}
	first := say()
	w.version(2)
	if r := say(); r.AgentVersion != 1 {
		t.Fatalf("the conversation moved to version %d", r.AgentVersion)
	}
	b, err := e.Clear(w.ctx, first.SessionID)
	if err != nil || b.Epoch != 2 {
		t.Fatalf("cleared to %+v, %v", b, err)
	}
	if !slices.Contains(w.host.forgotten, first.SessionID+"/1") || w.host.only() != nil {
		t.Fatalf("forgotten %v, worker %v", w.host.forgotten, w.host.only())
	}
	r := say()
	if r.AgentVersion != 2 || r.Epoch != 2 || r.SessionID != first.SessionID {
		t.Fatalf("after clear: %+v", r)
	}

	// Clear under an active run: it is cancelled, and only then may the next epoch begin.
	r = w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	e.begun(r)
	if b, err = e.Clear(w.ctx, r.SessionID); err != nil || b.Epoch != 3 {
		t.Fatalf("cleared to %+v, %v", b, err)
	}
	if end := last[event.RunCancelled](t, e.events(r.ID)); end.Reason != event.CancelSessionCleared {
		t.Fatalf("ended as %+v", end)
	}
	w.settled(r.ID)
	w.eventually(func() bool {
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		return slices.Contains(w.host.forgotten, r.SessionID+"/2")
	})
	if r = say(); r.Epoch != 3 {
		t.Fatalf("after the second clear: %+v", r)
	}
	_, err = e.Clear(w.ctx, "ses_none")
	wantCode(t, err, problem.NotFound)
}

// TestClearedStatesAreRemoved: what an engine that died did not get to forget goes with the next worker, or the next clear.
func TestClearedStatesAreRemoved(t *testing.T) {
	w := newWorld(t)
	w.host.keeps = true
	e := w.boot(run.Limits{})
	say := func() run.Run {
		t.Helper()
		r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
		e.events(r.ID)
		w.eventually(func() bool { return w.binding(r.SessionID).Active == nil })
		return r
	}
	dies := func(sessionID string) { // when the clear is written, and before anything is forgotten
		t.Helper()
		if _, err := session.Mutate(w.ctx, w.store, sessionID, time.Now, func(b session.Binding, op session.Op) (session.Binding, error) {
			n, _ := session.Clear(b, op)
			return n, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	r := say()
	dies(r.SessionID)
	dies(r.SessionID)
	if say(); w.blobs.count() != 1 {
		t.Fatalf("%d states are stored after the next turn, want its own", w.blobs.count())
	}
	dies(r.SessionID)
	if _, err := e.Clear(w.ctx, r.SessionID); err != nil || w.blobs.count() != 0 {
		t.Fatalf("%d states are stored after the next clear (%v), want none", w.blobs.count(), err)
	}
}

func TestIdleWorkerIsRetired(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{IdleWorker: 20 * time.Millisecond})
	r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
	e.events(r.ID)
	w.eventually(func() bool { return w.host.only() == nil })
	b, err := w.store.Session(w.ctx, r.SessionID)
	if err != nil || b.Sandbox != nil {
		t.Fatalf("binding %+v, %v", b, err)
	}
	e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
}

// TestClearedBeforeItsTurn: the engine died between the log of a run's start and the start of its turn, and the conversation
// was cleared meanwhile. The turn is not begun any more, and nothing of the next epoch's state is asked for.
func TestClearedBeforeItsTurn(t *testing.T) {
	w := newWorld(t)
	w.host.keeps = true
	e1 := w.boot(run.Limits{})
	e1.events(w.start(e1, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
	r := w.start(e1, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e1.begun(r)
	e1.leave()
	wk.mu.Lock()
	delete(wk.runs, r.ID) // as if it had not heard of the run
	wk.mu.Unlock()
	if _, err := session.Mutate(w.ctx, w.store, r.SessionID, time.Now, func(b session.Binding, op session.Op) (session.Binding, error) {
		n, _ := session.Clear(b, op)
		return n, nil
	}); err != nil {
		t.Fatal(err)
	}
	e2 := w.boot(run.Limits{})
	if err := e2.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	if end := last[event.RunCancelled](t, e2.events(r.ID)); end.Reason != event.CancelSessionCleared || end.SideEffects != event.SideEffectsNone {
		t.Fatalf("ended as %+v", end)
	}
	w.settled(r.ID)
	if n := w.host.begun(r.ID); n != 1 {
		t.Fatalf("the turn was begun %d times", n)
	}
	last[event.RunFinished](t, e2.events(w.start(e2, run.StartRequest{Text: "hello", ConversationID: "c"}).ID))
}
