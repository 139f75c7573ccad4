package e2e

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/internal/fakemodel"
)

// beforeKill reads a run until some text has come.
func beforeKill(ctx context.Context, t *testing.T, c *enginetest.Client, runID string, after int64, deltas int) []enginetest.Event {
	t.Helper()
	w, err := c.Watch(ctx, runID, after)
	if err != nil {
		t.Fatal(err)
	}
	events, completed, err := w.Until(ctx, func(events []enginetest.Event) bool {
		return len(enginetest.Find(events, enginetest.TextDelta)) >= deltas
	})
	if err != nil {
		t.Fatal(err)
	}
	if completed || enginetest.Last(events).Terminal() {
		t.Fatalf("the run ended before the engine could be killed: %s", enginetest.Last(events))
	}
	w.Cut()
	return events
}

// TestKilledEngineContinues kills the engine in mid-text, twice: each new engine goes on with the worker that the one
// before left at work, and the log shows one whole text.
func TestKilledEngineContinues(t *testing.T) {
	ctx := bounded(t)
	engine := ownEngine(t)
	c := clientOf(t, engine)
	agent := newAgent(ctx, t, c, scripted)
	const words = 120
	r := start(ctx, t, c, agent.ID, "talk", enginetest.Script(enginetest.CountHeld(words, 20*time.Millisecond)))

	var seen []enginetest.Event
	for range 2 {
		seen = append(seen, beforeKill(ctx, t, c, r.ID, enginetest.Last(seen).Sequence, 15)...)
		engine.Kill()
		if workers, err := engine.Workers(); err != nil || len(workers) != 1 {
			t.Fatalf("%d workers are left by the killed engine (%v), want 1: it must outlive the engine", len(workers), err)
		}
		if err := engine.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		c = clientOf(t, engine)
	}
	release(ctx, t, engine, r.SessionID)
	rest, err := c.Follow(ctx, r.ID, enginetest.Last(seen).Sequence)
	if err != nil {
		t.Fatal(err)
	}
	seen = append(seen, rest...)

	if err := enginetest.CheckLog(seen); err != nil {
		t.Fatal(err)
	}
	wantFinished(t, seen)
	if got, want := enginetest.Text(seen), enginetest.Counted(words); got != want {
		t.Fatalf("text is %q, want %q", got, want)
	}
	recovered := enginetest.Find(seen, enginetest.RunRecovered)
	if len(recovered) != 2 || recovered[0].Generation >= recovered[1].Generation {
		t.Fatalf("the log has %v, want two run.recovered of rising generations", recovered)
	}
	wantReplays(ctx, t, c, r.ID, seen)
	wantProjection(ctx, t, c, r.ID, seen)

	_, events := complete(ctx, t, c, agent.ID, "talk", enginetest.Script(enginetest.Say("next")))
	wantFinished(t, events)
}

// engineWithModel is an engine whose model is the test's own and outlives it.
func engineWithModel(t *testing.T) *enginetest.Engine {
	t.Helper()
	model := httptest.NewServer(fakemodel.New(fakemodel.Options{}))
	t.Cleanup(model.Close) // after the engine's end
	const key = "no-secret"
	return ownEngine(t, "ANTHROPIC_API_KEY="+key, "OPENAI_API_KEY="+key, "ANTHROPIC_BASE_URL="+model.URL, "OPENAI_BASE_URL="+model.URL+"/v1")
}

// slowTwice has the model say ticks(n) twice; when it is asked for the first time it does not come to the second half: on a
// machine of any speed the turn is at work until the call is cut.
func slowTwice(n int) string { return fmt.Sprintf("[[slow %d 25]] [[hang 1]] [[slow %d 25]]", n, n) }

// TestKilledEngineCutsModelCall kills the engine, and with it the model's stream that passes through it, in mid-text: the
// half answer stands as a message of its own, the harness asks the model again through the next engine, and the run ends well.
func TestKilledEngineCutsModelCall(t *testing.T) {
	ctx := bounded(t)
	engine := engineWithModel(t)
	c := clientOf(t, engine)
	agent := newAgent(ctx, t, c, deepagents)
	const words = 30
	r := start(ctx, t, c, agent.ID, "talk", slowTwice(words))

	seen := beforeKill(ctx, t, c, r.ID, 0, 10)
	engine.Kill()
	if err := engine.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	c = clientOf(t, engine)
	rest, err := c.Follow(ctx, r.ID, enginetest.Last(seen).Sequence)
	if err != nil {
		t.Fatal(err)
	}
	seen = append(seen, rest...)
	if err := enginetest.CheckLog(seen); err != nil {
		t.Fatal(err)
	}
	if len(enginetest.Find(seen, enginetest.RunRecovered)) != 1 {
		t.Fatalf("the log has no run.recovered: %v", seen)
	}
	wantFinished(t, seen)
	if w := enginetest.Find(seen, enginetest.Warning); len(w) != 1 || w[0].Code != "model_call_retried" {
		t.Fatalf("warnings %v, want that the model was asked again", w)
	}
	var messages []string // their texts
	for _, e := range seen {
		switch e.Type {
		case enginetest.TextStarted:
			messages = append(messages, "")
		case enginetest.TextDelta:
			messages[len(messages)-1] += e.Delta
		}
	}
	if len(messages) != 2 || messages[1] != ticks(words)+ticks(words) || !strings.HasPrefix(messages[1], messages[0]) || len(messages[0]) >= len(messages[1]) {
		t.Fatalf("messages %q, want half of an answer and a whole one", messages)
	}
	wantReplays(ctx, t, c, r.ID, seen)

	_, events := complete(ctx, t, c, agent.ID, "talk", "[[text 3]]")
	wantFinished(t, events)
}

