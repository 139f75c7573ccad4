package retention_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/retention"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/store/sqlite"
	"github.com/harness-engine/harness-engine/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var when = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

type world struct {
	*sqlite.Store
	t *testing.T
}

func newWorld(t *testing.T) world {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{
		Path: filepath.Join(t.TempDir(), "engine.sqlite"), Logger: slog.New(slog.DiscardHandler), ReserveBytes: -1, MinFreeBytes: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return world{s, t}
}

func (w world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// ended inserts a run that ended at a time, with a log of chunks of one event.
func (w world) ended(runID string, at time.Time, chunks int, change func(r *run.Run)) {
	w.t.Helper()
	r := run.Run{ID: runID, Rev: 1, Status: run.StatusFinished, Environment: "dev", Subject: "alice", SessionID: "ses_" + runID, Epoch: 1,
		AgentID: "agt_1", Input: run.Input{Text: "hi"}, CreatedAt: at, EndedAt: &at}
	for i := range int64(chunks) {
		c := storetest.MakeChunk(runID, i+1, 1, 1, "eng_1", 0)
		w.must(w.Append(w.t.Context(), c))
		r.LastSequence = c.Last
	}
	if change != nil {
		change(&r)
	}
	w.must(w.InsertRun(w.t.Context(), r))
}

func (w world) binding(runID string, change func(b *session.Binding)) {
	w.t.Helper()
	b := session.Binding{ID: "ses_" + runID, Rev: 1, Key: session.Key{Environment: "dev", Subject: "alice", AgentID: "agt_1", ConversationID: runID},
		Epoch: 1, NextOrd: 5, LeaseGen: 1, CreatedAt: when, UpdatedAt: when}
	change(&b)
	w.must(w.InsertSession(w.t.Context(), b))
}

func (w world) left(runID string) int {
	w.t.Helper()
	cs, err := w.Chunks(w.t.Context(), runID, 0, 1000)
	w.must(err)
	return len(cs)
}

func (w world) keeper(keep time.Duration) *retention.Keeper {
	return retention.New(retention.Options{Store: w.Store, Sessions: w.Store, Keep: keep, Now: func() time.Time { return when }})
}

func TestSweepTakesWhatIsOldEnough(t *testing.T) {
	w := newWorld(t)
	for i := range 450 { // more than a page
		w.ended(fmt.Sprintf("run_old%d", i), when.Add(-2*time.Hour-time.Duration(i)*time.Second), 2, nil)
	}
	w.ended("run_long", when.Add(-2*time.Hour), 100, nil) // more than a batch
	w.ended("run_young", when.Add(-time.Hour+time.Second), 2, nil)
	w.ended("run_live", when, 2, func(r *run.Run) { r.Status, r.EndedAt = run.StatusRunning, nil })
	swept, err := w.keeper(time.Hour).Sweep(t.Context())
	if err != nil || swept != (retention.Swept{Runs: 451, Chunks: 1000}) {
		t.Fatalf("%+v, %v", swept, err)
	}
	for id, want := range map[string]int{"run_old0": 0, "run_old449": 0, "run_long": 0, "run_young": 2, "run_live": 2} {
		if got := w.left(id); got != want {
			t.Errorf("%s has %d chunks, want %d", id, got, want)
		}
	}
	r, err := w.Run(t.Context(), "run_long")
	if err != nil || r.ExpiredThrough != 100 || !r.Pruned || r.Input.Text != "hi" {
		t.Fatalf("%+v, %v", r, err)
	}
	if swept, err = w.keeper(time.Hour).Sweep(t.Context()); err != nil || swept != (retention.Swept{}) {
		t.Fatalf("a second sweep: %+v, %v", swept, err)
	}
	if swept, err = w.keeper(0).Sweep(t.Context()); err != nil || swept != (retention.Swept{}) {
		t.Fatalf("kept for ever: %+v, %v", swept, err)
	}
}

// TestNeededLogsStay keeps logs that tell what a run that goes on inherits, or that a conversation still holds.
func TestNeededLogsStay(t *testing.T) {
	old := when.Add(-2 * time.Hour)
	interrupted := func(by string) func(r *run.Run) {
		return func(r *run.Run) {
			r.Status, r.Interrupt = run.StatusInterrupted, &run.Interrupt{ID: id.OfInterrupt(r.ID), Revision: 1, ResumedBy: by}
			if by != "" {
				r.Interrupt.Settled = session.Resumed
			}
		}
	}
	for name, test := range map[string]struct {
		run     func(r *run.Run)
		binding func(b *session.Binding)
		next    func(w world)
		want    error
	}{
		"nobody":     {run: nil, want: nil},
		"live":       {run: func(r *run.Run) { r.Status, r.EndedAt = run.StatusRunning, nil }, want: retention.ErrLive},
		"rejected":   {run: func(r *run.Run) { r.Status = run.StatusRejected }, want: retention.ErrLive},
		"still held": {binding: func(b *session.Binding) { b.Active = &session.Active{Run: "run_a", Ord: 1, Gen: 1} }, want: retention.ErrLive},
		"waits":      {run: interrupted(""), binding: func(b *session.Binding) { b.Pending = &session.Pending{Interrupt: "int_a", Run: "run_a", Revision: 1} }, want: retention.ErrNeeded},
		"given up":   {run: interrupted(""), binding: func(*session.Binding) {}, want: nil},
		"decided just now": {run: interrupted(""), binding: func(b *session.Binding) {
			b.Decided = &session.Decided{Interrupt: "int_a", How: session.Resumed, Run: "run_b"}
		}, want: retention.ErrNeeded},
		"goes on": {run: interrupted("run_b"), binding: func(*session.Binding) {}, want: retention.ErrNeeded, next: func(w world) {
			w.ended("run_b", old, 1, func(r *run.Run) { r.SessionID, r.Status, r.EndedAt = "ses_run_a", run.StatusRunning, nil })
		}},
		"went on a moment ago": {run: interrupted("run_b"), binding: func(*session.Binding) {}, want: retention.ErrNeeded, next: func(w world) {
			w.ended("run_b", when, 1, func(r *run.Run) { r.SessionID = "ses_run_a" })
		}},
		"went on long ago": {run: interrupted("run_b"), binding: func(*session.Binding) {}, want: nil, next: func(w world) {
			w.ended("run_b", old, 1, func(r *run.Run) { r.SessionID = "ses_run_a" })
		}},
		"goes on twice": {run: interrupted("run_b"), binding: func(*session.Binding) {}, want: retention.ErrNeeded, next: func(w world) {
			w.ended("run_b", old, 1, func(r *run.Run) { interrupted("run_c")(r); r.SessionID = "ses_run_a" })
			w.ended("run_c", old, 1, func(r *run.Run) { r.SessionID, r.Status, r.EndedAt = "ses_run_a", run.StatusRunning, nil })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ended("run_a", old, 3, test.run)
			if test.binding != nil {
				w.binding("run_a", test.binding)
			}
			if test.next != nil {
				test.next(w)
			}
			_, err := w.keeper(time.Hour).Sweep(t.Context())
			w.must(err)
			if gone := w.left("run_a") == 0; gone != (test.want == nil) {
				t.Fatalf("%d chunks are left, want %v", w.left("run_a"), test.want)
			}
			if name == "went on a moment ago" { // an operator need not wait
				test.want = nil
			}
			if _, err := w.keeper(0).Expire(t.Context(), "run_a"); !errors.Is(err, test.want) {
				t.Fatalf("expired: %v, want %v", err, test.want)
			}
		})
	}
	if _, err := newWorld(t).keeper(0).Expire(t.Context(), "run_none"); !errors.Is(err, run.ErrNotFound) {
		t.Fatalf("a run that is not there: %v", err)
	}
}

// dying is a store that fails after so many writes, as if the process died there.
type dying struct {
	retention.Store
	writes int
}

var errDied = errors.New("died")

func (d *dying) step() error {
	if d.writes--; d.writes < 0 {
		return errDied
	}
	return nil
}

func (d *dying) UpdateRun(ctx context.Context, r run.Run) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.Store.UpdateRun(ctx, r)
}

func (d *dying) Prune(ctx context.Context, runID string, limit int) (int, error) {
	if err := d.step(); err != nil {
		return 0, err
	}
	return d.Store.Prune(ctx, runID, limit)
}

// TestCrashBetweenSteps dies before each write of an expiry: a reader never sees a log with a hole, and the next sweep
// finishes, also one that would not begin it.
func TestCrashBetweenSteps(t *testing.T) {
	for writes := range 8 {
		w := newWorld(t)
		w.ended("run_a", when.Add(-2*time.Hour), 100, nil)
		d := &dying{Store: w.Store, writes: writes}
		_, err := retention.New(retention.Options{Store: d, Sessions: w.Store, Keep: time.Hour, Now: func() time.Time { return when }}).Sweep(t.Context())
		if err != nil && !errors.Is(err, errDied) {
			t.Fatal(err)
		}
		cs, err := w.Read(t.Context(), "run_a", 0, 1000)
		var gone *event.ExpiredError
		if !errors.As(err, &gone) && (err != nil || len(cs) != 100) {
			t.Fatalf("died at write %d: a reader got %d chunks, %v", writes, len(cs), err)
		}
		begun := writes > 0
		if _, err := w.keeper(0).Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := w.left("run_a"); begun && left != 0 || !begun && left != 100 {
			t.Fatalf("died at write %d: %d chunks are left after the next sweep", writes, left)
		}
		r, err := w.Run(t.Context(), "run_a")
		if err != nil || r.Pruned != begun {
			t.Fatalf("died at write %d: %+v, %v", writes, r, err)
		}
	}
}
