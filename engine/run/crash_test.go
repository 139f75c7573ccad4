package run_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/integrity"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// mortal is an engine's way to the store, which ends at one write: before it, or behind it and before its answer.
type mortal struct {
	mu     sync.Mutex
	armed  bool
	at     int // the write, from 1
	behind bool
	writes int
	dead   bool
	died   string // the write
}

// write does the write, or dies.
func (m *mortal) write(what string, do func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	if m.armed {
		if m.writes++; m.writes == m.at {
			m.dead, m.died = true, what
			if m.behind {
				_ = do() // the answer is lost
			}
			return errDead
		}
	}
	return do()
}

func (m *mortal) arm(at int, behind bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.armed, m.at, m.behind = true, at, behind
}

func (m *mortal) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

type mortalLog struct {
	event.Log
	*mortal
}

func (l mortalLog) Append(ctx context.Context, c event.Chunk) error {
	return l.write(fmt.Sprintf("append of %d to %d", c.First, c.Last), func() error { return l.Log.Append(ctx, c) })
}

func (l mortalLog) Tail(ctx context.Context, runID string) (event.Chunk, error) {
	if l.isDead() {
		return event.Chunk{}, errDead
	}
	return l.Log.Tail(ctx, runID)
}

type mortalSessions struct {
	session.Store
	*mortal
}

func (s mortalSessions) InsertSession(ctx context.Context, b session.Binding) error {
	return s.write("insert of the binding", func() error { return s.Store.InsertSession(ctx, b) })
}

func (s mortalSessions) UpdateSession(ctx context.Context, b session.Binding) error {
	return s.write(fmt.Sprintf("binding %d", b.Rev), func() error { return s.Store.UpdateSession(ctx, b) })
}

func (s mortalSessions) Session(ctx context.Context, id string) (session.Binding, error) {
	if s.isDead() {
		return session.Binding{}, errDead
	}
	return s.Store.Session(ctx, id)
}

type mortalRuns struct {
	run.Store
	*mortal
}

func (s mortalRuns) InsertRun(ctx context.Context, r run.Run) error {
	return s.write("insert of the run", func() error { return s.Store.InsertRun(ctx, r) })
}

func (s mortalRuns) UpdateRun(ctx context.Context, r run.Run) error {
	return s.write("run "+string(r.Status), func() error { return s.Store.UpdateRun(ctx, r) })
}

func (s mortalRuns) Run(ctx context.Context, id string) (run.Run, error) {
	if s.isDead() {
		return run.Run{}, errDead
	}
	return s.Store.Run(ctx, id)
}

type mortalBlobs struct {
	*blobs
	*mortal
}

func (s mortalBlobs) Put(ctx context.Context, space blob.Space, r io.Reader, limit int64, want string) (ref blob.Ref, err error) {
	err = s.write("put of the state", func() (err error) { ref, err = s.blobs.Put(ctx, space, r, limit, want); return err })
	return ref, err
}

// crash is one way in which an engine is used while it dies.
type crash struct {
	name   string
	beside bool // also with other engines about: where what each may do differs
	// before is done with an engine that does not die; act with one that does, so it may fail.
	before func(c *crashed)
	act    func(c *crashed, e *engine)
	// after is checked when the next engine has settled everything.
	after func(c *crashed, e *engine)
}

// crashed is one try.
type crashed struct {
	*world
	first run.Run // of before
	next  run.Run // of act, where it was told
}

