package run_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

var errOneRun = errors.New("the run cannot be read")

// spoiltRuns is a store that cannot read one run.
type spoiltRuns struct {
	run.Store
	spoilt *atomic.Pointer[string]
}

func (s spoiltRuns) Run(ctx context.Context, id string) (run.Run, error) {
	if bad := s.spoilt.Load(); bad != nil && *bad == id {
		return run.Run{}, errOneRun
	}
	return s.Store.Run(ctx, id)
}

// TestSweepGoesOnBesideWhatFails: what cannot be taken over keeps nobody else's run waiting, whichever comes first.
func TestSweepGoesOnBesideWhatFails(t *testing.T) {
	for bad, name := range []string{"the first fails", "the second fails"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var spoilt atomic.Pointer[string]
			w.runs = spoiltRuns{w.store, &spoilt}
			w.peers = newPeers()
			e1, e2 := w.boot(run.Limits{}), w.boot(run.Limits{})
			var sessions []string
			runs := map[string]string{}
			for _, c := range []string{"a", "b"} {
				r := w.start(e1, run.StartRequest{Text: "wait", ConversationID: c})
				runs[r.SessionID] = r.ID
				w.eventually(func() bool { tail, err := w.store.Tail(w.ctx, r.ID); return err == nil && tail.Last > 0 })
			}
			busy, err := w.store.BusySessions(w.ctx, "", 10)
			if err != nil || len(busy) != 2 {
				t.Fatalf("busy %+v, %v", busy, err)
			}
			for _, b := range busy {
				sessions = append(sessions, b.ID)
			}
			e1.leave()
			w.peers.gone(e1)
			failing, other := runs[sessions[bad]], runs[sessions[1-bad]]
			spoilt.Store(&failing)
			if err := e2.Sweep(w.ctx); !errors.Is(err, errOneRun) {
				t.Errorf("the sweep says %v", err)
			}
			w.eventually(func() bool { tail, err := w.store.Tail(w.ctx, other); return err == nil && tail.Gen == 2 })
			if b := w.binding(sessions[bad]); b.LeaseGen != 1 {
				t.Errorf("a run that cannot be read was claimed: %+v", b.Active)
			}
			spoilt.Store(nil)
		})
	}
}

// spoiltLog is a log of which one run's cannot be gone on with.
type spoiltLog struct {
	event.Log
	spoilt *atomic.Pointer[string]
}

func (l spoiltLog) Tail(ctx context.Context, id string) (event.Chunk, error) {
	if bad := l.spoilt.Load(); bad != nil && *bad == id {
		return event.Chunk{}, event.ErrCorrupt
	}
	return l.Log.Tail(ctx, id)
}

// TestStartBesideCorruptLog: a run that no conversation holds, and whose log is corrupt, keeps no engine from starting.
func TestStartBesideCorruptLog(t *testing.T) {
	w := newWorld(t)
	var spoilt atomic.Pointer[string]
	w.log = spoiltLog{w.store, &spoilt}
	e1 := w.boot(run.Limits{})
	r := w.start(e1, run.StartRequest{Text: "wait", ConversationID: "c"})
	e1.begun(r)
	other := w.start(e1, run.StartRequest{Text: "wait", ConversationID: "d"})
	e1.leave()
	if _, err := session.Mutate(w.ctx, w.store, r.SessionID, time.Now, func(b session.Binding, op session.Op) (session.Binding, error) {
		l, _ := b.Lease()
		return session.Finish(b, l, e1.boot, op)
	}); err != nil {
		t.Fatal(err)
	}
	spoilt.Store(&r.ID)
	e2 := w.boot(run.Limits{})
	if err := e2.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	if b := w.binding(other.SessionID); b.Active.Owner != e2.boot {
		t.Fatalf("the other run is driven by %+v", b.Active)
	}
}
