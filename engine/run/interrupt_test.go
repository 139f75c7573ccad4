package run_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// ask lets the run end in an approval of the calls.
func (w *worker) ask(runID string, calls ...string) {
	q := event.InterruptRequested{InterruptID: id.OfInterrupt(runID), Kind: event.InterruptApproval, Revision: 1}
	for _, c := range calls {
		w.say(runID, event.ToolStarted{ToolCallID: c, Name: "delete"})
		q.Calls = append(q.Calls, event.ApprovalCall{ToolCallID: c, Name: "delete", Arguments: json.RawMessage(`{"path":"/a"}`),
			Allowed: []string{"approve", "edit", "reject"}, Schema: json.RawMessage(`{"type":"object","required":["path"],"properties":{"path":{"type":"string"}}}`)})
	}
	w.say(runID, q, event.RunInterrupted{InterruptID: q.InterruptID, Reason: "approval"})
}

// interrupted starts a run and lets it ask.
func (w *world) interrupted(e *engine, calls ...string) run.Run {
	w.t.Helper()
	r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	e.begun(r).ask(r.ID, calls...)
	e.events(r.ID)
	return w.settled(r.ID)
}

func approve(calls ...string) harness.Decision {
	var d harness.Decision
	for _, c := range calls {
		d.Calls = append(d.Calls, harness.CallDecision{ToolCallID: c, Verdict: harness.Approve})
	}
	return d
}

func (w *world) decide(e *engine, r run.Run, d harness.Decision) (run.ResumeResult, error) {
	return e.Resume(w.ctx, run.ResumeRequest{Caller: alice, InterruptID: id.OfInterrupt(r.ID), Revision: 1, Decision: d})
}

func TestApproval(t *testing.T) {
	for _, keeps := range []bool{true, false} {
		t.Run(fmt.Sprintf("keeps state %v", keeps), func(t *testing.T) {
			w := newWorld(t)
			w.host.keeps = keeps
			e := w.boot(run.Limits{})
			r := w.interrupted(e, "t1", "t2")
			if r.Status != run.StatusInterrupted || r.Interrupt == nil || r.Interrupt.Deadline == nil {
				t.Fatalf("run %+v", r)
			}
			b := w.binding(r.SessionID)
			if b.Active != nil || b.Pending == nil || b.Pending.Run != r.ID || (b.Head.Rev == 1) != keeps {
				t.Fatalf("binding %+v", b)
			}
			res, err := w.decide(e, r, approve("t2", "t1"))
			if err != nil {
				t.Fatal(err)
			}
			wk := e.begun(*res.Run)
			got := wk.runs[res.Run.ID].resume
			if got == nil || got.RunID != r.ID || len(got.Inherit.Tools) != 2 {
				t.Fatalf("resumed with %+v", got)
			}
			wk.say(res.Run.ID, event.ToolFinished{ToolCallID: "t1", Result: "ok"}, event.ToolFinished{ToolCallID: "t2", Result: "ok"}, done)
			events := e.events(res.Run.ID)
			last[event.RunFinished](t, events)
			if s := events[0].Data.(event.RunStarted); s.Continues != r.ID {
				t.Fatalf("started as %+v", s)
			}
			w.settled(res.Run.ID)
			if r, err = w.store.Run(w.ctx, r.ID); err != nil || r.Interrupt.Settled != session.Resumed || r.Interrupt.ResumedBy != res.Run.ID {
				t.Fatalf("interrupt %+v, %v", r.Interrupt, err)
			}
			// Deciding the same again gives the same run, deciding otherwise is refused.
			again, err := w.decide(e, r, approve("t1", "t2"))
			if err != nil || again.Run.ID != res.Run.ID {
				t.Fatalf("again: %+v, %v", again, err)
			}
			_, err = w.decide(e, r, harness.Decision{Calls: []harness.CallDecision{{ToolCallID: "t1", Verdict: harness.Reject}, {ToolCallID: "t2", Verdict: harness.Approve}}})
			wantCode(t, err, problem.InterruptConflict)
		})
	}
}

