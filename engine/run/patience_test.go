package run_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// TestNoAnswerIsNoRefusal: a run that another engine admitted is begun although authorization does not answer at first.
func TestNoAnswerIsNoRefusal(t *testing.T) {
	w := newWorld(t)
	r := run.Run{ID: id.New(id.Run), Rev: 1, Status: run.StatusAdmitting, Environment: "test", Subject: "alice", AgentID: w.agent.ID,
		SessionID: id.New(id.Session), Input: run.Input{Text: "hello"}, RequestDigest: "d", CreatedAt: time.Now()}
	b := session.New(r.SessionID, session.Key{Environment: "test", Subject: "alice", AgentID: w.agent.ID, ConversationID: "c"}, session.Op{ID: "x", Now: time.Now()})
	admitted, err := session.Admit(b, r.ID, "dead engine", session.Pin{AgentVersion: 1, Harness: "scripted"}, session.Reject, session.Op{ID: "y", Now: time.Now()})
	if err := errors.Join(err, w.store.InsertRun(w.ctx, r), w.store.InsertSession(w.ctx, b), w.store.UpdateSession(w.ctx, admitted)); err != nil {
		t.Fatal(err)
	}
	w.mute.Store(1)
	e := w.boot(run.Limits{})
	if err := e.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	last[event.RunFinished](t, e.events(r.ID))
	if w.mute.Load() >= 0 {
		t.Error("authorization was not asked again")
	}
}

// refusingSessions refuses, and writes nothing, while a binding is about to get a worker.
type refusingSessions struct {
	session.Store
	refuse atomic.Int64
}

func (s *refusingSessions) UpdateSession(ctx context.Context, b session.Binding) error {
	if b.Sandbox != nil && s.refuse.Add(-1) >= 0 {
		return errors.New("refused")
	}
	return s.Store.UpdateSession(ctx, b)
}

// TestStoreRefusesAWorker: a store that refuses for a moment is no reason to end a run that has not begun.
func TestStoreRefusesAWorker(t *testing.T) {
	w := newWorld(t)
	s := &refusingSessions{Store: w.store}
	s.refuse.Store(1)
	w.sessions = s
	e := w.boot(run.Limits{})
	r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
	last[event.RunFinished](t, e.events(r.ID))
	if s.refuse.Load() >= 0 {
		t.Error("nothing was refused")
	}
}

// overtakenSessions lets another engine take the run over the moment that its binding is to get a worker.
type overtakenSessions struct {
	session.Store
	done, looked atomic.Bool
}

func (s *overtakenSessions) Session(ctx context.Context, id string) (session.Binding, error) {
	if s.done.Load() {
		s.looked.Store(true)
	}
	return s.Store.Session(ctx, id)
}

func (s *overtakenSessions) UpdateSession(ctx context.Context, b session.Binding) error {
	err := s.Store.UpdateSession(ctx, b)
	if err != nil || b.Sandbox == nil || !s.done.CompareAndSwap(false, true) {
		return err
	}
	taken, err := session.Claim(b, b.Active.Run, "another engine", session.Op{ID: "x", Now: time.Now()})
	return errors.Join(err, s.Store.UpdateSession(ctx, taken))
}

type countingLog struct {
	event.Log
	appends atomic.Int64
}

func (l *countingLog) Append(ctx context.Context, c event.Chunk) error {
	l.appends.Add(1)
	return l.Log.Append(ctx, c)
}

// TestLoserEndsNothing: an engine that gets no worker for a run that has not begun has lost the run meanwhile, and with it the
// right to end it.
func TestLoserEndsNothing(t *testing.T) {
	w := newWorld(t)
	s := &overtakenSessions{Store: w.store}
	l := &countingLog{Log: w.store}
	w.sessions, w.log, w.host.full = s, l, true
	e := w.boot(run.Limits{})
	r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
	w.eventually(func() bool { return s.looked.Load() || l.appends.Load() > 0 })
	e.leave()
	if c, err := w.store.Tail(w.ctx, r.ID); !errors.Is(err, event.ErrEmpty) {
		t.Fatalf("the loser wrote %s (%v)", c.Body, err)
	}
}

// lateRuns does not show a run at the first look: that was before another caller inserted it.
type lateRuns struct {
	run.Store
	hide atomic.Value // string: id
}

func (s *lateRuns) Run(ctx context.Context, id string) (run.Run, error) {
	if s.hide.CompareAndSwap(id, "") {
		return run.Run{}, run.ErrNotFound
	}
	return s.Store.Run(ctx, id)
}

// TestSameDecisionMeanwhile: the same decision comes twice at once; the one is taken between two looks of the other. Both get
// the same run.
func TestSameDecisionMeanwhile(t *testing.T) {
	w := newWorld(t)
	s := &lateRuns{Store: w.store}
	s.hide.Store("")
	w.runs = s
	e := w.boot(run.Limits{})
	r := w.interrupted(e, "t1")
	first, err := w.decide(e, r, approve("t1"))
	if err != nil {
		t.Fatal(err)
	}
	s.hide.Store(first.Run.ID)
	second, err := w.decide(e, r, approve("t1"))
	if err != nil || second.Run == nil || second.Run.ID != first.Run.ID {
		t.Fatalf("the same decision: %+v, %v", second.Run, err)
	}
	e.begun(*first.Run).say(first.Run.ID, event.ToolFinished{ToolCallID: "t1", Result: "ok"}, done)
	w.settled(first.Run.ID)
}
