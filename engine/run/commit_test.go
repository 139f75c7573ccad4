package run_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

func (w *world) binding(sessionID string) session.Binding {
	w.t.Helper()
	b, err := w.store.Session(w.ctx, sessionID)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := b.Check(); err != nil {
		w.t.Fatal(err)
	}
	return b
}

// heard is the native state of the host's one worker.
func (w *world) heard() string {
	wk := w.host.only()
	wk.mu.Lock()
	defer wk.mu.Unlock()
	return strings.Join(wk.heard, ",")
}

func TestThreadIsCommitted(t *testing.T) {
	w := newWorld(t)
	w.host.keeps = true
	e := w.boot(run.Limits{})
	for turn := int64(1); turn <= 3; turn++ {
		r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
		end := last[event.RunFinished](t, e.events(r.ID))
		if end.Thread != (event.ThreadState{Durability: event.DurabilityCommitted, Revision: turn}) {
			t.Fatalf("turn %d ended with %+v", turn, end.Thread)
		}
		w.settled(r.ID)
		if b := w.binding(r.SessionID); b.Head.Rev != turn || b.Head.ByRun != r.ID {
			t.Fatalf("turn %d: head %+v", turn, b.Head)
		}
		w.eventually(func() bool { return w.blobs.count() == 1 })
	}
	if w.host.started() != 1 || w.heard() != "hello,hello,hello" {
		t.Fatalf("%d workers, state %s", w.host.started(), w.heard())
	}
}

// TestThreadMoves: a worker that is lost between turns costs nothing; the next one begins with what was committed.
func TestThreadMoves(t *testing.T) {
	w := newWorld(t)
	w.host.keeps = true
	e := w.boot(run.Limits{})
	e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
	w.eventually(func() bool { return w.binding(w.sessionID()).Active == nil })
	w.host.only().kill()
	r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
	e.events(r.ID)
	if w.host.started() != 2 || w.heard() != "hello,hello" {
		t.Fatalf("%d workers, state %s", w.host.started(), w.heard())
	}
}

// sessionID is the one conversation of the store.
func (w *world) sessionID() string {
	w.t.Helper()
	bs, err := w.store.SessionsOf(w.ctx, "test", "alice", "", "", 2)
	if err != nil || len(bs) != 1 {
		w.t.Fatalf("%d sessions, %v", len(bs), err)
	}
	return bs[0].ID
}

// TestWorkerWithAnotherHead: a worker that did not hear of the commit is not used again.
func TestWorkerWithAnotherHead(t *testing.T) {
	w := newWorld(t)
	w.host.keeps = true
	e := w.boot(run.Limits{})
	r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e.begun(r)
	wk.mu.Lock()
	wk.silent = true
	wk.mu.Unlock()
	wk.say(r.ID, done)
	e.events(r.ID)
	w.settled(r.ID)
	r = w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
	e.events(r.ID)
	if w.host.started() != 2 || w.heard() != "wait,hello" {
		t.Fatalf("%d workers, state %s", w.host.started(), w.heard())
	}
}

// TestHeadIsLost: a conversation whose state is gone says so, and what to do.
func TestHeadIsLost(t *testing.T) {
	w := newWorld(t)
	w.host.keeps = true
	e := w.boot(run.Limits{})
	e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
	w.eventually(func() bool { return w.binding(w.sessionID()).Active == nil })
	w.host.only().kill()
	w.blobs.mu.Lock()
	clear(w.blobs.by)
	w.blobs.mu.Unlock()
	r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
	if end := last[event.RunError](t, e.events(r.ID)); end.Code != "thread_state_lost" || end.Retryable || end.Category != event.CategoryPersistence {
		t.Fatalf("ended as %+v", end)
	}
	w.settled(r.ID)
	if _, err := e.Clear(w.ctx, r.SessionID); err != nil {
		t.Fatal(err)
	}
	last[event.RunFinished](t, e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID))
}

// TestAttachmentIsLost: a run whose attachment is gone ends before it has a worker.
func TestAttachmentIsLost(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	w.host.takes = true
	r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c", Attachments: []file.Attachment{{ID: "att_x", MediaType: "text/plain", Hash: "none"}}})
	if end := last[event.RunError](t, e.events(r.ID)); end.Code != "attachment_lost" || w.host.started() != 0 {
		t.Fatalf("ended as %+v after %d workers", end, w.host.started())
	}
	w.settled(r.ID)
}

// TestStateNotStored: output that was shown and not kept is said to be uncertain, and leaks into no later turn.
func TestStateNotStored(t *testing.T) {
	w := newWorld(t)
	w.host.keeps = true
	e := w.boot(run.Limits{})
	e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
	w.eventually(func() bool { return w.binding(w.sessionID()).Active == nil })
	w.blobs.mu.Lock()
	w.blobs.refuse = true
	w.blobs.mu.Unlock()
	r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
	end := last[event.RunError](t, e.events(r.ID))
	if end.Code != "thread_durability_uncertain" || end.Thread != (event.ThreadState{Durability: event.DurabilityUncertain, Revision: 1}) {
		t.Fatalf("ended as %+v", end)
	}
	w.settled(r.ID)
	w.blobs.mu.Lock()
	w.blobs.refuse = false
	w.blobs.mu.Unlock()
	e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
	if w.heard() != "hello,hello" {
		t.Fatalf("state %s", w.heard())
	}
}

