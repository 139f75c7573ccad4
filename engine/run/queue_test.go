package run_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// TestEnqueueKeepsOrder: a hundred starts at once; those that find room run one after the other, in the order of the
// queue, and the others are refused.
func TestEnqueueKeepsOrder(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	first := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e.begun(first)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var queued []string
	for i := range 100 {
		wg.Go(func() {
			r, err := e.Start(w.ctx, w.request(run.StartRequest{Text: "hello", ConversationID: "c", Policy: run.BusyEnqueue, IdempotencyKey: fmt.Sprint(i)}))
			if err != nil {
				wantCode(t, err, problem.SessionBusy)
				return
			}
			mu.Lock()
			queued = append(queued, r.ID)
			mu.Unlock()
		})
	}
	wg.Wait()
	var order []string
	for _, q := range w.binding(first.SessionID).Queue {
		order = append(order, q.Run)
	}
	if len(order) != session.MaxQueue || len(queued) != session.MaxQueue {
		t.Fatalf("%d are queued, %d were told so", len(order), len(queued))
	}
	wk.say(first.ID, done)
	for i, runID := range order {
		last[event.RunFinished](t, e.events(runID))
		if r := w.settled(runID); r.Ord != int64(i+2) {
			t.Fatalf("run %d of the queue has order %d", i, r.Ord)
		}
	}
}

func TestInterruptPolicy(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	first := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	e.begun(first)
	waiting := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c", Policy: run.BusyEnqueue})
	urgent := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c", Policy: run.BusyInterrupt})
	if end := last[event.RunCancelled](t, e.events(first.ID)); end.Reason != event.CancelSuperseded {
		t.Fatalf("ended as %+v", end)
	}
	e.events(urgent.ID)
	e.events(waiting.ID)
	first, urgent, waiting = w.settled(first.ID), w.settled(urgent.ID), w.settled(waiting.ID)
	if first.Ord != 1 || urgent.Ord != 2 || waiting.Ord != 3 || urgent.StartedAt.Before(*first.EndedAt) {
		t.Fatalf("orders %d, %d, %d; the old one ended %v, the urgent one started %v", first.Ord, urgent.Ord, waiting.Ord, first.EndedAt, urgent.StartedAt)
	}
}

func TestCancelAndClearQueued(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	first := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e.begun(first)
	var queued []run.Run
	for range 3 {
		queued = append(queued, w.start(e, run.StartRequest{Text: "hello", ConversationID: "c", Policy: run.BusyEnqueue}))
	}
	r, err := e.Cancel(w.ctx, queued[1].ID)
	if err != nil || r.Status != run.StatusCancelled || r.Ord == 0 {
		t.Fatalf("cancelled in the queue: %+v, %v", r, err)
	}
	if got := types(e.events(r.ID)); got != "run.started run.cancelled" {
		t.Fatalf("its log: %s", got)
	}
	if _, err := e.Clear(w.ctx, first.SessionID); err != nil {
		t.Fatal(err)
	}
	ords := []int64{r.Ord}
	for _, q := range []run.Run{queued[0], queued[2]} {
		if end := last[event.RunCancelled](t, e.events(q.ID)); end.Reason != event.CancelSessionCleared {
			t.Fatalf("ended as %+v", end)
		}
		ords = append(ords, w.settled(q.ID).Ord)
	}
	last[event.RunCancelled](t, e.events(first.ID))
	ords = append(ords, w.settled(first.ID).Ord)
	slices.Sort(ords)
	if !slices.Equal(ords, []int64{1, 2, 3, 4}) {
		t.Fatalf("orders %v", ords)
	}
	for _, q := range queued {
		if w.host.begun(q.ID) != 0 || wk.runs[q.ID] != nil {
			t.Fatal("a run that never began reached the worker")
		}
	}
	e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
}

// TestQueueWaitsForDecision: what was said before the interrupt does not supersede it; it runs when that is settled.
func TestQueueWaitsForDecision(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e.begun(r)
	next := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c", Policy: run.BusyEnqueue})
	wk.ask(r.ID, "t1")
	e.events(r.ID)
	w.settled(r.ID)
	if b := w.binding(r.SessionID); b.Active != nil || len(b.Queue) != 1 {
		t.Fatalf("binding %+v", b)
	}
	_, err := e.Start(w.ctx, w.request(run.StartRequest{Text: "hello", ConversationID: "c"}))
	wantCode(t, err, problem.SessionBusy)
	res, err := w.decide(e, r, approve("t1"))
	if err != nil {
		t.Fatal(err)
	}
	e.begun(*res.Run).say(res.Run.ID, event.ToolFinished{ToolCallID: "t1", Result: "ok"}, done)
	e.events(next.ID)
	if a, b := w.settled(res.Run.ID), w.settled(next.ID); a.Ord != 2 || b.Ord != 3 {
		t.Fatalf("orders %d, %d", a.Ord, b.Ord)
	}
}

// TestQueueSurvivesItsEngine: the queue is the binding's, and so is what a dying engine took off it.
func TestQueueSurvivesItsEngine(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	first := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e.begun(first)
	kept := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c", Policy: run.BusyEnqueue})
	dropped := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c", Policy: run.BusyEnqueue})
	e.leave()
	b, _, err := session.CancelQueued(w.binding(first.SessionID), dropped.ID, session.Op{ID: "x", Now: first.CreatedAt})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.UpdateSession(w.ctx, b); err != nil {
		t.Fatal(err)
	}
	e = w.boot(run.Limits{})
	if err := e.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	last[event.RunCancelled](t, e.events(dropped.ID))
	wk.say(first.ID, done)
	last[event.RunFinished](t, e.events(first.ID))
	last[event.RunFinished](t, e.events(kept.ID))
	if r := w.settled(dropped.ID); r.Status != run.StatusCancelled || w.host.begun(dropped.ID) != 0 {
		t.Fatalf("dropped run %+v", r)
	}
}

// TestUrgentRunWaitsForNobody: the run that is to be interrupted asks a person instead of ending; the urgent one takes
// the place of that interrupt.
func TestUrgentRunWaitsForNobody(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	first := w.start(e, run.StartRequest{Text: "deaf", ConversationID: "c"})
	wk := e.begun(first)
	urgent := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c", Policy: run.BusyInterrupt})
	wk.ask(first.ID, "t1")
	last[event.RunInterrupted](t, e.events(first.ID))
	last[event.RunFinished](t, e.events(urgent.ID))
	w.settled(urgent.ID)
	w.eventually(func() bool {
		r, err := w.store.Run(w.ctx, first.ID)
		return err == nil && r.Interrupt != nil && r.Interrupt.Settled == session.Superseded
	})
}

// TestEnqueuedRunWaitsForDecision: a run that is to wait its turn does not take the place of an interrupt.
func TestEnqueuedRunWaitsForDecision(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	r := w.interrupted(e, "t1")
	next := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c", Policy: run.BusyEnqueue})
	if b := w.binding(r.SessionID); b.Pending == nil || b.Queued(next.ID) != 0 {
		t.Fatalf("binding %+v", b)
	}
	if _, err := e.Resume(w.ctx, run.ResumeRequest{Caller: alice, InterruptID: id.OfInterrupt(r.ID), Revision: 1, Dismiss: true}); err != nil {
		t.Fatal(err)
	}
	last[event.RunFinished](t, e.events(next.ID))
}