// TestEngineDiesAtEachWrite ends the engine at each write of each request, before it and behind it, and has the next one
// go on, alone or beside others. What it finds verifies, the conversation is free, and the outcome is one of those that
// the request may have.
func TestEngineDiesAtEachWrite(t *testing.T) {
	for _, c := range []crash{
		{
			name: "start",
			act: func(c *crashed, e *engine) {
				c.next, _ = e.Start(c.ctx, c.request(run.StartRequest{Text: "hello", ConversationID: "c"}))
			},
			after: func(c *crashed, e *engine) {
				if c.next.ID != "" { // it was told
					c.wantStatus(c.next.ID, run.StatusFinished)
				}
				c.wantEach(run.StatusFinished, run.StatusRejected)
			},
		},
		{
			name: "start with a key",
			act: func(c *crashed, e *engine) {
				c.next, _ = e.Start(c.ctx, c.request(run.StartRequest{Text: "hello", ConversationID: "c", IdempotencyKey: "k"}))
			},
			after: func(c *crashed, e *engine) {
				r, err := e.Start(c.ctx, c.request(run.StartRequest{Text: "hello", ConversationID: "c", IdempotencyKey: "k"}))
				if err != nil || c.next.ID != "" && c.next.ID != r.ID {
					c.t.Fatalf("the same key gives %s, then %s, %v", c.next.ID, r.ID, err)
				}
				e.events(r.ID)
				c.wantStatus(c.settled(r.ID).ID, run.StatusFinished)
				if n := len(c.runs()); n != 1 {
					c.t.Fatalf("%d runs of one key", n)
				}
				_, err = e.Start(c.ctx, c.request(run.StartRequest{Text: "other", ConversationID: "c", IdempotencyKey: "k"}))
				wantCode(c.t, err, problem.IdempotencyConflict)
			},
		},
		{
			name:   "enqueue",
			before: func(c *crashed) { c.busy() },
			act: func(c *crashed, e *engine) {
				c.next, _ = e.Start(c.ctx, c.request(run.StartRequest{Text: "hello", ConversationID: "c", Policy: run.BusyEnqueue}))
				c.finishFirst()
			},
			after: func(c *crashed, e *engine) {
				c.wantStatus(c.first.ID, run.StatusFinished)
				if c.next.ID != "" {
					c.wantStatus(c.next.ID, run.StatusFinished)
				}
				c.wantEach(run.StatusFinished, run.StatusRejected)
			},
		},
		{
			name:   "interrupt",
			beside: true,
			before: func(c *crashed) { c.busy() },
			act: func(c *crashed, e *engine) {
				c.next, _ = e.Start(c.ctx, c.request(run.StartRequest{Text: "hello", ConversationID: "c", Policy: run.BusyInterrupt}))
			},
			after: func(c *crashed, e *engine) {
				for _, r := range c.runs() {
					switch {
					case r.ID == c.first.ID && r.Status != run.StatusCancelled && r.Status != run.StatusFinished,
						r.ID != c.first.ID && r.Status != run.StatusFinished && r.Status != run.StatusRejected:
						c.t.Fatalf("%s is %s", r.ID, r.Status)
					case r.ID != c.first.ID && r.Status == run.StatusFinished && r.Ord != 2:
						c.t.Fatalf("the run that took the place has order %d", r.Ord)
					}
				}
				if c.next.ID != "" {
					c.wantStatus(c.next.ID, run.StatusFinished)
				}
			},
		},
		{
			name:   "resume",
			beside: true,
			before: func(c *crashed) {
				c.first = c.interrupted(c.boot(run.Limits{}), "t1")
			},
			act: func(c *crashed, e *engine) {
				if res, err := c.decide(e, c.first, approve("t1")); err == nil {
					c.next = *res.Run
				}
			},
			after: func(c *crashed, e *engine) {
				res, err := c.decide(e, c.first, approve("t1"))
				if err != nil || c.next.ID != "" && c.next.ID != res.Run.ID {
					c.t.Fatalf("the same decision gives %s, then %v, %v", c.next.ID, res.Run, err)
				}
				c.finish(e, res.Run.ID)
				c.wantStatus(res.Run.ID, run.StatusFinished)
				if how := c.run(c.first.ID).Interrupt.SettledIn(c.binding(c.first.SessionID)); how != session.Resumed {
					c.t.Fatalf("the interrupt is %q", how)
				}
				other := approve("t1")
				other.Calls[0].Verdict, other.Calls[0].Message = "reject", "no"
				_, err = c.decide(e, c.first, other)
				wantCode(c.t, err, problem.InterruptConflict)
			},
		},
		{
			name:   "dismiss",
			before: func(c *crashed) { c.first = c.interrupted(c.boot(run.Limits{}), "t1") },
			act: func(c *crashed, e *engine) {
				_, _ = e.Resume(c.ctx, run.ResumeRequest{Caller: alice, InterruptID: id.OfInterrupt(c.first.ID), Revision: 1, Dismiss: true})
			},
			after: func(c *crashed, e *engine) {
				if _, err := e.Resume(c.ctx, run.ResumeRequest{Caller: alice, InterruptID: id.OfInterrupt(c.first.ID), Revision: 1, Dismiss: true}); err != nil {
					c.t.Fatal(err)
				}
				if how := c.run(c.first.ID).Interrupt.SettledIn(c.binding(c.first.SessionID)); how != session.Dismissed {
					c.t.Fatalf("the interrupt is %q", how)
				}
			},
		},
		{
			name: "clear, idle",
			before: func(c *crashed) {
				e := c.boot(run.Limits{})
				c.first = c.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
				e.events(c.first.ID)
				c.settled(c.first.ID)
			},
			act:   func(c *crashed, e *engine) { _, _ = e.Clear(c.ctx, c.first.SessionID) },
			after: func(c *crashed, e *engine) { c.wantEpoch(1, 2) },
		},
		{
			name:   "clear, busy and queued",
			before: func(c *crashed) { c.busy() },
			act: func(c *crashed, e *engine) {
				c.next, _ = e.Start(c.ctx, c.request(run.StartRequest{Text: "hello", ConversationID: "c", Policy: run.BusyEnqueue}))
				_, _ = e.Clear(c.ctx, c.first.SessionID)
			},
			after: func(c *crashed, e *engine) {
				b := c.wantEpoch(1, 2)
				for _, r := range c.runs() {
					if cleared := b.Epoch == 2; r.Status == run.StatusCancelled && !cleared || r.Status == run.StatusFinished && cleared && r.ID == c.next.ID {
						c.t.Fatalf("epoch %d, and %s is %s", b.Epoch, r.ID, r.Status)
					}
				}
			},
		},
		{
			name:   "cancel",
			before: func(c *crashed) { c.busy() },
			act:    func(c *crashed, e *engine) { _, _ = e.Cancel(c.ctx, c.first.ID) },
			after: func(c *crashed, e *engine) {
				// The turn may have ended by itself before it heard of the cancel.
				if r := c.run(c.first.ID); r.Status != run.StatusCancelled && r.Status != run.StatusFinished {
					c.t.Fatalf("the run is %s, its cancel %q", r.Status, r.CancelReason)
				}
			},
		},
		{
			name: "cancel in the queue",
			before: func(c *crashed) {
				e := c.busy()
				c.next = c.start(e, run.StartRequest{Text: "hello", ConversationID: "c", Policy: run.BusyEnqueue})
			},
			act: func(c *crashed, e *engine) { _, _ = e.Cancel(c.ctx, c.next.ID) },
			after: func(c *crashed, e *engine) {
				if r := c.run(c.next.ID); r.CancelReason != "" && r.Status != run.StatusCancelled {
					c.t.Fatalf("the run is %s, its cancel %q", r.Status, r.CancelReason)
				}
			},
		},
	} {
		for _, beside := range []bool{false, true} {
			if beside && !c.beside {
				continue
			}
			name := c.name
			if beside {
				name += ", beside others"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				points := 0
				for _, behind := range []bool{true, false} {
					if beside && !behind {
						continue // before a write, or behind the one before: the others see the same
					}
					for at, more := 1, true; more; at += atOnce {
						var tries sync.WaitGroup
						died := make([]bool, atOnce)
						for i := range died {
							tries.Go(func() { died[i] = die(t, c, at+i, behind, beside) })
						}
						tries.Wait()
						for _, d := range died {
							if more = more && d; more {
								points++
							}
						}
					}
				}
				if points == 0 {
					t.Fatal("it wrote nothing")
				}
			})
		}
	}
}

