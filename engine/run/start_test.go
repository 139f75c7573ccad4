package run_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
)

func TestRunToItsEnd(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
	if r.Status != run.StatusQueued || r.AgentVersion != 1 || r.Harness != "scripted" {
		t.Fatalf("admitted as %+v", r)
	}
	events := e.events(r.ID)
	if got := types(events); got != "run.started text.started text.delta text.delta text.finished run.finished" {
		t.Fatalf("events: %s", got)
	}
	for i, ev := range events {
		if ev.Sequence != int64(i+1) || ev.RunID != r.ID || ev.SessionID != r.SessionID {
			t.Fatalf("event %d has envelope %+v", i, ev)
		}
	}
	started := events[0].Data.(event.RunStarted)
	if started.Isolation != event.IsolationNone || started.WorkerInstance == "" || started.SandboxGeneration != 1 {
		t.Fatalf("started: %+v", started)
	}
	r = w.settled(r.ID)
	if r.Status != run.StatusFinished || len(r.Output) != 1 || r.Output[0].Text != "hi there" || r.LastSequence != 6 || r.StartedAt == nil || r.EndedAt == nil {
		t.Fatalf("projected as %+v", r)
	}
	w.eventually(func() bool {
		wk := w.host.only()
		wk.mu.Lock()
		defer wk.mu.Unlock()
		return wk.runs[r.ID].acked == 5
	})
	// The next turn of the conversation finds the same worker.
	r2 := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
	e.events(r2.ID)
	if w.host.started() != 1 || r2.Ord != 2 || r2.SessionID != r.SessionID {
		t.Fatalf("second turn: %d workers, run %+v", w.host.started(), r2)
	}
}

func TestBadInput(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	for name, c := range map[string]struct {
		req   run.StartRequest
		field string
		code  problem.Code
	}{
		"empty text":        {run.StartRequest{Text: " \n"}, "input.message.text", problem.BadUserInput},
		"long text":         {run.StartRequest{Text: strings.Repeat("x", run.MaxTextBytes+1)}, "input.message.text", problem.BadUserInput},
		"bad utf-8":         {run.StartRequest{Text: "a\xff"}, "input.message.text", problem.BadUserInput},
		"nul in text":       {run.StartRequest{Text: "a\x00b"}, "input.message.text", problem.BadUserInput},
		"long conversation": {run.StartRequest{Text: "x", ConversationID: strings.Repeat("x", 129)}, "input.conversationId", problem.BadUserInput},
		"newline in name":   {run.StartRequest{Text: "x", ConversationID: "a\nb"}, "input.conversationId", problem.BadUserInput},
		"bidi in name":      {run.StartRequest{Text: "x", ConversationID: "a\u202eb"}, "input.conversationId", problem.BadUserInput},
		"long key":          {run.StartRequest{Text: "x", IdempotencyKey: strings.Repeat("x", 129)}, "input.idempotencyKey", problem.BadUserInput},
		"unknown policy":    {run.StartRequest{Text: "x", Policy: "SOMETIMES"}, "input.busyPolicy", problem.BadUserInput},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := e.Start(w.ctx, w.request(c.req))
			if p := wantCode(t, err, c.code); strings.Join(p.Field, ".") != c.field {
				t.Fatalf("field %v, want %s", p.Field, c.field)
			}
		})
	}
	left, err := w.store.UnfinishedRuns(w.ctx, "", 10)
	if err != nil || len(left) != 0 {
		t.Fatalf("bad input wrote %v, %v", left, err)
	}
}

func TestHarnessNotReady(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	w.ready = problem.New(problem.HarnessUnavailable, "no")
	_, err := e.Start(w.ctx, w.request(run.StartRequest{Text: "hello"}))
	wantCode(t, err, problem.HarnessUnavailable)
}

func TestIdempotencyKey(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	var wg sync.WaitGroup
	ids := make([]string, 50)
	for i := range ids {
		wg.Go(func() {
			r, err := e.Start(w.ctx, w.request(run.StartRequest{Text: "hello", IdempotencyKey: "k"}))
			if err != nil {
				t.Errorf("start %d: %v", i, err)
			}
			ids[i] = r.ID
		})
	}
	wg.Wait()
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) != 1 {
		t.Fatalf("one key made the runs %v", ids)
	}
	e.events(ids[0])
	w.settled(ids[0])
	if n := w.host.begun(ids[0]); n != 1 {
		t.Fatalf("the turn was started %d times", n)
	}
	_, err := e.Start(w.ctx, w.request(run.StartRequest{Text: "other", IdempotencyKey: "k"}))
	wantCode(t, err, problem.IdempotencyConflict)
	r := w.start(e, run.StartRequest{Text: "hello", IdempotencyKey: "k"})
	if r.ID != ids[0] || r.Status != run.StatusFinished {
		t.Fatalf("repeat after the end: %+v", r)
	}
}

func TestBusy(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	first := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e.begun(first)
	for _, key := range []string{"", "k", "k"} {
		_, err := e.Start(w.ctx, w.request(run.StartRequest{Text: "hello", ConversationID: "c", IdempotencyKey: key}))
		if p := wantCode(t, err, problem.SessionBusy); p.Extra["activeRunId"] != first.ID {
			t.Fatalf("busy with %v", p.Extra)
		}
	}
	wk.say(first.ID, done)
	w.settled(first.ID)
	// The refusal stands for its key; without one the conversation is free.
	_, err := e.Start(w.ctx, w.request(run.StartRequest{Text: "hello", ConversationID: "c", IdempotencyKey: "k"}))
	wantCode(t, err, problem.SessionBusy)
	e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
}

// TestOneActiveRun has many starts of one conversation at once: each is admitted or refused, and never do two overlap.
func TestOneActiveRun(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var admitted []string
	for range 40 {
		wg.Go(func() {
			r, err := e.Start(w.ctx, w.request(run.StartRequest{Text: "hello", ConversationID: "c"}))
			if err != nil {
				if !problem.Is(err, problem.SessionBusy) {
					t.Errorf("start: %v", err)
				}
				return
			}
			mu.Lock()
			admitted = append(admitted, r.ID)
			mu.Unlock()
		})
	}
	wg.Wait()
	ords := map[int64]string{}
	for _, runID := range admitted {
		r := w.settled(runID)
		if r.Status != run.StatusFinished || ords[r.Ord] != "" {
			t.Fatalf("run %s: %s, order %d also of %q", r.ID, r.Status, r.Ord, ords[r.Ord])
		}
		ords[r.Ord] = r.ID
	}
}

func TestCapacity(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{MaxRuns: 1})
	first := w.start(e, run.StartRequest{Text: "wait"})
	e.begun(first)
	_, err := e.Start(w.ctx, w.request(run.StartRequest{Text: "hello"}))
	wantCode(t, err, problem.Capacity)
}
