package run_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/replica"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// peers are the engines of a test that know of each other.
type peers struct {
	mu    sync.Mutex
	live  map[string]*engine
	deaf  bool // hints are lost
	hints []replica.Hint
}

func newPeers() *peers { return &peers{live: map[string]*engine{}} }

func (p *peers) join(e *engine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live[e.boot] = e
}

func (p *peers) all() []*engine {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.live))
}

// gone makes the others take the engine for gone, whether it is or not.
func (p *peers) gone(e *engine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, e.boot)
}

func (p *peers) Gone(boot string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live[boot] == nil
}

func (p *peers) Alone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.live) < 2
}

func (p *peers) Tell(h replica.Hint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hints = append(p.hints, h)
	if p.deaf {
		return
	}
	for _, e := range p.live {
		go e.Hinted(h)
	}
}

// watch runs what an engine does beside its requests.
func (e *engine) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); e.Run(ctx) }()
	e.t.Cleanup(func() { cancel(); <-done })
}

func (e *engine) sweep() {
	e.t.Helper()
	if err := e.Sweep(e.ctx); err != nil {
		e.t.Fatal(err)
	}
}

// TestSweepTakesOverWhatIsGone: a run of an engine that lives is left alone, one of an engine that is gone goes on.
func TestSweepTakesOverWhatIsGone(t *testing.T) {
	w := newWorld(t)
	w.peers = newPeers()
	e1, e2 := w.boot(run.Limits{}), w.boot(run.Limits{})
	r := w.start(e1, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e1.begun(r)
	e2.sweep()
	if b := w.binding(r.SessionID); b.Active.Owner != e1.boot || b.Active.Gen != 1 {
		t.Fatalf("a living engine lost its run: %+v", b.Active)
	}
	w.peers.gone(e1)
	e2.sweep()
	if b := w.binding(r.SessionID); b.Active.Owner != e2.boot || b.Active.Gen != 2 {
		t.Fatalf("the run was not taken over: %+v", b.Active)
	}
	// The loser is still there: it disconnects, and ends nothing.
	w.eventually(func() bool {
		tail, err := w.store.Tail(w.ctx, r.ID)
		return err == nil && tail.Gen == 2
	})
	wk.say(r.ID, event.TextStarted{MessageID: "m", Role: "assistant"}, event.TextDelta{MessageID: "m", Delta: "x"}, done)
	events := e2.events(r.ID)
	last[event.RunFinished](t, events)
	if got := types(events); strings.Count(got, "text.delta") != 1 || strings.Count(got, "run.recovered") != 1 || len(w.host.destroyed) != 0 {
		t.Fatalf("events %s, destroyed %v", got, w.host.destroyed)
	}
	w.settled(r.ID)
}

// TestDoubtfulEngineLetsGo: whoever may have been taken for gone lets go of its runs, takes up again those that nobody
// took, and leaves the others.
func TestDoubtfulEngineLetsGo(t *testing.T) {
	w := newWorld(t)
	w.peers = newPeers()
	e1 := w.boot(run.Limits{})
	e1.watch()
	r := w.start(e1, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e1.begun(r)
	e1.LetGo()
	w.eventually(func() bool { b := w.binding(r.SessionID); return b.Active.Gen == 2 && b.Active.Owner == e1.boot })
	w.eventually(func() bool { tail, err := w.store.Tail(w.ctx, r.ID); return err == nil && tail.Gen == 2 })

	e2 := w.boot(run.Limits{})
	w.peers.gone(e1)
	e2.sweep()
	w.eventually(func() bool { tail, err := w.store.Tail(w.ctx, r.ID); return err == nil && tail.Gen == 3 })
	w.peers.join(e1)
	e1.LetGo()
	e1.sweep()
	if b := w.binding(r.SessionID); b.Active.Owner != e2.boot || b.Active.Gen != 3 {
		t.Fatalf("the run was taken back from a living engine: %+v", b.Active)
	}
	wk.say(r.ID, done)
	last[event.RunFinished](t, e2.events(r.ID))
	if n := w.host.begun(r.ID); n != 1 {
		t.Fatalf("the turn was started %d times", n)
	}
	w.settled(r.ID)
}

// TestRequestsOfAnotherEngine: what one engine accepts, the owner obeys, by a hint or without.
func TestRequestsOfAnotherEngine(t *testing.T) {
	for name, deaf := range map[string]bool{"hinted": false, "hints are lost": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.peers = newPeers()
			w.peers.deaf = deaf
			owner, other := w.boot(run.Limits{}), w.boot(run.Limits{})
			owner.watch()

			r := w.start(owner, run.StartRequest{Text: "wait", ConversationID: "c"})
			owner.begun(r)
			if _, err := other.Cancel(w.ctx, r.ID); err != nil {
				t.Fatal(err)
			}
			if end := last[event.RunCancelled](t, owner.events(r.ID)); end.Reason != event.CancelClientRequest {
				t.Fatalf("ended as %+v", end)
			}
			w.settled(r.ID)

			r = w.start(owner, run.StartRequest{Text: "wait", ConversationID: "c"})
			owner.begun(r)
			if b, err := other.Clear(w.ctx, r.SessionID); err != nil || b.Draining != r.ID {
				t.Fatalf("cleared to %+v, %v", b, err)
			}
			if end := last[event.RunCancelled](t, owner.events(r.ID)); end.Reason != event.CancelSessionCleared {
				t.Fatalf("ended as %+v", end)
			}
			w.settled(r.ID)
		})
	}
}

