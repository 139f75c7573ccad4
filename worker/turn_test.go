package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

func TestTurn(t *testing.T) {
	w := newWorker(t, &testDriver{turn: echo})
	c := w.bound(t)
	startTurn(t, c, "run_1", "hello")
	steps := drain(t, c, "run_1", 0)
	if got := show(steps); got != echoShape {
		t.Fatalf("got %s", got)
	}
	want := event.RunFinished{Outcome: "success", StopReason: "end_turn", Thread: event.ThreadState{Durability: event.DurabilityLocal}}
	if got := last(t, steps); got != want {
		t.Fatalf("terminal %+v", got)
	}
	if d := steps[1].Events[0].Data.(event.TextDelta); d.Delta != "hello" {
		t.Fatalf("delta %q", d.Delta)
	}
	// The terminal is there, so the worker is free: at once, not soon.
	startTurn(t, c, "run_2", "again")
	if got := show(drain(t, c, "run_2", 0)); got != echoShape {
		t.Fatalf("got %s", got)
	}
	if got := show(drain(t, c, "run_2", 2)); got != "3[] 4[text.finished run.finished]" {
		t.Fatalf("got %s", got)
	}
}

func TestTerminalFreesTheWorkerAtOnce(t *testing.T) {
	w := newWorker(t, &testDriver{turn: echo})
	c := w.bound(t)
	for i := range 100 {
		run := fmt.Sprintf("run_%d", i)
		startTurn(t, c, run, "x")
		drain(t, c, run, 0)
	}
}

// TestTerminals: whatever a driver does at the end, there is exactly one terminal, and it says what is known.
func TestTerminals(t *testing.T) {
	local := event.ThreadState{Durability: event.DurabilityLocal}
	driverFailed := event.RunError{
		Code: "driver_failed", Message: "The harness driver failed.", Category: event.CategoryInternal,
		SideEffects: event.SideEffectsNone, Thread: local,
	}
	invalid := event.RunError{
		Code: event.CodeEventInvalid, Message: "The harness sent an event that the protocol does not allow.",
		Category: event.CategoryProtocol, SideEffects: event.SideEffectsNone, Thread: local,
	}
	invalidAfterTool := invalid
	invalidAfterTool.SideEffects = event.SideEffectsPossible
	tool := event.ToolStarted{ToolCallID: "t", Name: "x"}
	cases := []struct {
		name string
		turn func(ctx context.Context, t harness.Turn, sink Sink) error
		want event.Data
	}{
		{"nothing at all", func(context.Context, harness.Turn, Sink) error { return nil }, event.RunError{
			Code: "terminal_missing", Message: "The harness ended without saying how.", Category: event.CategoryProtocol,
			SideEffects: event.SideEffectsNone, Thread: local,
		}},
		{"error with secrets", func(context.Context, harness.Turn, Sink) error { return errors.New("/etc/passwd: key sk-1") }, driverFailed},
		{"panic", func(context.Context, harness.Turn, Sink) error { panic("sk-1") }, driverFailed},
		{"failure", func(context.Context, harness.Turn, Sink) error {
			return fmt.Errorf("turn: %w", &Failure{Category: event.CategoryThrottled, Code: "slow", Message: "Later.", Retryable: true, RetryAfterMs: 7})
		}, event.RunError{
			Code: "slow", Message: "Later.", Category: event.CategoryThrottled, Retryable: true, RetryAfterMs: 7,
			SideEffects: event.SideEffectsNone, Thread: local,
		}},
		{"failure with a code that cannot be shown", func(context.Context, harness.Turn, Sink) error {
			return &Failure{Category: event.CategoryThrottled, Code: strings.Repeat("x", 1000), Message: "m"}
		}, driverFailed},
		{"error after the terminal", func(_ context.Context, _ harness.Turn, s Sink) error {
			return errors.Join(yield(s, finished()), errors.New("late"))
		}, event.RunFinished{Outcome: "success", StopReason: "end_turn", Thread: local}},
		{"yield after the terminal", func(_ context.Context, _ harness.Turn, s Sink) error {
			if err := yield(s, finished()); err != nil {
				return err
			}
			if err := yield(s, event.Warning{Code: "late", Message: "m"}); !errors.Is(err, ErrTurnOver) {
				panic(err)
			}
			return nil
		}, event.RunFinished{Outcome: "success", StopReason: "end_turn", Thread: local}},
		{"delta before start", func(_ context.Context, _ harness.Turn, s Sink) error {
			if err := yield(s, event.TextDelta{MessageID: "m", Delta: "x"}); !errors.Is(err, ErrInvalidEvent) {
				panic(err)
			}
			return nil
		}, invalid},
		{"the driver ignores the refusal", func(_ context.Context, _ harness.Turn, s Sink) error {
			_ = yield(s, event.TextDelta{MessageID: "m", Delta: "x"})
			return yield(s, finished())
		}, invalid},
		{"run.started", func(_ context.Context, _ harness.Turn, s Sink) error {
			return yield(s, event.RunStarted{Harness: "test"})
		}, invalid},
		{"run.recovered", func(_ context.Context, _ harness.Turn, s Sink) error {
			return yield(s, event.RunRecovered{Generation: 9})
		}, invalid},
		{"no data", func(_ context.Context, _ harness.Turn, s Sink) error { return yield(s, nil) }, invalid},
		{"a number that is none", func(_ context.Context, _ harness.Turn, s Sink) error {
			nan := math.NaN()
			return yield(s, event.UsageUpdated{Cost: &nan, Currency: "USD"})
		}, invalid},
		{"open tool at the end", func(_ context.Context, _ harness.Turn, s Sink) error { return yield(s, tool, finished()) }, invalidAfterTool},
		{"committed is not ours to say", func(_ context.Context, _ harness.Turn, s Sink) error {
			return yield(s, event.RunFinished{Outcome: "success", StopReason: "refusal", Thread: event.ThreadState{Durability: event.DurabilityCommitted, Revision: 3}})
		}, event.RunFinished{Outcome: "success", StopReason: "refusal", Thread: local}},
		{"none is", func(_ context.Context, _ harness.Turn, s Sink) error {
			return yield(s, event.RunFinished{Outcome: "success", StopReason: "refusal", Thread: event.ThreadState{Durability: event.DurabilityNone}})
		}, event.RunFinished{Outcome: "success", StopReason: "refusal", Thread: event.ThreadState{Durability: event.DurabilityNone}}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorker(t, &testDriver{turn: tc.turn})
			c := w.bound(t)
			startTurn(t, c, "run_1", "x")
			if got := last(t, drain(t, c, "run_1", 0)); got != tc.want {
				t.Fatalf("got  %+v\nwant %+v", got, tc.want)
			}
			startTurn(t, c, "run_2", "the worker is fine")
		})
	}
}

