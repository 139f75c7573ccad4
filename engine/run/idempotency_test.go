package run_test

import (
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
)

// TestIdempotencyKeyIsFreeAgain uses a key again a day after its run has ended, and for another request: until then it
// stands for the run, then for the next one.
func TestIdempotencyKeyIsFreeAgain(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	age := func(id string, by time.Duration) {
		t.Helper()
		r := w.settled(id)
		at := r.EndedAt.Add(-by)
		r.EndedAt, r.Rev = &at, r.Rev+1
		if err := w.store.UpdateRun(w.ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	ids := map[string]bool{}
	for range 3 {
		first := w.start(e, run.StartRequest{Text: "hello", IdempotencyKey: "k"})
		e.events(first.ID)
		if ids[first.ID] {
			t.Fatalf("the key still stands for %s", first.ID)
		}
		ids[first.ID] = true
		age(first.ID, 24*time.Hour-time.Minute)
		if again := w.start(e, run.StartRequest{Text: "hello", IdempotencyKey: "k"}); again.ID != first.ID {
			t.Fatalf("within a day the key stood for %s, then for %s", first.ID, again.ID)
		}
		_, err := e.Start(w.ctx, w.request(run.StartRequest{Text: "other", IdempotencyKey: "k"}))
		wantCode(t, err, problem.IdempotencyConflict)
		age(first.ID, time.Minute)
	}
}
