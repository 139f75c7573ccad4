package run_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// leave lets an engine go in mid-run, as its death does, as far as the store and the worker can tell.
func (e *engine) leave() {
	e.t.Helper()
	if err := e.Drain(e.ctx); err != nil {
		e.t.Fatal(err)
	}
}

func TestTakeover(t *testing.T) {
	w := newWorld(t)
	e1 := w.boot(run.Limits{})
	r := w.start(e1, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e1.begun(r)
	wk.say(r.ID, event.TextStarted{MessageID: "m", Role: "assistant"}, event.TextDelta{MessageID: "m", Delta: "one "})
	e1.leave()
	wk.say(r.ID, event.TextDelta{MessageID: "m", Delta: "two "})

	e2 := w.boot(run.Limits{})
	if err := e2.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	wk.say(r.ID, event.TextDelta{MessageID: "m", Delta: "three"}, done)
	events := e2.events(r.ID)
	r = w.settled(r.ID)
	if r.Status != run.StatusFinished || r.Output[0].Text != "one two three" {
		t.Fatalf("after takeover: %s, %+v", r.Status, r.Output)
	}
	if n := w.host.begun(r.ID); n != 1 {
		t.Fatalf("the turn was started %d times", n)
	}
	var recovered int
	for i, ev := range events {
		if ev.Sequence != int64(i+1) {
			t.Fatalf("event %d has sequence %d", i, ev.Sequence)
		}
		if d, ok := ev.Data.(event.RunRecovered); ok {
			recovered++
			if d.Generation != 2 {
				t.Fatalf("recovered under generation %d", d.Generation)
			}
		}
	}
	if recovered != 1 {
		t.Fatalf("%d fences in %s", recovered, types(events))
	}
}

func TestTakeoverWithoutItsWorker(t *testing.T) {
	w := newWorld(t)
	e1 := w.boot(run.Limits{})
	r := w.start(e1, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e1.begun(r)
	e1.leave()
	wk.kill()
	e2 := w.boot(run.Limits{})
	if err := e2.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	if end := last[event.RunError](t, e2.events(r.ID)); end.Code != "worker_lost" || end.SideEffects != event.SideEffectsPossible {
		t.Fatalf("ended as %+v", end)
	}
	w.settled(r.ID)
	e2.events(w.start(e2, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
}

// TestTwoOwners takes a run over from an engine that still lives: the loser stops, and cancels nothing.
func TestTwoOwners(t *testing.T) {
	w := newWorld(t)
	e1 := w.boot(run.Limits{})
	r := w.start(e1, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e1.begun(r)
	e2 := w.boot(run.Limits{})
	if err := e2.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.eventually(func() bool { // until the fence is in the log
		tail, err := w.store.Tail(w.ctx, r.ID)
		return err == nil && tail.Gen == 2
	})
	wk.say(r.ID, event.TextStarted{MessageID: "m", Role: "assistant"}, event.TextDelta{MessageID: "m", Delta: "x"}, done)
	events := e2.events(r.ID)
	last[event.RunFinished](t, events)
	if got := types(events); strings.Count(got, "text.delta") != 1 || strings.Count(got, "run.recovered") != 1 {
		t.Fatalf("events: %s", got)
	}
	w.settled(r.ID)
	if len(w.host.destroyed) != 0 {
		t.Fatalf("destroyed %v", w.host.destroyed)
	}
}

func TestCancelSurvivesItsEngine(t *testing.T) {
	w := newWorld(t)
	e1 := w.boot(run.Limits{CancelGrace: time.Hour})
	r := w.start(e1, run.StartRequest{Text: "deaf", ConversationID: "c"})
	wk := e1.begun(r)
	if _, err := e1.Cancel(w.ctx, r.ID); err != nil {
		t.Fatal(err)
	}
	e1.leave()
	wk.mu.Lock()
	wk.deaf = false
	wk.mu.Unlock()
	e2 := w.boot(run.Limits{})
	if err := e2.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	last[event.RunCancelled](t, e2.events(r.ID))
}

func TestRecoverCutOffAdmissions(t *testing.T) {
	w := newWorld(t)
	digest := "d"
	insert := func(key string, onBinding bool) run.Run {
		t.Helper()
		r := run.Run{ID: id.New(id.Run), Rev: 1, Status: run.StatusAdmitting, Environment: "test", Subject: "alice", AgentID: w.agent.ID,
			SessionID: id.New(id.Session), Input: run.Input{Text: "hello"}, IdempotencyKey: key, RequestDigest: digest, CreatedAt: time.Now()}
		if err := w.store.InsertRun(w.ctx, r); err != nil {
			t.Fatal(err)
		}
		if onBinding {
			b := session.New(r.SessionID, session.Key{Environment: "test", Subject: "alice", AgentID: w.agent.ID, ConversationID: r.ID}, session.Op{ID: "x", Now: time.Now()})
			if err := w.store.InsertSession(w.ctx, b); err != nil {
				t.Fatal(err)
			}
			b, err := session.Admit(b, r.ID, "dead engine", session.Pin{AgentVersion: 1, Harness: "scripted"}, session.Reject, session.Op{ID: "y", Now: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.store.UpdateSession(w.ctx, b); err != nil {
				t.Fatal(err)
			}
		}
		return r
	}
	lost, keyed, bound := insert("", false), insert("k", false), insert("", true)
	e := w.boot(run.Limits{})
	if err := e.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	last[event.RunFinished](t, e.events(bound.ID))
	if r := w.settled(bound.ID); r.Status != run.StatusFinished || r.Ord != 1 {
		t.Fatalf("on its binding: %+v", r)
	}
	if r, err := w.store.Run(w.ctx, lost.ID); err != nil || r.Status != run.StatusRejected {
		t.Fatalf("without key: %+v, %v", r, err)
	}
	if r, err := w.store.Run(w.ctx, keyed.ID); err != nil || r.Status != run.StatusAdmitting {
		t.Fatalf("with key: %+v, %v", r, err)
	}

	// Cleared between its admission and its being queued, by an engine that died before it cancelled.
	cleared := insert("", true)
	b, err := w.store.Session(w.ctx, cleared.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	b, _ = session.Clear(b, session.Op{ID: "z", Now: time.Now()})
	if err := w.store.UpdateSession(w.ctx, b); err != nil {
		t.Fatal(err)
	}
	e.leave()
	e = w.boot(run.Limits{})
	if err := e.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	if end := last[event.RunCancelled](t, e.events(cleared.ID)); end.Reason != event.CancelSessionCleared {
		t.Fatalf("cleared run ended as %+v", end)
	}
	w.settled(cleared.ID)

	w.allowed = false
	denied := insert("", true)
	e.leave()
	e2 := w.boot(run.Limits{})
	if err := e2.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	if end := last[event.RunError](t, e2.events(denied.ID)); end.Category != event.CategoryAuthorization {
		t.Fatalf("denied run ended as %+v", end)
	}
	if w.host.begun(denied.ID) != 0 {
		t.Fatal("a run was dispatched without permission")
	}
}

// TestRecoverBetweenSteps puts the store where a crash between two steps of a turn's end leaves it.
func TestRecoverBetweenSteps(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
	e.events(r.ID)
	r = w.settled(r.ID)
	e.leave()

	// Terminal logged, run not projected, binding not freed.
	unproject := func() {
		t.Helper()
		r.Rev++
		r.Status, r.Output, r.Terminal = run.StatusRunning, nil, json.RawMessage(nil)
		if err := w.store.UpdateRun(w.ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	unproject()
	b, err := w.store.Session(w.ctx, r.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	b.Rev++
	b.LeaseGen++
	b.Active = &session.Active{Run: r.ID, Ord: 1, Epoch: 1, Pin: session.Pin{AgentVersion: 1, Harness: "scripted"}, Gen: b.LeaseGen}
	if err := w.store.UpdateSession(w.ctx, b); err != nil {
		t.Fatal(err)
	}
	e = w.boot(run.Limits{})
	if err := e.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	if r = w.settled(r.ID); r.Status != run.StatusFinished || r.Output[0].Text != "hi there" {
		t.Fatalf("projected as %+v", r)
	}
	e.leave()

	// Binding freed, but the projection was lost.
	unproject()
	e = w.boot(run.Limits{})
	if err := e.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	if r = w.settled(r.ID); r.Status != run.StatusFinished {
		t.Fatalf("projected as %+v", r)
	}
	if len(e.events(r.ID)) != 6 {
		t.Fatal("recovery changed an ended log")
	}
}
