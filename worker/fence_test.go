package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// TestEnginesRace: engines that all believe that they own the run call the worker at once, and one after the other takes it
// over. Once a call of one has been answered, none that an earlier one makes after that is accepted: it gets ErrStaleLease. The
// run is played once and goes on to its end, its stream is whole, and nothing of it was acknowledged by anybody but the last.
func TestEnginesRace(t *testing.T) {
	const engines, steps = 5, 400
	var plays atomic.Int32
	release := make(chan struct{})
	w := newWorker(t, &testDriver{turn: func(ctx context.Context, turn harness.Turn, s Sink) error {
		plays.Add(1)
		if turn.RunID == "run_0" {
			return echo(ctx, turn, s)
		}
		for range steps {
			if err := yield(s); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-release: // so that the run is active while they race
		}
		return yield(s, finished())
	}})
	first := w.bound(t)
	startTurn(t, first, "run_0", "x")
	drain(t, first, "run_0", 0)

	var taken atomic.Int64 // highest lease of a call that was answered
	over := make(chan struct{})
	var all sync.WaitGroup
	for n := int64(1); n <= engines; n++ {
		c := w.dial(t, lease(n))
		ops := []func(ctx context.Context) error{
			func(ctx context.Context) error { return c.Attach(ctx, "") },
			func(ctx context.Context) error {
				return c.StartTurn(ctx, harness.Turn{RunID: "run_1", Text: "x", Capability: fmt.Sprint(n)})
			},
			func(ctx context.Context) error { return c.Cancel(ctx, "run_0", event.CancelSuperseded) },
			func(ctx context.Context) error { return c.Ack(ctx, "run_0", 1) },
			func(ctx context.Context) error {
				s, err := c.Events(ctx, "run_1", 0)
				if err == nil {
					defer s.Close()
					for range 3 {
						if _, err := s.Next(ctx); err != nil {
							return nil // fenced, or over: the opening was answered
						}
					}
				}
				return err
			},
		}
		if n < engines { // what only the owner may do, and would end the run
			ops = append(ops,
				func(ctx context.Context) error {
					if taken.Load() <= n {
						return errSkipped // as the owner it might
					}
					return c.Cancel(ctx, "run_1", event.CancelSuperseded)
				},
				func(ctx context.Context) error {
					if taken.Load() <= n {
						return errSkipped
					}
					return c.Shutdown(ctx)
				},
				func(ctx context.Context) error {
					if taken.Load() <= n {
						return errSkipped
					}
					return c.Ack(ctx, "run_1", steps)
				},
			)
		}
		all.Add(1)
		go func() {
			defer all.Done()
			random := rand.New(rand.NewPCG(1, uint64(n)))
			for {
				select {
				case <-over:
					return
				default:
				}
				if before := taken.Load(); n > before+1 { // they come one after the other
					time.Sleep(time.Millisecond)
					continue
				}
				before := taken.Load()
				err := ops[random.IntN(len(ops))](t.Context())
				switch {
				case errors.Is(err, errSkipped), errors.Is(err, harness.ErrUnknownRun):
				case before > n && !errors.Is(err, harness.ErrStaleLease):
					t.Errorf("engine %d was answered %v after engine %d", n, err, before)
				case err == nil:
					for have := taken.Load(); have < n && !taken.CompareAndSwap(have, n); have = taken.Load() {
					}
				case !errors.Is(err, harness.ErrStaleLease):
					t.Errorf("engine %d: %v", n, err)
				}
				if n == 1 && before == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		}()
	}
	eventually(t, "the last engine owns the run", func() bool { return taken.Load() == engines })
	last := w.dial(t, lease(engines))
	startTurn(t, last, "run_1", "x")
	close(release)
	got := drain(t, last, "run_1", 0)
	close(over)
	all.Wait()
	if len(got) != steps+1 {
		t.Errorf("%d steps, want %d", len(got), steps+1)
	}
	if end := got[len(got)-1].Events; len(end) != 1 || end[0].Type() != event.TypeRunFinished {
		t.Errorf("the run ended with %v", end)
	}
	if n := plays.Load(); n != 2 {
		t.Errorf("%d turns were played, want one for each run", n)
	}
}

var errSkipped = errors.New("skipped")

// TestTombstones: a run that this worker has served is never played again, also when nothing of it is kept any more.
func TestTombstones(t *testing.T) {
	var plays atomic.Int32
	w := newWorker(t, &testDriver{turn: func(ctx context.Context, turn harness.Turn, s Sink) error {
		plays.Add(1)
		return echo(ctx, turn, s)
	}})
	c := w.bound(t)
	const runs = MaxUnacknowledged + 3
	for i := range runs {
		run := fmt.Sprint("run_", i)
		var starts sync.WaitGroup // as an engine does that does not know whether it has been heard
		for range 8 {
			starts.Add(1)
			go func() {
				defer starts.Done()
				if err := c.StartTurn(t.Context(), harness.Turn{RunID: run, Text: "x"}); err != nil {
					t.Error(err)
				}
			}()
		}
		starts.Wait()
		got := drain(t, c, run, 0)
		if i%2 == 0 {
			if err := c.Ack(t.Context(), run, got[len(got)-1].Seq); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range runs {
		run := fmt.Sprint("run_", i)
		if err := c.StartTurn(t.Context(), harness.Turn{RunID: run, Text: "x"}); err != nil {
			t.Fatal(err)
		}
		if err := c.StartTurn(t.Context(), harness.Turn{RunID: run, Text: "other"}); !errors.Is(err, harness.ErrConflict) {
			t.Fatalf("another request: %v, want ErrConflict", err)
		}
		if i%2 == 0 { // gone, and never silence
			if _, err := c.Events(t.Context(), run, 0); !errors.Is(err, harness.ErrGone) {
				t.Fatalf("events of %s: %v, want ErrGone", run, err)
			}
		}
	}
	if n := plays.Load(); n != runs {
		t.Fatalf("%d turns were played for %d runs", n, runs)
	}
}

// TestFullJournalStillAsks: a journal that is full and that nobody acknowledges takes the question to a person and what
// ends the turn. Nothing else gets in.
func TestFullJournalStillAsks(t *testing.T) {
	full := make(chan struct{})
	w := newWorker(t, &testDriver{turn: func(ctx context.Context, turn harness.Turn, s Sink) error {
		for range minJournalSteps - 1 {
			if err := yield(s); err != nil {
				return err
			}
		}
		if err := yield(s, event.ToolStarted{ToolCallID: "c", Name: "delete"}); err != nil {
			return err
		}
		close(full)
		return errors.Join(
			yield(s, event.InterruptRequested{
				Kind:  event.InterruptApproval,
				Calls: []event.ApprovalCall{{ToolCallID: "c", Name: "delete", Allowed: []string{"approve"}}},
			}),
			yield(s, event.RunInterrupted{Reason: "approval_required"}),
		)
	}})
	c := w.bound(t, Limits{JournalSteps: minJournalSteps})
	startTurn(t, c, "run_1", "x")
	<-full
	got := drain(t, c, "run_1", 0) // which acknowledges nothing
	if _, ok := last(t, got).(event.RunInterrupted); !ok || len(got) != minJournalSteps+2 {
		t.Fatalf("got %s", show(got))
	}
}