func TestDecisionsThatDoNotAnswer(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	r := w.interrupted(e, "t1", "t2")
	one := func(d harness.CallDecision) harness.Decision {
		return harness.Decision{Calls: []harness.CallDecision{d, {ToolCallID: "t2", Verdict: harness.Approve}}}
	}
	for name, c := range map[string]struct {
		d     harness.Decision
		field string
	}{
		"nothing":            {harness.Decision{}, "input.decision"},
		"a form":             {harness.Decision{Form: json.RawMessage(`{}`)}, "input.decision"},
		"one of two":         {approve("t1"), "input.decision.calls"},
		"twice":              {approve("t1", "t1"), "input.decision.calls[1].toolCallId"},
		"unknown call":       {approve("t1", "t3"), "input.decision.calls[1].toolCallId"},
		"unknown verdict":    {one(harness.CallDecision{ToolCallID: "t1", Verdict: "maybe"}), "input.decision.calls[0].decision"},
		"edit to no object":  {one(harness.CallDecision{ToolCallID: "t1", Verdict: harness.Edit, Arguments: json.RawMessage(`[1]`)}), "input.decision.calls[0].decision.edit.arguments"},
		"edit to nothing":    {one(harness.CallDecision{ToolCallID: "t1", Verdict: harness.Edit}), "input.decision.calls[0].decision.edit.arguments"},
		"edit out of schema": {one(harness.CallDecision{ToolCallID: "t1", Verdict: harness.Edit, Arguments: json.RawMessage(`{"path":7}`)}), "input.decision.calls[0].decision.edit.arguments.path"},
		"edit too large":     {one(harness.CallDecision{ToolCallID: "t1", Verdict: harness.Edit, Arguments: json.RawMessage(`{"path":"` + strings.Repeat("x", run.MaxDecisionBytes) + `"}`)}), "input.decision.calls[0].decision.edit.arguments"},
		"long reason":        {one(harness.CallDecision{ToolCallID: "t1", Verdict: harness.Reject, Message: strings.Repeat("x", run.MaxReasonBytes+1)}), "input.decision.calls[0].decision.reject.message"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.decide(e, r, c.d)
			if p := wantCode(t, err, problem.BadUserInput); strings.Join(p.Field, ".") != c.field {
				t.Fatalf("field %v, want %s", p.Field, c.field)
			}
		})
	}
	_, err := e.Resume(w.ctx, run.ResumeRequest{Caller: alice, InterruptID: id.OfInterrupt(r.ID), Revision: 2, Decision: approve("t1", "t2")})
	wantCode(t, err, problem.InterruptConflict)
	_, err = e.Resume(w.ctx, run.ResumeRequest{Caller: alice, InterruptID: "int_none", Revision: 1, Decision: approve("t1")})
	wantCode(t, err, problem.NotFound)
	if b := w.binding(r.SessionID); b.Pending == nil {
		t.Fatal("a decision that did not answer settled the interrupt")
	}
}

