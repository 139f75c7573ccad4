package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/store/sqlite"
)

var alice = authz.Caller{Environment: "test", Subject: "alice"}

// world is what outlives an engine: the store, the host with its workers, the agent that a user edits.
type world struct {
	t       *testing.T
	ctx     context.Context
	store   *sqlite.Store
	host    *workers
	agent   agent.Agent
	secret  []byte
	ready   error // what the catalog says of the harness
	allowed bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	store, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(t.TempDir(), "engine.sqlite"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	w := &world{t: t, ctx: ctx, store: store, host: newWorkers(), secret: make([]byte, 32), allowed: true}
	w.agent = agent.Agent{ID: id.New(id.Agent), Rev: 1, State: agent.StateActive, Environment: "test", Owner: "alice", Slug: "a", Version: 1}
	if err := store.InsertAgent(ctx, w.agent); err != nil {
		t.Fatal(err)
	}
	w.version(1)
	return w
}

// version stores a version of the agent and makes it current.
func (w *world) version(n int64) {
	w.t.Helper()
	v := agent.Version{AgentID: w.agent.ID, Number: n, Blueprint: agent.Blueprint{Name: fmt.Sprintf("v%d", n), Harness: agent.Harness{ID: "scripted"}}}
	if err := w.store.InsertVersion(w.ctx, v); err != nil {
		w.t.Fatal(err)
	}
	if n > 1 {
		w.agent.Rev, w.agent.Version = w.agent.Rev+1, n
		if err := w.store.UpdateAgent(w.ctx, w.agent); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) Ready(context.Context, string) error { return w.ready }
func (w *world) Descriptor(string) (harness.Descriptor, bool) {
	return harness.Descriptor{ID: "scripted", AdapterVersion: "1.0.0"}, true
}
func (w *world) DefaultModel(string) harness.ModelRef                    { return harness.ModelRef{} }
func (w *world) Mint(harness.Binding, string, time.Time) (string, error) { return "capability", nil }
func (w *world) Check(context.Context, authz.Check) (bool, error)        { return w.allowed, nil }
func (w *world) CheckAll(_ context.Context, cs []authz.Check) ([]bool, error) {
	return make([]bool, len(cs)), nil
}

// engine is one boot of the coordinator.
type engine struct {
	*run.Coordinator
	*world
	hub *event.Hub
}

func (w *world) boot(limits run.Limits) *engine {
	hub := event.NewHub(event.HubOptions{Log: w.store, Poll: 50 * time.Millisecond})
	c := run.New(run.Options{
		Runs: w.store, Sessions: w.store, Events: w.store, Publish: hub.Publish, Agents: w.store, Harnesses: w, Workers: w.host,
		Capabilities: w, Authz: w, Secret: w.secret, Boot: id.New(id.Boot), Limits: limits,
	})
	e := &engine{Coordinator: c, world: w, hub: hub}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.Drain(ctx); err != nil {
			w.t.Errorf("drain: %v", err)
		}
		hub.Close()
	})
	return e
}

func (w *world) start(e *engine, req run.StartRequest) run.Run {
	w.t.Helper()
	r, err := e.Start(w.ctx, w.request(req))
	if err != nil {
		w.t.Fatalf("start: %v", err)
	}
	return r
}

func (w *world) request(req run.StartRequest) run.StartRequest {
	req.Caller, req.AgentID = alice, w.agent.ID
	return req
}

// events reads the run to its terminal, through the hub as a client does.
func (e *engine) events(runID string) []event.Event {
	e.t.Helper()
	sub := e.hub.Subscribe(runID, 0)
	var all []event.Event
	for {
		d, err := sub.Next(e.ctx, 100)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			e.t.Fatalf("events of %s after %d: %v", runID, len(all), err)
		}
		all = append(all, d.Events...)
	}
}