var errDead = errors.New("the engine is dead")

// TestEngineDiesAtEachStep kills the engine between the numbered steps of a turn's end, with the worker alive and with
// the worker dead too, and checks what the next engine makes of it.
func TestEngineDiesAtEachStep(t *testing.T) {
	for _, c := range []struct {
		at         string
		workerDies bool
		want       run.Status
		rev        int64
	}{
		{"store state", false, run.StatusFinished, 1},
		{"commit head", false, run.StatusFinished, 1},
		{"log terminal", false, run.StatusFinished, 1},
		{"project", false, run.StatusFinished, 1},
		{"free binding", false, run.StatusFinished, 1},
		{"store state", true, run.StatusFailed, 0},
		{"commit head", true, run.StatusFailed, 0},
		{"log terminal", true, run.StatusFinished, 1},
		{"project", true, run.StatusFinished, 1},
		{"free binding", true, run.StatusFinished, 1},
	} {
		name := c.at
		if c.workerDies {
			name += ", worker too"
		}
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.host.keeps = true
			m := &dying{world: w, at: c.at}
			w.log, w.sessions, w.runs = dyingLog{m, w.store}, dyingSessions{w.store, m}, dyingRuns{w.store, m}
			w.blobs.mu.Lock()
			w.blobs.refuse = c.at == "store state"
			w.blobs.mu.Unlock()
			e := w.boot(run.Limits{})
			r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
			wk := e.begun(r)
			m.armed.Store(true)
			if c.at == "store state" {
				// The state is not even asked for: the engine goes when the terminal is about to be spoken.
				e.leave()
			}
			wk.say(r.ID, event.TextStarted{MessageID: "m", Role: "assistant"}, event.TextDelta{MessageID: "m", Delta: "x"}, done)
			if c.at != "store state" {
				w.eventually(m.dead.Load)
				e.leave()
			}
			w.log, w.sessions, w.runs = w.store, w.store, w.store
			w.blobs.mu.Lock()
			w.blobs.refuse = false
			w.blobs.mu.Unlock()
			if c.workerDies {
				wk.kill()
			}
			e2 := w.boot(run.Limits{})
			if err := e2.Recover(w.ctx); err != nil {
				t.Fatal(err)
			}
			events := e2.events(r.ID)
			for i, ev := range events {
				if ev.Sequence != int64(i+1) || ev.Type().Terminal() != (i == len(events)-1) {
					t.Fatalf("event %d is %s with sequence %d", i, ev.Type(), ev.Sequence)
				}
			}
			r = w.settled(r.ID)
			b := w.binding(r.SessionID)
			if r.Status != c.want || b.Head.Rev != c.rev {
				t.Fatalf("run %s, head %d, want %s, %d: %s", r.Status, b.Head.Rev, c.want, c.rev, types(events))
			}
			if c.want == run.StatusFailed {
				if end := last[event.RunError](t, events); end.Code != "thread_durability_uncertain" {
					t.Fatalf("ended as %+v", end)
				}
			}
			// The next turn recalls exactly what was committed.
			next := w.start(e2, run.StartRequest{Text: "hello", ConversationID: "c"})
			last[event.RunFinished](t, e2.events(next.ID))
			want := "wait,hello"
			if c.rev == 0 {
				want = "hello"
			}
			if w.heard() != want || w.host.begun(r.ID) != 1 {
				t.Fatalf("state %s, want %s; the turn was started %d times", w.heard(), want, w.host.begun(r.ID))
			}
		})
	}
}

// dying decides, before a write, whether the engine is dead.
type dying struct {
	*world
	at    string
	armed atomic.Bool
	dead  atomic.Bool
}

// write is asked before each write with what it is.
func (d *dying) write(step string) error {
	if d.armed.Load() && step == d.at {
		d.dead.Store(true)
	}
	if d.dead.Load() {
		return errDead
	}
	return nil
}

type dyingLog struct {
	*dying
	event.Log
}

func (l dyingLog) Append(ctx context.Context, c event.Chunk) error {
	step := "log"
	if c.Terminal {
		step = "log terminal"
	}
	if err := l.write(step); err != nil {
		return err
	}
	return l.Log.Append(ctx, c)
}

type dyingSessions struct {
	session.Store
	*dying
}

func (s dyingSessions) UpdateSession(ctx context.Context, b session.Binding) error {
	step := "session"
	switch {
	case b.Active == nil:
		step = "free binding"
	case b.Head.ByRun == b.Active.Run:
		step = "commit head"
	}
	if err := s.write(step); err != nil {
		return err
	}
	return s.Store.UpdateSession(ctx, b)
}

type dyingRuns struct {
	run.Store
	*dying
}

func (r dyingRuns) UpdateRun(ctx context.Context, v run.Run) error {
	step := "run"
	if v.Status.Ended() {
		step = "project"
	}
	if err := r.write(step); err != nil {
		return err
	}
	return r.Store.UpdateRun(ctx, v)
}
