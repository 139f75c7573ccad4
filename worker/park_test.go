package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
)

// parker is a driver whose interrupted turn waits in a process of its own.
type parker struct {
	testDriver
	env    Environment
	waits  atomic.Pointer[Process]
	closed atomic.Bool
}

func newParker() *parker {
	p := &parker{}
	p.open = func(_ context.Context, env Environment, _ harness.Construction) error { p.env = env; return nil }
	p.close = func(context.Context) error { p.closed.Store(true); return nil }
	p.turn = func(ctx context.Context, t harness.Turn, sink Sink) error {
		if t.Resume != nil {
			if !p.Parked() {
				return InterruptLost(nil)
			}
			(*p.waits.Load()).Kill()
			for _, c := range t.Resume.Decision.Calls {
				var end event.Data = event.ToolFinished{ToolCallID: c.ToolCallID, Result: "done"}
				if c.Verdict == harness.Reject {
					end = event.ToolError{ToolCallID: c.ToolCallID, Code: CodeRejected, Message: c.Message}
				}
				if err := yield(sink, end); err != nil {
					return err
				}
			}
			return yield(sink, finished())
		}
		if t.Text != "ask" {
			return echo(ctx, t, sink)
		}
		process, err := p.env.Tree.Start(ctx, Command{Path: "/bin/sleep", Args: []string{"600"}, Dir: p.env.Workspace})
		if err != nil {
			return err
		}
		p.waits.Store(&process)
		return ask(sink, "t1")
	}
	return p
}

// ask starts a call and interrupts the run for it, as a driver that knows neither id nor revision.
func ask(sink Sink, call string) error {
	return yield(sink, event.ToolStarted{ToolCallID: call, Name: "send"},
		event.InterruptRequested{InterruptID: "x", Kind: event.InterruptApproval, Calls: []event.ApprovalCall{
			{ToolCallID: call, Name: "send", Allowed: []string{"approve", "reject"}},
		}},
		event.RunInterrupted{InterruptID: "x", Reason: "approval"})
}

func (p *parker) Parked() bool {
	process := p.waits.Load()
	if process == nil {
		return false
	}
	select {
	case <-(*process).Done():
		return false
	default:
		return true
	}
}

func decision(run string, verdict harness.Verdict) *harness.Resume {
	return &harness.Resume{
		RunID: run, InterruptID: id.OfInterrupt(run), Revision: 1,
		Decision: harness.Decision{Calls: []harness.CallDecision{{ToolCallID: "t1", Verdict: verdict}}},
		Inherit:  event.Inheritance{Tools: []event.OpenTool{{ID: "t1"}}},
	}
}

func parkedRun(t *testing.T, c *Client) string {
	t.Helper()
	r, err := c.Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r.ParkedRun
}

func interrupted(t *testing.T, c *Client, run string) {
	t.Helper()
	startTurn(t, c, run, "ask")
	steps := drain(t, c, run, 0)
	got := last(t, steps).(event.RunInterrupted)
	asked := steps[len(steps)-1].Events[0].Data
	for _, s := range steps {
		for _, e := range s.Events {
			if d, ok := e.Data.(event.InterruptRequested); ok {
				asked = d
			}
		}
	}
	if r := asked.(event.InterruptRequested); got.InterruptID != id.OfInterrupt(run) || r.InterruptID != got.InterruptID || r.Revision != 1 {
		t.Fatalf("asked %+v, ended %+v", r, got)
	}
}