func TestWhatWasValidBeforeAnInvalidEventIsKept(t *testing.T) {
	w := newWorker(t, &testDriver{turn: func(_ context.Context, _ harness.Turn, s Sink) error {
		return yield(s, event.TextStarted{MessageID: "m", Role: "assistant"}, event.TextDelta{MessageID: "m", Delta: "kept"},
			event.TextDelta{MessageID: "other", Delta: "bad"}, event.TextDelta{MessageID: "m", Delta: "never"})
	}})
	c := w.bound(t)
	startTurn(t, c, "run_1", "x")
	if got := show(drain(t, c, "run_1", 0)); got != "1[text.started text.delta] 2[text.finished run.error]" {
		t.Fatalf("got %s", got)
	}
}

func TestCancel(t *testing.T) {
	for _, reason := range cancelReasons {
		t.Run(string(reason), func(t *testing.T) {
			w := newWorker(t, &testDriver{turn: untilCancelled})
			c := w.bound(t)
			startTurn(t, c, "run_1", "x")
			if err := c.Cancel(t.Context(), "run_1", reason); err != nil {
				t.Fatal(err)
			}
			if err := c.Cancel(t.Context(), "run_1", event.CancelSuperseded); err != nil {
				t.Fatal(err)
			}
			want := event.RunCancelled{Reason: reason, SideEffects: event.SideEffectsNone, Thread: event.ThreadState{Durability: event.DurabilityLocal}}
			if got := last(t, drain(t, c, "run_1", 0)); got != want {
				t.Fatalf("got %+v", got)
			}
			if err := c.Cancel(t.Context(), "run_1", reason); err != nil {
				t.Fatal("cancel of an ended run:", err)
			}
		})
	}
}