// settled waits until the run has ended and its conversation is free, and returns the run.
func (w *world) settled(runID string) run.Run {
	w.t.Helper()
	var r run.Run
	w.eventually(func() bool {
		var err error
		if r, err = w.store.Run(w.ctx, runID); err != nil || !r.Status.Ended() {
			return false
		}
		b, err := w.store.Session(w.ctx, r.SessionID)
		return err == nil && (b.Active == nil || b.Active.Run != runID)
	})
	return r
}

// eventually asks again until the condition holds or the test's time is over.
func (w *world) eventually(holds func() bool) {
	w.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatal("waited in vain")
		}
	}
}

// begun waits until the run's turn is on its worker and its first event is logged.
func (e *engine) begun(r run.Run) *worker {
	e.t.Helper()
	e.eventually(func() bool { return e.host.only() != nil })
	w := e.host.only()
	if err := w.waitTurn(e.ctx, r.ID); err != nil {
		e.t.Fatal(err)
	}
	return w
}

func types(events []event.Event) string {
	var s []string
	for _, e := range events {
		s = append(s, string(e.Type()))
	}
	return strings.Join(s, " ")
}

func wantCode(t *testing.T, err error, code problem.Code) *problem.Error {
	t.Helper()
	p, ok := problem.As(err)
	if !ok || p.Code != code {
		t.Fatalf("got %v, want %s", err, code)
	}
	return p
}

func last[T event.Data](t *testing.T, events []event.Event) T {
	t.Helper()
	if len(events) == 0 {
		t.Fatal("no events")
	}
	d, ok := events[len(events)-1].Data.(T)
	if !ok {
		t.Fatalf("ended as %+v", events[len(events)-1].Data)
	}
	return d
}

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
	if w.host.starts != 1 || r2.Ord != 2 || r2.SessionID != r.SessionID {
		t.Fatalf("second turn: %d workers, run %+v", w.host.starts, r2)
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
		"empty text":         {run.StartRequest{Text: " \n"}, "input.message.text", problem.BadUserInput},
		"long text":          {run.StartRequest{Text: strings.Repeat("x", run.MaxTextBytes+1)}, "input.message.text", problem.BadUserInput},
		"bad utf-8":          {run.StartRequest{Text: "a\xff"}, "input.message.text", problem.BadUserInput},
		"nul in text":        {run.StartRequest{Text: "a\x00b"}, "input.message.text", problem.BadUserInput},
		"long conversation":  {run.StartRequest{Text: "x", ConversationID: strings.Repeat("x", 129)}, "input.conversationId", problem.BadUserInput},
		"newline in name":    {run.StartRequest{Text: "x", ConversationID: "a\nb"}, "input.conversationId", problem.BadUserInput},
		"bidi in name":       {run.StartRequest{Text: "x", ConversationID: "a\u202eb"}, "input.conversationId", problem.BadUserInput},
		"long key":           {run.StartRequest{Text: "x", IdempotencyKey: strings.Repeat("x", 129)}, "input.idempotencyKey", problem.BadUserInput},
		"unknown policy":     {run.StartRequest{Text: "x", Policy: "SOMETIMES"}, "input.busyPolicy", problem.BadUserInput},
		"policy not built":   {run.StartRequest{Text: "x", Policy: run.BusyEnqueue}, "", problem.CapabilityUnsupported},
		"interrupt no built": {run.StartRequest{Text: "x", Policy: run.BusyInterrupt}, "", problem.CapabilityUnsupported},
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
	if n := w.host.turns[ids[0]]; n != 1 {
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

func TestCancel(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		effects event.SideEffects
	}{
		"obeyed": {"wait", event.SideEffectsNone}, "not obeyed": {"deaf", event.SideEffectsPossible},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			e := w.boot(run.Limits{CancelGrace: 30 * time.Millisecond})
			r := w.start(e, run.StartRequest{Text: c.text, ConversationID: "c"})
			e.begun(r)
			for range 2 {
				if _, err := e.Cancel(w.ctx, r.ID); err != nil {
					t.Fatal(err)
				}
			}
			end := last[event.RunCancelled](t, e.events(r.ID))
			if end.Reason != event.CancelClientRequest || end.SideEffects != c.effects {
				t.Fatalf("cancelled as %+v", end)
			}
			if r = w.settled(r.ID); r.Status != run.StatusCancelled {
				t.Fatalf("projected as %s", r.Status)
			}
			e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
			if r, err := e.Cancel(w.ctx, r.ID); err != nil || r.Status != run.StatusCancelled {
				t.Fatalf("cancel after the end: %v, %v", r.Status, err)
			}
		})
	}
	w := newWorld(t)
	_, err := w.boot(run.Limits{}).Cancel(w.ctx, "run_none")
	wantCode(t, err, problem.NotFound)
}