// TestClearWithoutItsEngine: the engine that cleared a conversation died before it asked the run's owner for its end, and
// one that queued a run to take its place likewise.
func TestClearWithoutItsEngine(t *testing.T) {
	for name, change := range map[string]struct {
		transition session.Transition
		reason     event.CancelReason
	}{
		"clear": {func(b session.Binding, op session.Op) (session.Binding, error) {
			n, _ := session.Clear(b, op)
			return n, nil
		}, event.CancelSessionCleared},
		"interrupt": {func(b session.Binding, op session.Op) (session.Binding, error) {
			return session.Admit(b, "run_next", "eng_dead", session.Pin{AgentVersion: 1, Harness: "scripted"}, session.Interrupt, op)
		}, event.CancelSuperseded},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.peers = newPeers()
			owner := w.boot(run.Limits{})
			r := w.start(owner, run.StartRequest{Text: "wait", ConversationID: "c"})
			owner.begun(r)
			if _, err := session.Mutate(w.ctx, w.store, r.SessionID, time.Now, change.transition); err != nil {
				t.Fatal(err)
			}
			owner.sweep()
			if end := last[event.RunCancelled](t, owner.events(r.ID)); end.Reason != change.reason {
				t.Fatalf("ended as %+v", end)
			}
		})
	}
}

// TestAbandonedSteps: an admission that nobody finishes is refused, once it has been seen so for long; a living engine's
// is left alone until then.
func TestAbandonedSteps(t *testing.T) {
	w := newWorld(t)
	w.peers = newPeers()
	w.boot(run.Limits{})
	e := w.boot(run.Limits{AbandonedAfter: time.Millisecond})
	r := run.Run{ID: id.New(id.Run), Rev: 1, Status: run.StatusAdmitting, Environment: "test", Subject: "alice", AgentID: w.agent.ID,
		SessionID: id.New(id.Session), RequestDigest: "d", CreatedAt: time.Now()}
	if err := w.store.InsertRun(w.ctx, r); err != nil {
		t.Fatal(err)
	}
	e.sweep()
	if got, err := w.store.Run(w.ctx, r.ID); err != nil || got.Status != run.StatusAdmitting {
		t.Fatalf("an admission that may be going on became %s, %v", got.Status, err)
	}
	w.eventually(func() bool {
		e.sweep()
		got, err := w.store.Run(w.ctx, r.ID)
		return err == nil && got.Status == run.StatusRejected && got.Refusal.Code == string(problem.Capacity)
	})
}

// TestDeadlineOfAnotherEngine: the engine that asked a person is gone; the deadline passes all the same.
func TestDeadlineOfAnotherEngine(t *testing.T) {
	w := newWorld(t)
	w.peers = newPeers()
	w.host.keeps = true
	e1 := w.boot(run.Limits{InterruptDeadline: 100 * time.Millisecond})
	r := w.interrupted(e1, "t1")
	e1.leave() // its timers with it
	w.peers.gone(e1)
	e2 := w.boot(run.Limits{})
	e2.sweep()
	w.eventually(func() bool {
		got, err := w.store.Run(w.ctx, r.ID)
		return err == nil && got.Interrupt.SettledIn(w.binding(r.SessionID)) == session.Expired
	})
	if b := w.binding(r.SessionID); b.Pending != nil {
		t.Fatalf("still waits: %+v", b.Pending)
	}
}

// TestFirstTurnBehindAnotherEngine: who has seen a terminal may go on through another engine at once, though the owner has
// not freed the conversation yet.
func TestFirstTurnBehindAnotherEngine(t *testing.T) {
	w := newWorld(t)
	w.peers = newPeers()
	e1, e2 := w.boot(run.Limits{}), w.boot(run.Limits{})
	for range 20 {
		e1.events(w.start(e1, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
		e2.events(w.start(e2, run.StartRequest{Text: "hello", ConversationID: "c"}).ID) // refused when it does not wait
	}
}

// TestClearedQuestion: a run that asks a person while its conversation is cleared asks in vain, and says so.
func TestClearedQuestion(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{CancelGrace: time.Minute})
	r := w.start(e, run.StartRequest{Text: "deaf", ConversationID: "c"})
	wk := e.begun(r)
	if _, err := e.Clear(w.ctx, r.SessionID); err != nil {
		t.Fatal(err)
	}
	wk.ask(r.ID, "t1")
	last[event.RunInterrupted](t, e.events(r.ID))
	if r = w.settled(r.ID); r.Interrupt == nil || r.Interrupt.Settled != session.Cleared {
		t.Fatalf("interrupt %+v", r.Interrupt)
	}
	if b := w.binding(r.SessionID); b.Pending != nil {
		t.Fatalf("a cleared conversation waits: %+v", b.Pending)
	}
}