func TestCancelReasonOfTheHarnessIsReplaced(t *testing.T) {
	w := newWorker(t, &testDriver{turn: func(ctx context.Context, _ harness.Turn, s Sink) error {
		<-ctx.Done()
		return yield(s, event.ToolStarted{ToolCallID: "t", Name: "x"}, event.RunCancelled{Reason: event.CancelClientRequest})
	}})
	c := w.bound(t)
	startTurn(t, c, "run_1", "x")
	if err := c.Cancel(t.Context(), "run_1", event.CancelSessionCleared); err != nil {
		t.Fatal(err)
	}
	got := last(t, drain(t, c, "run_1", 0)).(event.RunCancelled)
	if got.Reason != event.CancelSessionCleared || got.SideEffects != event.SideEffectsPossible {
		t.Fatalf("got %+v", got)
	}
}

func TestDeadline(t *testing.T) {
	w := newWorker(t, &testDriver{turn: untilCancelled})
	c := w.bound(t)
	if err := c.StartTurn(t.Context(), harness.Turn{RunID: "run_1", Text: "x", DeadlineMs: 20}); err != nil {
		t.Fatal(err)
	}
	if got := last(t, drain(t, c, "run_1", 0)).(event.RunCancelled); got.Reason != event.CancelDeadline {
		t.Fatalf("got %+v", got)
	}
}

// TestDriverThatWaitsForItsProcess: ending the tree frees a driver that does not look at its context.
func TestDriverThatWaitsForItsProcess(t *testing.T) {
	var tree Tree
	w := newWorker(t, &testDriver{
		open: func(_ context.Context, env Environment, _ harness.Construction) error { tree = env.Tree; return nil },
		turn: func(_ context.Context, _ harness.Turn, s Sink) error {
			p, err := tree.Start(context.Background(), sh("read x"))
			if err != nil {
				return err
			}
			if err := yield(s, event.Warning{Code: "up", Message: "m"}); err != nil {
				return err
			}
			return p.Wait()
		},
	})
	c := w.bound(t, Limits{CancelGraceMs: 30})
	startTurn(t, c, "run_1", "x")
	if _, err := openEvents(t, c, "run_1", 0).Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Cancel(t.Context(), "run_1", event.CancelClientRequest); err != nil {
		t.Fatal(err)
	}
	want := event.RunCancelled{Reason: event.CancelClientRequest, SideEffects: event.SideEffectsNone, Thread: event.ThreadState{Durability: event.DurabilityLocal}}
	if got := last(t, drain(t, c, "run_1", 0)); got != want {
		t.Fatalf("got %+v", got)
	}
	startTurn(t, c, "run_2", "the worker goes on")
	if err := c.Cancel(t.Context(), "run_2", event.CancelClientRequest); err != nil {
		t.Fatal(err)
	}
}

// TestStuckDriver: a driver that never returns is given up; its run ends with what cannot be known, and the worker
// takes no other run.
func TestStuckDriver(t *testing.T) {
	for name, first := range map[string]event.Data{"no terminal": nil, "terminal": finished()} {
		t.Run(name, func(t *testing.T) {
			free := make(chan struct{})
			said, left := make(chan struct{}), make(chan struct{})
			w := newWorker(t, &testDriver{turn: func(_ context.Context, _ harness.Turn, s Sink) error {
				defer close(left)
				if first != nil {
					if err := yield(s, first); err != nil {
						return err
					}
				}
				close(said)
				<-free
				if err := yield(s, event.Warning{Code: "late", Message: "m"}); !errors.Is(err, ErrTurnOver) {
					t.Errorf("late yield: %v", err)
				}
				return nil
			}})
			c := w.bound(t, Limits{CancelGraceMs: 10})
			startTurn(t, c, "run_1", "x")
			<-said
			if err := c.Cancel(t.Context(), "run_1", event.CancelClientRequest); err != nil {
				t.Fatal(err)
			}
			got := last(t, drain(t, c, "run_1", 0))
			if first == nil {
				want := event.RunCancelled{Reason: event.CancelClientRequest, SideEffects: event.SideEffectsPossible, Thread: event.ThreadState{Durability: event.DurabilityUncertain}}
				if got != want {
					t.Fatalf("got %+v", got)
				}
			} else if got.Type() != event.TypeRunFinished {
				t.Fatalf("got %+v", got)
			}
			if err := c.StartTurn(t.Context(), harness.Turn{RunID: "run_2"}); !errors.Is(err, harness.ErrGone) {
				t.Fatalf("got %v, want ErrGone", err)
			}
			close(free)
			<-left
		})
	}
}