func TestDeadline(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{MaxRunDuration: 50 * time.Millisecond})
	r := w.start(e, run.StartRequest{Text: "wait"})
	if end := last[event.RunCancelled](t, e.events(r.ID)); end.Reason != event.CancelDeadline {
		t.Fatalf("ended as %+v", end)
	}
}

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

// leave lets an engine go in mid-run, as its death does, as far as the store and the worker can tell.
func (e *engine) leave() {
	e.t.Helper()
	if err := e.Drain(e.ctx); err != nil {
		e.t.Fatal(err)
	}
}

func TestTakeover(t *testing.T) {
	w := newWorld(t)
	e1 := w.boot(run.Limits{})
	r := w.start(e1, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e1.begun(r)
	wk.say(r.ID, event.TextStarted{MessageID: "m", Role: "assistant"}, event.TextDelta{MessageID: "m", Delta: "one "})
	e1.leave()
	wk.say(r.ID, event.TextDelta{MessageID: "m", Delta: "two "})

	e2 := w.boot(run.Limits{})
	if err := e2.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	wk.say(r.ID, event.TextDelta{MessageID: "m", Delta: "three"}, done)
	events := e2.events(r.ID)
	r = w.settled(r.ID)
	if r.Status != run.StatusFinished || r.Output[0].Text != "one two three" {
		t.Fatalf("after takeover: %s, %+v", r.Status, r.Output)
	}
	if n := w.host.turns[r.ID]; n != 1 {
		t.Fatalf("the turn was started %d times", n)
	}
	var recovered int
	for i, ev := range events {
		if ev.Sequence != int64(i+1) {
			t.Fatalf("event %d has sequence %d", i, ev.Sequence)
		}
		if d, ok := ev.Data.(event.RunRecovered); ok {
			recovered++
			if d.Generation != 2 {
				t.Fatalf("recovered under generation %d", d.Generation)
			}
		}
	}
	if recovered != 1 {
		t.Fatalf("%d fences in %s", recovered, types(events))
	}
}

func TestTakeoverWithoutItsWorker(t *testing.T) {
	w := newWorld(t)
	e1 := w.boot(run.Limits{})
	r := w.start(e1, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e1.begun(r)
	e1.leave()
	wk.kill()
	e2 := w.boot(run.Limits{})
	if err := e2.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	if end := last[event.RunError](t, e2.events(r.ID)); end.Code != "worker_lost" || end.SideEffects != event.SideEffectsPossible {
		t.Fatalf("ended as %+v", end)
	}
	w.settled(r.ID)
	e2.events(w.start(e2, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
}

// TestTwoOwners takes a run over from an engine that still lives: the loser stops, and cancels nothing.
func TestTwoOwners(t *testing.T) {
	w := newWorld(t)
	e1 := w.boot(run.Limits{})
	r := w.start(e1, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e1.begun(r)
	e2 := w.boot(run.Limits{})
	if err := e2.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.eventually(func() bool { // until the fence is in the log
		tail, err := w.store.Tail(w.ctx, r.ID)
		return err == nil && tail.Gen == 2
	})
	wk.say(r.ID, event.TextStarted{MessageID: "m", Role: "assistant"}, event.TextDelta{MessageID: "m", Delta: "x"}, done)
	events := e2.events(r.ID)
	last[event.RunFinished](t, events)
	if got := types(events); strings.Count(got, "text.delta") != 1 || strings.Count(got, "run.recovered") != 1 {
		t.Fatalf("events: %s", got)
	}
	w.settled(r.ID)
	if len(w.host.destroyed) != 0 {
		t.Fatalf("destroyed %v", w.host.destroyed)
	}
}

func TestCancelSurvivesItsEngine(t *testing.T) {
	w := newWorld(t)
	e1 := w.boot(run.Limits{CancelGrace: time.Hour})
	r := w.start(e1, run.StartRequest{Text: "deaf", ConversationID: "c"})
	wk := e1.begun(r)
	if _, err := e1.Cancel(w.ctx, r.ID); err != nil {
		t.Fatal(err)
	}
	e1.leave()
	wk.mu.Lock()
	wk.deaf = false
	wk.mu.Unlock()
	e2 := w.boot(run.Limits{})
	if err := e2.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	last[event.RunCancelled](t, e2.events(r.ID))
}

func TestClear(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	say := func() run.Run {
		t.Helper()
		r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
		e.events(r.ID)
		return w.settled(r.ID)
	}
	first := say()
	w.version(2)
	if r := say(); r.AgentVersion != 1 {
		t.Fatalf("the conversation moved to version %d", r.AgentVersion)
	}
	b, err := e.Clear(w.ctx, first.SessionID)
	if err != nil || b.Epoch != 2 {
		t.Fatalf("cleared to %+v, %v", b, err)
	}
	if !slices.Contains(w.host.forgotten, first.SessionID+"/1") || w.host.only() != nil {
		t.Fatalf("forgotten %v, worker %v", w.host.forgotten, w.host.only())
	}
	r := say()
	if r.AgentVersion != 2 || r.Epoch != 2 || r.SessionID != first.SessionID {
		t.Fatalf("after clear: %+v", r)
	}

	// Clear under an active run: it is cancelled, and only then may the next epoch begin.
	r = w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	e.begun(r)
	if b, err = e.Clear(w.ctx, r.SessionID); err != nil || b.Epoch != 3 {
		t.Fatalf("cleared to %+v, %v", b, err)
	}
	if end := last[event.RunCancelled](t, e.events(r.ID)); end.Reason != event.CancelSessionCleared {
		t.Fatalf("ended as %+v", end)
	}
	w.settled(r.ID)
	w.eventually(func() bool {
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		return slices.Contains(w.host.forgotten, r.SessionID+"/2")
	})
	if r = say(); r.Epoch != 3 {
		t.Fatalf("after the second clear: %+v", r)
	}
	_, err = e.Clear(w.ctx, "ses_none")
	wantCode(t, err, problem.NotFound)
}

func TestRecoverCutOffAdmissions(t *testing.T) {
	w := newWorld(t)
	digest := "d"
	insert := func(key string, onBinding bool) run.Run {
		t.Helper()
		r := run.Run{ID: id.New(id.Run), Rev: 1, Status: run.StatusAdmitting, Environment: "test", Subject: "alice", AgentID: w.agent.ID,
			SessionID: id.New(id.Session), Input: run.Input{Text: "hello"}, IdempotencyKey: key, RequestDigest: digest, CreatedAt: time.Now()}
		if err := w.store.InsertRun(w.ctx, r); err != nil {
			t.Fatal(err)
		}
		if onBinding {
			b := session.New(r.SessionID, session.Key{Environment: "test", Subject: "alice", AgentID: w.agent.ID, ConversationID: r.ID}, session.Op{ID: "x", Now: time.Now()})
			if err := w.store.InsertSession(w.ctx, b); err != nil {
				t.Fatal(err)
			}
			b, err := session.Admit(b, r.ID, "dead engine", session.Pin{AgentVersion: 1, Harness: "scripted"}, session.Op{ID: "y", Now: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.store.UpdateSession(w.ctx, b); err != nil {
				t.Fatal(err)
			}
		}
		return r
	}
	lost, keyed, bound := insert("", false), insert("k", false), insert("", true)
	e := w.boot(run.Limits{})
	if err := e.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	last[event.RunFinished](t, e.events(bound.ID))
	if r := w.settled(bound.ID); r.Status != run.StatusFinished || r.Ord != 1 {
		t.Fatalf("on its binding: %+v", r)
	}
	if r, err := w.store.Run(w.ctx, lost.ID); err != nil || r.Status != run.StatusRejected {
		t.Fatalf("without key: %+v, %v", r, err)
	}
	if r, err := w.store.Run(w.ctx, keyed.ID); err != nil || r.Status != run.StatusAdmitting {
		t.Fatalf("with key: %+v, %v", r, err)
	}

	// Cleared between its admission and its being queued, by an engine that died before it cancelled.
	cleared := insert("", true)
	b, err := w.store.Session(w.ctx, cleared.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.UpdateSession(w.ctx, session.Clear(b, session.Op{ID: "z", Now: time.Now()})); err != nil {
		t.Fatal(err)
	}
	e.leave()
	e = w.boot(run.Limits{})
	if err := e.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	if end := last[event.RunCancelled](t, e.events(cleared.ID)); end.Reason != event.CancelSessionCleared {
		t.Fatalf("cleared run ended as %+v", end)
	}
	w.settled(cleared.ID)

	w.allowed = false
	denied := insert("", true)
	e.leave()
	e2 := w.boot(run.Limits{})
	if err := e2.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	if end := last[event.RunError](t, e2.events(denied.ID)); end.Category != event.CategoryAuthorization {
		t.Fatalf("denied run ended as %+v", end)
	}
	if w.host.turns[denied.ID] != 0 {
		t.Fatal("a run was dispatched without permission")
	}
}

// TestRecoverBetweenSteps puts the store where a crash between two steps of a turn's end leaves it.
func TestRecoverBetweenSteps(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
	e.events(r.ID)
	r = w.settled(r.ID)
	e.leave()

	// Terminal logged, run not projected, binding not freed.
	unproject := func() {
		t.Helper()
		r.Rev++
		r.Status, r.Output, r.Terminal = run.StatusRunning, nil, json.RawMessage(nil)
		if err := w.store.UpdateRun(w.ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	unproject()
	b, err := w.store.Session(w.ctx, r.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	b.Rev++
	b.LeaseGen++
	b.Active = &session.Active{Run: r.ID, Ord: 1, Epoch: 1, Pin: session.Pin{AgentVersion: 1, Harness: "scripted"}, Gen: b.LeaseGen}
	if err := w.store.UpdateSession(w.ctx, b); err != nil {
		t.Fatal(err)
	}
	e = w.boot(run.Limits{})
	if err := e.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	if r = w.settled(r.ID); r.Status != run.StatusFinished || r.Output[0].Text != "hi there" {
		t.Fatalf("projected as %+v", r)
	}
	e.leave()

	// Binding freed, but the projection was lost.
	unproject()
	e = w.boot(run.Limits{})
	if err := e.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	if r = w.settled(r.ID); r.Status != run.StatusFinished {
		t.Fatalf("projected as %+v", r)
	}
	if len(e.events(r.ID)) != 6 {
		t.Fatal("recovery changed an ended log")
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

func TestIdleWorkerIsRetired(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{IdleWorker: 20 * time.Millisecond})
	r := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
	e.events(r.ID)
	w.eventually(func() bool { return w.host.only() == nil })
	b, err := w.store.Session(w.ctx, r.SessionID)
	if err != nil || b.Sandbox != nil {
		t.Fatalf("binding %+v, %v", b, err)
	}
	e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
}