func TestResumeOfAParkedTurn(t *testing.T) {
	for verdict, want := range map[harness.Verdict]string{harness.Approve: "1[tool.finished] 2[run.finished]", harness.Reject: "1[tool.error] 2[run.finished]"} {
		t.Run(string(verdict), func(t *testing.T) {
			p := newParker()
			w := newWorker(t, p)
			c := w.bound(t)
			interrupted(t, c, "run_1")
			if got := parkedRun(t, c); got != "run_1" {
				t.Fatalf("parked is %q", got)
			}
			eventually(t, "the stream's end is noticed", func() bool { return w.host.attendance.idle() > 0 })
			if err := EndIdle(t.Context(), w.socket, testSecret, time.Nanosecond); !errors.Is(err, harness.ErrConflict) {
				t.Fatalf("ended while somebody is waited for: %v", err)
			}
			for range 2 {
				if err := c.StartTurn(t.Context(), harness.Turn{RunID: "run_2", Resume: decision("run_1", verdict)}); err != nil {
					t.Fatal(err)
				}
			}
			other := decision("run_1", harness.Approve)
			other.Decision.Calls[0].ToolCallID = "t2"
			if err := c.StartTurn(t.Context(), harness.Turn{RunID: "run_2", Resume: other}); !errors.Is(err, harness.ErrConflict) {
				t.Fatalf("another decision under the same run: %v, want ErrConflict", err)
			}
			if got := show(drain(t, c, "run_2", 0)); got != want {
				t.Fatalf("got %s", got)
			}
			if got := parkedRun(t, c); got != "" {
				t.Fatalf("parked is %q", got)
			}
			eventually(t, "an idle worker can be ended again", func() bool {
				return EndIdle(t.Context(), w.socket, testSecret, time.Nanosecond) == nil
			})
		})
	}
}

// TestResumeThatFindsNothing: what was parked is gone, or it is another interrupt.
func TestResumeThatFindsNothing(t *testing.T) {
	p := newParker()
	c := newWorker(t, p).bound(t)
	lost := func(run, of string) {
		t.Helper()
		if err := c.StartTurn(t.Context(), harness.Turn{RunID: run, Resume: decision(of, harness.Approve)}); err != nil {
			t.Fatal(err)
		}
		if got := last(t, drain(t, c, run, 0)).(event.RunError); got.Code != CodeRunInterruptLost || got.Category != event.CategoryUnavailable {
			t.Fatalf("got %+v", got)
		}
	}
	lost("run_0", "run_of_a_worker_before")
	interrupted(t, c, "run_1")
	if err := c.StartTurn(t.Context(), harness.Turn{RunID: "run_2", Resume: decision("run_9", harness.Approve)}); !errors.Is(err, harness.ErrInterruptLost) {
		t.Fatalf("another interrupt: %v, want ErrInterruptLost", err)
	}
	(*p.waits.Load()).Kill()
	<-(*p.waits.Load()).Done()
	lost("run_3", "run_1")
}

func TestCancelEndsWhatIsParked(t *testing.T) {
	p := newParker()
	c := newWorker(t, p).bound(t)
	interrupted(t, c, "run_1")
	for range 2 {
		if err := c.Cancel(t.Context(), "run_1", event.CancelClientRequest); err != nil {
			t.Fatal(err)
		}
		<-(*p.waits.Load()).Done() // it has ended, or the test does
	}
	if got := parkedRun(t, c); got != "" {
		t.Fatalf("parked is %q", got)
	}
	startTurn(t, c, "run_2", "x")
	if got := show(drain(t, c, "run_2", 0)); got != echoShape {
		t.Fatalf("got %s", got)
	}
	interrupted(t, c, "run_3")
	if err := c.Cancel(t.Context(), "run_1", event.CancelClientRequest); err != nil {
		t.Fatal(err)
	}
	if !p.Parked() {
		t.Fatal("the cancel of an older run ended it")
	}
}

func TestShutdownEndsWhatIsParked(t *testing.T) {
	p := newParker()
	c := newWorker(t, p).bound(t)
	interrupted(t, c, "run_1")
	if err := c.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.Parked() || !p.closed.Load() {
		t.Fatalf("parked %v, closed %v", p.Parked(), p.closed.Load())
	}
}