func TestForm(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	e.begun(r).say(r.ID, event.InterruptRequested{InterruptID: id.OfInterrupt(r.ID), Kind: event.InterruptForm, Prompt: "Who?", Revision: 1, Fields: []event.FormField{
		{Name: "name", Kind: "string", Required: true}, {Name: "age", Kind: "number"}, {Name: "ok", Kind: "boolean"}, {Name: "pet", Kind: "choice", Choices: []string{"cat", "dog"}}}},
		event.RunInterrupted{InterruptID: id.OfInterrupt(r.ID), Reason: "form"})
	e.events(r.ID)
	r = w.settled(r.ID)
	for form, field := range map[string]string{
		`{"age":3}`: ".name", `{"name":"x","age":"3"}`: ".age", `{"name":"x","ok":1}`: ".ok", `{"name":"x","pet":"cow"}`: ".pet",
		`{"name":"x","more":1}`: "", `[]`: "", `null`: "", `{"name":"\u0000"}`: ".name",
	} {
		_, err := w.decide(e, r, harness.Decision{Form: json.RawMessage(form)})
		if p := wantCode(t, err, problem.BadUserInput); strings.Join(p.Field, ".") != "input.decision.form"+field {
			t.Errorf("%s: field %v", form, p.Field)
		}
	}
	res, err := w.decide(e, r, harness.Decision{Form: json.RawMessage(`{"name":"Ada","pet":"dog"}`)})
	if err != nil {
		t.Fatal(err)
	}
	e.begun(*res.Run).say(res.Run.ID, done)
	last[event.RunFinished](t, e.events(res.Run.ID))
}

// TestDecisionOnTheTerminal: who has seen run.interrupted may decide at once.
func TestDecisionOnTheTerminal(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	for range 20 {
		r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
		e.begun(r).ask(r.ID, "t1")
		e.events(r.ID)
		res, err := w.decide(e, r, approve("t1"))
		if err != nil {
			t.Fatal(err)
		}
		e.begun(*res.Run).say(res.Run.ID, event.ToolFinished{ToolCallID: "t1", Result: "ok"}, done)
		e.events(res.Run.ID)
	}
}

// TestResumeRace has a thousand decisions at once: one run; who decided the same gets it, the others are refused.
func TestResumeRace(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	r := w.interrupted(e, "t1")
	decisions := []harness.Decision{approve("t1"),
		{Calls: []harness.CallDecision{{ToolCallID: "t1", Verdict: harness.Reject, Message: "no"}}},
		{Calls: []harness.CallDecision{{ToolCallID: "t1", Verdict: harness.Edit, Arguments: json.RawMessage(`{"path":"/b"}`)}}}}
	var mu sync.Mutex
	won := map[string]map[int]bool{}
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			res, err := w.decide(e, r, decisions[i%len(decisions)])
			if err != nil {
				if !problem.Is(err, problem.InterruptConflict) {
					t.Errorf("decision %d: %v", i, err)
				}
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if won[res.Run.ID] == nil {
				won[res.Run.ID] = map[int]bool{}
			}
			won[res.Run.ID][i%len(decisions)] = true
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("runs %v", won)
	}
	for runID, by := range won {
		if len(by) != 1 {
			t.Fatalf("run %s came of the decisions %v", runID, by)
		}
		e.begun(run.Run{ID: runID})
		if w.host.begun(runID) != 1 {
			t.Fatalf("the turn was started %d times", w.host.begun(runID))
		}
	}
}

