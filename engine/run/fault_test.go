package run_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/run"
)

func TestInvalidEventEndsTheRun(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	r := w.start(e, run.StartRequest{Text: "garbage", ConversationID: "c"})
	events := e.events(r.ID)
	end := last[event.RunError](t, events)
	if end.Code != event.CodeEventInvalid || end.Category != event.CategoryProtocol || end.SideEffects != event.SideEffectsPossible {
		t.Fatalf("ended as %+v", end)
	}
	if got := types(events); got != "run.started text.started text.finished run.error" {
		t.Fatalf("events: %s", got)
	}
	w.settled(r.ID)
	if w.host.only() != nil {
		t.Fatal("the worker that spoke garbage still serves")
	}
	e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
}

func TestNoWorker(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	w.host.full = true
	r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
	events := e.events(r.ID)
	end := last[event.RunError](t, events)
	if types(events) != "run.started run.error" || end.Category != event.CategoryCapacity || end.RetryAfterMs != 7000 || !end.Retryable || end.SideEffects != event.SideEffectsNone {
		t.Fatalf("%s: %+v", types(events), end)
	}
	w.settled(r.ID)
	w.host.full = false
	e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
}

func TestWorkerLostInTurn(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e.begun(r)
	wk.say(r.ID, event.TextStarted{MessageID: "m", Role: "assistant"}, event.TextDelta{MessageID: "m", Delta: "half"})
	wk.kill()
	end := last[event.RunError](t, e.events(r.ID))
	if end.Code != "worker_lost" || end.SideEffects != event.SideEffectsPossible || end.Thread.Durability != event.DurabilityUncertain {
		t.Fatalf("ended as %+v", end)
	}
	w.settled(r.ID)
	e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
}

// TestWorkerLostInTool: calls that were running when the worker was lost may have had their effects, also those of delegated
// agents.
func TestWorkerLostInTool(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e.begun(r)
	wk.say(r.ID, event.ToolStarted{ToolCallID: "a", Name: "task"}, event.NamespaceEntered{ID: "n", Name: "n", ParentToolCallID: "a"})
	wk.mu.Lock()
	j := wk.runs[r.ID]
	j.journal = append(j.journal, harness.SourceEvent{Seq: int64(len(j.journal)) + 1, Events: []event.Event{
		{Namespace: []string{"n"}, Data: event.ToolStarted{ToolCallID: "b", Name: "delete"}},
	}})
	wk.change()
	wk.mu.Unlock()
	sub := e.hub.Subscribe(r.ID, 0)
	defer sub.Close()
	for seen := 0; seen < 2; {
		d, err := sub.Next(e.ctx, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range d.Events {
			if ev.Type() == event.TypeToolStarted {
				seen++
			}
		}
	}
	wk.kill()
	events := e.events(r.ID)
	var codes []string
	for _, ev := range events {
		if d, ok := ev.Data.(event.ToolError); ok {
			codes = append(codes, d.ToolCallID+" "+d.Code)
		}
	}
	if len(codes) != 2 || codes[0] != "a outcome_unknown" || codes[1] != "b outcome_unknown" {
		t.Fatalf("tool errors %q in %s", codes, types(events))
	}
	if end := last[event.RunError](t, events); end.SideEffects != event.SideEffectsPossible {
		t.Fatalf("ended as %+v", end)
	}
}

// TestWorkerBreaksProtocol: a journal that jumps is no journal.
func TestWorkerBreaksProtocol(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e.begun(r)
	wk.mu.Lock()
	wk.runs[r.ID].journal = append(wk.runs[r.ID].journal, harness.SourceEvent{Seq: 2, Events: []event.Event{{Data: done}}})
	wk.change()
	wk.mu.Unlock()
	if end := last[event.RunError](t, e.events(r.ID)); end.Code != "worker_lost" {
		t.Fatalf("ended as %+v", end)
	}
	w.settled(r.ID)
	if w.host.only() != nil {
		t.Fatal("the worker still serves")
	}
}

// refusingLog refuses a number of appends after the first, and writes nothing then.
type refusingLog struct {
	event.Log
	refuse atomic.Int64
}

func (l *refusingLog) Append(ctx context.Context, c event.Chunk) error {
	if c.First > 1 && l.refuse.Add(-1) >= 0 {
		return errors.New("refused")
	}
	return l.Log.Append(ctx, c)
}

// TestStoreRefuses: a store that refuses for a while delays a run and takes nothing from it.
func TestStoreRefuses(t *testing.T) {
	w := newWorld(t)
	flaky := &refusingLog{Log: w.store}
	flaky.refuse.Store(8) // more than the writer tries by itself
	w.log = flaky
	e := w.boot(run.Limits{})
	r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
	if got := types(e.events(r.ID)); got != "run.started text.started text.delta text.delta text.finished run.finished" {
		t.Fatalf("events: %s", got)
	}
	if w.settled(r.ID).Status != run.StatusFinished || flaky.refuse.Load() >= 0 {
		t.Fatalf("%d refusals were left", flaky.refuse.Load())
	}
}