// TestBackpressureWithoutDeadlock: an unread journal pauses the driver; acknowledging goes on; a cancel comes through a
// full journal, and the terminal has its place.
func TestBackpressureWithoutDeadlock(t *testing.T) {
	blocked := make(chan struct{}, 1)
	w := newWorker(t, &testDriver{turn: func(ctx context.Context, _ harness.Turn, s Sink) error {
		if err := yield(s, event.TextStarted{MessageID: "m", Role: "assistant"}); err != nil {
			return err
		}
		for i := 0; ; i++ {
			if i == 7 { // the journal of eight is full
				blocked <- struct{}{}
			}
			if err := yield(s, event.TextDelta{MessageID: "m", Delta: fmt.Sprint(i, " ")}); err != nil {
				return err
			}
		}
	}})
	c := w.bound(t, Limits{JournalSteps: 8})
	startTurn(t, c, "run_1", "x")
	<-blocked
	if r, _ := w.host.runs["run_1"].journal.read(0, 1<<20); len(r.entries) != 8 {
		t.Fatalf("the journal holds %d steps", len(r.entries))
	}
	s := openEvents(t, c, "run_1", 0)
	for want := int64(1); want <= 1000; want++ {
		e, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != want {
			t.Fatalf("got %d, want %d", e.Seq, want)
		}
		if want%8 == 0 {
			if err := c.Ack(t.Context(), "run_1", want); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Cancel(t.Context(), "run_1", event.CancelClientRequest); err != nil {
		t.Fatal(err)
	}
	rest := drain(t, c, "run_1", 1000)
	if got := last(t, rest); got.Type() != event.TypeRunCancelled {
		t.Fatalf("got %+v", got)
	}
}

func TestLongStepsAreSplit(t *testing.T) {
	text := strings.Repeat("äöü€", 400_000) // 3.6 MB in one delta
	w := newWorker(t, &testDriver{turn: func(_ context.Context, _ harness.Turn, s Sink) error {
		err := s.Yield(Step{Facts: map[string]string{"k": "v"}, Events: []event.Event{
			{Data: event.TextStarted{MessageID: "m", Role: "assistant"}}, {Data: event.TextDelta{MessageID: "m", Delta: text}},
		}})
		return errors.Join(err, yield(s, finished()))
	}})
	c := w.bound(t)
	startTurn(t, c, "run_1", "x")
	steps := drain(t, c, "run_1", 0)
	var got strings.Builder
	for i, s := range steps {
		size := 0
		for _, e := range s.Events {
			raw, err := event.Encode(e)
			if err != nil {
				t.Fatal(err)
			}
			size += len(raw)
			if d, ok := e.Data.(event.TextDelta); ok {
				got.WriteString(d.Delta)
			}
		}
		if len(s.Events) > event.MaxChunkEvents || size > event.MaxChunkBytes {
			t.Errorf("step %d does not fit into a chunk: %d events, %d bytes", s.Seq, len(s.Events), size)
		}
		if (len(s.Facts) > 0) != (i == 0) {
			t.Errorf("step %d has facts %v", s.Seq, s.Facts)
		}
	}
	if got.String() != text {
		t.Fatal("the text is not what was yielded")
	}
}

func TestFactsAreBounded(t *testing.T) {
	in := map[string]string{
		"good": "v", "": "no name", "long": strings.Repeat("x", maxFactValue+1), "bad\n": "v", "value": "a\x00b",
		"invalid": "\xff", strings.Repeat("k", maxFactKey+1): "v",
	}
	if got := boundedFacts(in); len(got) != 1 || got["good"] != "v" {
		t.Fatalf("got %v", got)
	}
	many := map[string]string{}
	for i := range 100 {
		many[fmt.Sprint(i)] = "v"
	}
	if got := boundedFacts(many); len(got) != maxFacts {
		t.Fatalf("got %d", len(got))
	}
}