func TestInterruptGivenUp(t *testing.T) {
	t.Run("dismissed", func(t *testing.T) {
		w := newWorld(t)
		e := w.boot(run.Limits{})
		r := w.interrupted(e, "t1")
		for range 2 {
			res, err := e.Resume(w.ctx, run.ResumeRequest{Caller: alice, InterruptID: id.OfInterrupt(r.ID), Revision: 1, Dismiss: true})
			if err != nil || res.Run != nil || res.Session.Pending != nil {
				t.Fatalf("dismissed: %+v, %v", res, err)
			}
		}
		_, err := w.decide(e, r, approve("t1"))
		wantCode(t, err, problem.InterruptConflict)
		e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
	})
	t.Run("expired", func(t *testing.T) {
		w := newWorld(t)
		e := w.boot(run.Limits{InterruptDeadline: 50 * time.Millisecond})
		r := w.interrupted(e, "t1")
		w.eventually(func() bool { return w.binding(r.SessionID).Pending == nil })
		_, err := w.decide(e, r, approve("t1"))
		if p := wantCode(t, err, problem.InterruptConflict); p.Extra["settled"] != "EXPIRED" {
			t.Fatalf("refused with %v", p.Extra)
		}
	})
	t.Run("expired while no engine ran", func(t *testing.T) {
		w := newWorld(t)
		e := w.boot(run.Limits{InterruptDeadline: 50 * time.Millisecond})
		r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
		e.begun(r).ask(r.ID, "t1")
		e.events(r.ID)
		w.settled(r.ID)
		e.leave()
		e = w.boot(run.Limits{})
		if err := e.Recover(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.eventually(func() bool { return w.binding(r.SessionID).Pending == nil })
	})
	t.Run("superseded", func(t *testing.T) {
		w := newWorld(t)
		e := w.boot(run.Limits{})
		r := w.interrupted(e, "t1")
		e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
		_, err := w.decide(e, r, approve("t1"))
		if p := wantCode(t, err, problem.InterruptConflict); p.Extra["settled"] != "SUPERSEDED" {
			t.Fatalf("refused with %v", p.Extra)
		}
	})
	t.Run("cleared", func(t *testing.T) {
		w := newWorld(t)
		e := w.boot(run.Limits{})
		r := w.interrupted(e, "t1")
		if _, err := e.Clear(w.ctx, r.SessionID); err != nil {
			t.Fatal(err)
		}
		_, err := w.decide(e, r, approve("t1"))
		wantCode(t, err, problem.InterruptConflict)
	})
}

func TestInterruptLost(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	r := w.interrupted(e, "t1")
	wk := w.host.only()
	wk.mu.Lock()
	wk.lost = true
	wk.mu.Unlock()
	res, err := w.decide(e, r, approve("t1"))
	if err != nil {
		t.Fatal(err)
	}
	if end := last[event.RunError](t, e.events(res.Run.ID)); end.Code != "interrupt_lost" {
		t.Fatalf("ended as %+v", end)
	}
	w.settled(res.Run.ID)
	e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
}

// TestWorkerHearsOfDismissal: what waits in a worker must not keep it when nobody will decide.
func TestWorkerHearsOfDismissal(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	r := w.interrupted(e, "t1")
	wk := w.host.only()
	if _, err := e.Resume(w.ctx, run.ResumeRequest{Caller: alice, InterruptID: id.OfInterrupt(r.ID), Revision: 1, Dismiss: true}); err != nil {
		t.Fatal(err)
	}
	w.eventually(func() bool {
		wk.mu.Lock()
		defer wk.mu.Unlock()
		return slices.Contains(wk.cancelled, r.ID)
	})
}

// TestInterruptSurvivesItsEngine: a decision counts after the engine's death, also when it was accepted just before.
func TestInterruptSurvivesItsEngine(t *testing.T) {
	w := newWorld(t)
	w.host.keeps = true
	e := w.boot(run.Limits{})
	r := w.interrupted(e, "t1")
	e.leave()
	accepted := run.Run{ID: id.Keyed(id.Run, w.secret, "resume", id.OfInterrupt(r.ID), "1"), Rev: 1, Status: run.StatusAdmitting, Environment: "test",
		Subject: "alice", SessionID: r.SessionID, AgentID: r.AgentID, RequestDigest: "d", CreatedAt: time.Now(),
		Continues: &run.Continuation{Run: r.ID, Interrupt: id.OfInterrupt(r.ID), Revision: 1, Decision: approve("t1")}}
	if err := w.store.InsertRun(w.ctx, accepted); err != nil {
		t.Fatal(err)
	}
	w.host.only().kill()
	e = w.boot(run.Limits{})
	if err := e.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.eventually(func() bool { return w.host.begun(accepted.ID) == 1 })
	wk := e.begun(accepted)
	wk.say(accepted.ID, event.ToolFinished{ToolCallID: "t1", Result: "ok"}, done)
	last[event.RunFinished](t, e.events(accepted.ID))
	if got := w.heard(); got != "wait,decided [{t1 approve [] }]" {
		t.Fatalf("state %s", got)
	}
}