// atOnce is how many tries are made at once. They wait for the disk most of the time.
const atOnce = 4

// die plays one try; false when the request had fewer writes.
func die(t *testing.T, c crash, at int, behind, beside bool) (died bool) {
	t.Helper()
	point := fmt.Sprintf("write %d", at)
	if behind {
		point += ", its answer lost"
	}
	t.Run(point, func(t *testing.T) {
		w := newWorld(t)
		w.host.keeps = true
		if w.peers = newPeers(); beside {
			w.boot(run.Limits{})
		}
		try := &crashed{world: w}
		if c.before != nil {
			c.before(try)
		}
		for _, e := range w.peers.all() {
			if !beside { // the engine of before has gone
				e.leave()
				w.peers.gone(e)
			}
		}
		m := &mortal{}
		w.log, w.sessions, w.runs, w.states = mortalLog{w.store, m}, mortalSessions{w.store, m}, mortalRuns{w.store, m}, mortalBlobs{w.blobs, m}
		doomed := w.boot(run.Limits{CancelGrace: 50 * time.Millisecond})
		if err := doomed.Recover(w.ctx); err != nil {
			t.Fatal(err)
		}
		if try.first.ID != "" && try.run(try.first.ID).Status == run.StatusRunning {
			for _, e := range w.peers.all() {
				if e != doomed {
					w.peers.gone(e)
				}
			}
			doomed.sweep()
			w.eventually(func() bool { b := w.binding(try.first.SessionID); return b.Active.Owner == doomed.boot })
			w.eventually(func() bool {
				tail, err := w.store.Tail(w.ctx, try.first.ID)
				return err == nil && tail.Gen == w.binding(try.first.SessionID).Active.Gen
			})
		}
		m.arm(at, behind)
		c.act(try, doomed)
		died = try.waitDeath(m)
		doomed.leave()
		w.peers.gone(doomed)
		w.log, w.sessions, w.runs, w.states = w.store, w.store, w.store, w.blobs
		next := w.boot(run.Limits{AbandonedAfter: time.Millisecond})
		if beside {
			w.boot(run.Limits{})
		}
		if err := next.Recover(w.ctx); err != nil {
			t.Fatal(err)
		}
		next.watch()
		w.eventually(func() bool {
			next.sweep()
			try.finishFirst()
			return try.quiet()
		})
		c.after(try, next)
		w.eventually(func() bool { next.sweep(); return try.quiet() })
		report, err := integrity.Verify(w.ctx, integrity.Options{Source: w.store, Blobs: w.blobs})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Findings {
			t.Errorf("died at %s: %s", m.died, f)
		}
	})
	return died
}

