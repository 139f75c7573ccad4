package run_test

import (
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// TestContinuationIsTold: an engine that died right after it had taken a decision leaves it to the next one to show in
// the interrupted run which run goes on from it.
func TestContinuationIsTold(t *testing.T) {
	w := newWorld(t)
	w.host.keeps = true
	e := w.boot(run.Limits{})
	first := w.interrupted(e, "t1")
	res, err := w.decide(e, first, approve("t1"))
	if err != nil {
		t.Fatal(err)
	}
	wk := e.begun(*res.Run)
	e.leave()
	doc, err := w.store.Run(w.ctx, first.ID)
	if err != nil {
		t.Fatal(err)
	}
	unsaid := *doc.Interrupt
	unsaid.Settled, unsaid.ResumedBy = "", ""
	doc.Rev, doc.Interrupt = doc.Rev+1, &unsaid
	if err := w.store.UpdateRun(w.ctx, doc); err != nil {
		t.Fatal(err)
	}
	e2 := w.boot(run.Limits{})
	if err := e2.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	wk.say(res.Run.ID, event.ToolFinished{ToolCallID: "t1", Result: "ok"}, done)
	last[event.RunFinished](t, e2.events(res.Run.ID))
	if doc, err = w.store.Run(w.ctx, first.ID); err != nil || doc.Interrupt.Settled != session.Resumed || doc.Interrupt.ResumedBy != res.Run.ID {
		t.Fatalf("the interrupt is %+v (%v), want it resumed by %s", doc.Interrupt, err, res.Run.ID)
	}
}