// TestKilledEngineAndWorker kills both: nobody can know what the turn did last, so the run ends as uncertain, is never
// dispatched again, and the conversation is free.
func TestKilledEngineAndWorker(t *testing.T) {
	ctx := bounded(t)
	engine := ownEngine(t)
	c := clientOf(t, engine)
	agent := newAgent(ctx, t, c, scripted)
	r := start(ctx, t, c, agent.ID, "talk", enginetest.Script(enginetest.Count(20, 10*time.Millisecond), enginetest.Hang()))
	seen := beforeKill(ctx, t, c, r.ID, 0, 5)
	engine.Kill()
	if n, err := engine.KillWorkers(ctx); err != nil || n != 1 {
		t.Fatalf("killed %d workers (%v), want 1", n, err)
	}
	if err := engine.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	c = clientOf(t, engine)
	rest, err := c.Follow(ctx, r.ID, enginetest.Last(seen).Sequence)
	if err != nil {
		t.Fatal(err)
	}
	seen = append(seen, rest...)
	if err := enginetest.CheckLog(seen); err != nil {
		t.Fatal(err)
	}
	end := enginetest.Last(seen)
	if end.Type != enginetest.RunFailed || end.Failure.SideEffects != "possible" || end.Thread.Durability != "UNCERTAIN" {
		t.Fatalf("the run ended with %s, want an error with possible side effects and an uncertain thread", end)
	}
	wantReplays(ctx, t, c, r.ID, seen)
	_, events := complete(ctx, t, c, agent.ID, "talk", enginetest.Script(enginetest.Say("next")))
	wantFinished(t, events)
}

// TestKilledEngineManyRuns kills the engine again and again under many conversations at once: every log is whole in
// the end, and every text complete.
func TestKilledEngineManyRuns(t *testing.T) {
	const (
		conversations = 8
		kills         = 3
		words         = 120
	)
	ctx := bounded(t)
	engine := ownEngine(t)
	c := clientOf(t, engine)
	agent := newAgent(ctx, t, c, scripted)
	var runs [conversations]enginetest.Run
	for i := range runs {
		runs[i] = start(ctx, t, c, agent.ID, fmt.Sprintf("talk %d", i), enginetest.Script(enginetest.CountHeld(words, 25*time.Millisecond)))
	}
	for kill := range kills {
		// Each time another run is the one that is looked at.
		beforeKill(ctx, t, c, runs[kill].ID, 0, 10*(kill+1))
		engine.Kill()
		if err := engine.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		c = clientOf(t, engine)
	}
	fences := 0
	for _, r := range runs {
		release(ctx, t, engine, r.SessionID)
		events, err := c.Follow(ctx, r.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := enginetest.CheckLog(events); err != nil {
			t.Fatal(err)
		}
		wantFinished(t, events)
		if got, want := enginetest.Text(events), enginetest.Counted(words); got != want {
			t.Fatalf("text is %q, want %q", got, want)
		}
		// A run that had not begun when the engine was killed is begun by the next, so there may be fewer fences.
		n := len(enginetest.Find(events, enginetest.RunRecovered))
		if n > kills {
			t.Fatalf("%d fences after %d kills", n, kills)
		}
		fences += n
	}
	if fences == 0 {
		t.Fatal("no run was taken over, so this shows nothing")
	}
}

// TestDeadWorkerEndsRun has the worker die in mid-turn under a living engine.
func TestDeadWorkerEndsRun(t *testing.T) {
	ctx := bounded(t)
	c := clientOf(t, sharedEngine(t))
	agent := newAgent(ctx, t, c, scripted)
	_, events := complete(ctx, t, c, agent.ID, "talk", enginetest.Script(enginetest.Count(5, 10*time.Millisecond), enginetest.Exit()))
	end := enginetest.Last(events)
	if end.Type != enginetest.RunFailed || end.Failure.Category != "unavailable" || end.Failure.SideEffects != "possible" {
		t.Fatalf("the run ended with %s, want it unavailable with possible side effects", end)
	}
	_, events = complete(ctx, t, c, agent.ID, "talk", enginetest.Script(enginetest.Say("next")))
	wantFinished(t, events)
}
