package run_test

import (
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// TestSettlementIsNotForgotten: an engine that died between the settling of an interrupt and its being shown in the run
// leaves that to the binding, which knows of one interrupt only. The next one must not make the first look superseded.
func TestSettlementIsNotForgotten(t *testing.T) {
	for _, how := range []session.Settlement{session.Resumed, session.Dismissed, session.Expired} {
		t.Run(string(how), func(t *testing.T) {
			w := newWorld(t)
			w.host.keeps = true
			e := w.boot(run.Limits{})
			first := w.interrupted(e, "t1")
			interrupt := id.OfInterrupt(first.ID)
			decision := run.Run{}
			if how == session.Resumed {
				res, err := w.decide(e, first, approve("t1"))
				if err != nil {
					t.Fatal(err)
				}
				decision = *res.Run
				e.begun(decision).say(decision.ID, event.ToolFinished{ToolCallID: "t1", Result: "ok"}, done)
				e.events(decision.ID)
				w.eventually(func() bool { return w.binding(first.SessionID).Active == nil })
			} else if _, err := session.Mutate(w.ctx, w.store, first.SessionID, time.Now, func(b session.Binding, op session.Op) (session.Binding, error) {
				return session.Settle(b, interrupt, 1, how, "boot", op)
			}); err != nil {
				t.Fatal(err)
			}
			doc, err := w.store.Run(w.ctx, first.ID)
			if err != nil {
				t.Fatal(err)
			}
			unsaid := *doc.Interrupt // as the engine left it that died before it wrote this
			unsaid.Settled, unsaid.ResumedBy = "", ""
			doc.Rev, doc.Interrupt = doc.Rev+1, &unsaid
			if err := w.store.UpdateRun(w.ctx, doc); err != nil {
				t.Fatal(err)
			}

			second := w.interrupted(e, "t2")
			if _, err := e.Resume(w.ctx, run.ResumeRequest{Caller: alice, InterruptID: id.OfInterrupt(second.ID), Revision: 1, Dismiss: true}); err != nil {
				t.Fatal(err)
			}
			if doc, err = w.store.Run(w.ctx, first.ID); err != nil || doc.Interrupt.Settled != how || doc.Interrupt.ResumedBy != decision.ID {
				t.Fatalf("the first interrupt is %+v (%v), want it %s by %q", doc.Interrupt, err, how, decision.ID)
			}
		})
	}
}
