package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// TestDrain stops the engine in mid-run as an operator does. The run goes on in its worker and the next engine takes
// it over; the worker of an idle conversation ends with the engine; when all is done nothing is left running.
func TestDrain(t *testing.T) {
	ctx := bounded(t)
	engine := ownEngine(t)
	c := clientOf(t, engine)
	agent := newAgent(ctx, t, c, scripted)
	ended, events := complete(ctx, t, c, agent.ID, "idle talk", "hello")
	wantFinished(t, events)
	const words = 60
	r := start(ctx, t, c, agent.ID, "busy talk", enginetest.Script(enginetest.CountHeld(words, 20*time.Millisecond)))
	seen := beforeKill(ctx, t, c, r.ID, 0, 5)
	if workers, err := engine.Workers(); err != nil || len(workers) != 2 {
		t.Fatalf("%d workers run (%v), want 2", len(workers), err)
	}
	if err := engine.Stop(); err != nil {
		t.Fatal(err)
	}
	if workers, err := engine.Workers(); err != nil || len(workers) != 1 {
		t.Fatalf("%d workers are left by the drained engine (%v), want that of the run in work only", len(workers), err)
	}
	if err := engine.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	c = clientOf(t, engine)
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
	if _, err := c.Settled(ctx, r.ID); err != nil {
		t.Fatal(err)
	}
	wantReplays(ctx, t, c, ended.ID, events) // of a run that the engine before has ended
	if err := engine.Stop(); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(ctx, t, engine)
}

// TestStopOnTerminal stops the engine the moment that the last run has ended: no run is at work then, so no worker may
// be left.
func TestStopOnTerminal(t *testing.T) {
	ctx := bounded(t)
	engine := ownEngine(t)
	agent := newAgent(ctx, t, clientOf(t, engine), scripted)
	for range 5 {
		c := clientOf(t, engine)
		r := start(ctx, t, c, agent.ID, "", "hello")
		w, err := c.Watch(ctx, r.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = w.Until(ctx, func(events []enginetest.Event) bool { return enginetest.Last(events).Terminal() })
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		if err := engine.Stop(); err != nil {
			t.Fatal(err)
		}
		wantNothingLeft(ctx, t, engine)
		if err := engine.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func wantNothingLeft(ctx context.Context, t *testing.T, engine *enginetest.Engine) {
	t.Helper()
	left, err := engine.Family()
	if err != nil {
		t.Fatal(err)
	}
	if err := enginetest.AwaitGone(ctx, left); err != nil { // those on their way out
		t.Fatal(err)
	}
}