// TestCancelRacesWithTurns: a turn that starts while what is parked is being ended is not hurt by it.
func TestCancelRacesWithTurns(t *testing.T) {
	p := newParker()
	c := newWorker(t, p).bound(t)
	for i := range 10 {
		parked, next := fmt.Sprint("parked_", i), fmt.Sprint("next_", i)
		interrupted(t, c, parked)
		cancelled := make(chan error, 1)
		go func() { cancelled <- c.Cancel(context.Background(), parked, event.CancelSuperseded) }()
		startTurn(t, c, next, "ask")
		drain(t, c, next, 0)
		if err := <-cancelled; err != nil {
			t.Fatal(err)
		}
		if !p.Parked() || parkedRun(t, c) != next {
			t.Fatal("the turn's own process was ended")
		}
		if err := c.Cancel(t.Context(), next, event.CancelSuperseded); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInheritance: what an interrupt left open is open in the run that goes on, and what it does not name is not.
func TestInheritance(t *testing.T) {
	d := &testDriver{turn: func(_ context.Context, turn harness.Turn, sink Sink) error {
		return errors.Join(
			yield(sink, event.ToolFinished{ToolCallID: turn.Resume.Decision.Calls[0].ToolCallID, Result: "x"}),
			yield(sink, finished()))
	}}
	c := newWorker(t, d).bound(t)
	r := decision("run_1", harness.Approve)
	if err := c.StartTurn(t.Context(), harness.Turn{RunID: "run_2", Resume: r}); err != nil {
		t.Fatal(err)
	}
	if got := show(drain(t, c, "run_2", 0)); got != "1[tool.finished] 2[run.finished]" {
		t.Fatalf("got %s", got)
	}
	r.Inherit = event.Inheritance{}
	if err := c.StartTurn(t.Context(), harness.Turn{RunID: "run_3", Resume: r}); err != nil {
		t.Fatal(err)
	}
	if got := last(t, drain(t, c, "run_3", 0)).(event.RunError); got.Code != event.CodeEventInvalid {
		t.Fatalf("got %+v", got)
	}
}

func TestFilesReachTheDriver(t *testing.T) {
	want := harness.File{Name: "a b.png", MediaType: "image/png", Data: make([]byte, harness.MaxFilesBytes)}
	want.Data[7] = 7
	got := make(chan []harness.File, 1)
	w := newWorker(t, &testDriver{turn: func(ctx context.Context, turn harness.Turn, sink Sink) error {
		got <- turn.Files
		return echo(ctx, turn, sink)
	}})
	c := w.bound(t)
	turn := harness.Turn{RunID: "run_1", Text: "look", Files: []harness.File{want}}
	for range 2 {
		if err := c.StartTurn(t.Context(), turn); err != nil {
			t.Fatal(err)
		}
	}
	files := <-got
	if len(files) != 1 || files[0].Name != want.Name || files[0].MediaType != want.MediaType || hashOf(files[0].Data) != hashOf(want.Data) {
		t.Fatalf("got %d files", len(files))
	}
	turn.Files[0].Data[7] = 8
	if err := c.StartTurn(t.Context(), turn); !errors.Is(err, harness.ErrConflict) {
		t.Fatalf("another file under the same run: %v, want ErrConflict", err)
	}
	drain(t, c, "run_1", 0)
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	if kept := w.host.runs["run_1"].spec; kept.Text != "" || kept.Files != nil {
		t.Fatal("an ended run keeps its files")
	}
}

func TestParkedWorkersLiveLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var parked atomic.Bool
		parked.Store(true)
		a := newAttendance(time.Minute, time.Hour, parked.Load)
		begin := time.Now()
		done := make(chan time.Duration, 1)
		go func() {
			if a.orphaned(t.Context()) {
				done <- time.Since(begin)
			}
		}()
		if got := <-done; got != time.Hour {
			t.Fatalf("orphaned after %v, want an hour", got)
		}
		a.touch()
		begin = time.Now()
		go func() {
			if a.orphaned(t.Context()) {
				done <- time.Since(begin)
			}
		}()
		time.Sleep(10*time.Minute + time.Second)
		parked.Store(false) // what waited died by itself
		if got := <-done; got > 12*time.Minute {
			t.Fatalf("orphaned after %v, want soon after ten minutes", got)
		}
	})
}