// busy starts a run that goes on until finishFirst.
func (c *crashed) busy() *engine {
	c.t.Helper()
	e := c.boot(run.Limits{})
	c.first = c.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	e.begun(c.first)
	c.eventually(func() bool { return c.run(c.first.ID).Status == run.StatusRunning })
	return e
}

// finishFirst lets the turns end that do not by themselves: the first run's, and those that go on from a decision.
func (c *crashed) finishFirst() {
	w := c.host.only()
	if w == nil {
		return
	}
	w.mu.Lock()
	var open []string
	for runID, t := range w.runs {
		if !t.ended && (t.resume != nil || runID == c.first.ID && c.first.Status != run.StatusInterrupted) {
			open = append(open, runID)
		}
	}
	w.mu.Unlock()
	for _, runID := range open {
		w.endTurn(runID)
	}
}

// finish lets a run's turn end and waits until it is settled.
func (c *crashed) finish(e *engine, runID string) {
	c.t.Helper()
	c.eventually(func() bool {
		if w := c.host.only(); w != nil {
			w.endTurn(runID)
		}
		return c.run(runID).Status.Ended()
	})
	c.settled(runID)
}

// endTurn says the end of a turn once.
func (w *worker) endTurn(runID string) {
	w.mu.Lock()
	t := w.runs[runID]
	w.mu.Unlock()
	if t != nil && t.resume != nil {
		w.end(runID, event.ToolFinished{ToolCallID: "t1", Result: "ok"}, done)
	} else {
		w.end(runID, done)
	}
}

// waitDeath waits until the engine has died, or everything that was asked of it is done.
func (c *crashed) waitDeath(m *mortal) bool {
	c.t.Helper()
	c.eventually(func() bool {
		c.finishFirst()
		return m.isDead() || c.quiet()
	})
	return m.isDead()
}

// quiet says whether no run is unfinished but those that only a repeat of their key finishes.
func (c *crashed) quiet() bool {
	c.t.Helper()
	unfinished, err := c.store.UnfinishedRuns(c.ctx, "", 100)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, r := range unfinished {
		if r.Status != run.StatusAdmitting || r.IdempotencyKey == "" {
			return false
		}
	}
	busy, err := c.store.BusySessions(c.ctx, "", 100)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, b := range busy {
		if b.Run != "" {
			return false
		}
	}
	return true
}

func (c *crashed) run(runID string) run.Run {
	c.t.Helper()
	r, err := c.store.Run(c.ctx, runID)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// runs are all that the store has.
func (c *crashed) runs() (all []run.Run) {
	c.t.Helper()
	ids, err := c.store.RunIDs(c.ctx, "", 100)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, runID := range ids {
		all = append(all, c.run(runID))
	}
	return all
}

func (c *crashed) wantStatus(runID string, want run.Status) {
	c.t.Helper()
	if r := c.run(runID); r.Status != want {
		c.t.Fatalf("%s is %s, want %s", runID, r.Status, want)
	}
}

// wantEach fails unless each run is in one of the statuses.
func (c *crashed) wantEach(want ...run.Status) {
	c.t.Helper()
	for _, r := range c.runs() {
		ok := false
		for _, s := range want {
			ok = ok || r.Status == s
		}
		if !ok {
			c.t.Fatalf("%s is %s, want one of %v", r.ID, r.Status, want)
		}
	}
}

// wantEpoch fails unless the conversation is in one of the epochs and idle.
func (c *crashed) wantEpoch(want ...int64) session.Binding {
	c.t.Helper()
	b := c.binding(c.first.SessionID)
	for _, epoch := range want {
		if b.Epoch == epoch && b.Active == nil && len(b.Queue) == 0 {
			return b
		}
	}
	c.t.Fatalf("binding %+v, want it idle in one of the epochs %v", b, want)
	return b
}
