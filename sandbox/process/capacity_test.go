package process

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/sandbox"
	"github.com/harness-engine/harness-engine/worker/procfs"
)

func TestCapacity(t *testing.T) {
	data := shortDir(t)
	m := manager(t, data, func(o *sandbox.Options) { o.MaxSandboxes, o.IdleTime = 2, time.Hour })
	bind := func(n int64) harness.Binding {
		return harness.Binding{SessionID: fmt.Sprint("ses_", n), Epoch: 1, SandboxGen: 1}
	}
	for n := int64(1); n <= 2; n++ {
		startSandbox(t, m, bind(n), 1, "")
	}
	full := func(m *sandbox.Manager) {
		t.Helper()
		_, err := m.Start(t.Context(), bind(3), 1, m.Reserve(bind(3)), construction(""), nil)
		p, ok := problem.As(err)
		if !ok || p.Code != problem.Capacity || p.Extra["retryAfter"] == nil {
			t.Fatalf("got %v, want CAPACITY with retryAfter", err)
		}
	}
	full(m)
	// An engine that starts counts what is there.
	full(manager(t, data, func(o *sandbox.Options) { o.MaxSandboxes, o.IdleTime = 2, time.Hour }))
	// A worker that died by itself makes room.
	p := pidOf(t, data, m, bind(1))
	if err := procfs.Signal(p, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the worker is dead", func() bool { return gone(p) })
	startSandbox(t, m, bind(3), 1, "")
}

func TestIdleWorkersMakeRoom(t *testing.T) {
	data := shortDir(t)
	m := manager(t, data, func(o *sandbox.Options) { o.MaxSandboxes, o.IdleTime = 2, time.Millisecond })
	bind := func(n, gen int64) harness.Binding {
		return harness.Binding{SessionID: fmt.Sprint("ses_", n), Epoch: 1, SandboxGen: gen}
	}
	busy := startSandbox(t, m, bind(1, 1), 1, "")
	if err := busy.StartTurn(t.Context(), harness.Turn{RunID: "run_1", Text: `{"hang":true}`}); err != nil {
		t.Fatal(err)
	}
	idle := startSandbox(t, m, bind(2, 1), 1, "")
	play(t, idle, "run_2", "remember me")
	third, err := m.Start(t.Context(), bind(3, 1), 1, m.Reserve(bind(3, 1)), construction(""), nil)
	if !problem.Is(err, problem.Capacity) {
		t.Fatalf("the worker has a state that nobody else has: %v, want CAPACITY", err)
	}
	kept := &conversation{m: m, session: "ses_2", gen: 1, rt: idle}
	kept.commit(t, "run_2")
	eventually(t, "there is room", func() bool { // a stream's end is noticed a moment after the client's Close
		third, err = m.Start(t.Context(), bind(3, 1), 1, m.Reserve(bind(3, 1)), construction(""), nil)
		return err == nil
	})
	defer third.Close()
	if err := busy.Cancel(t.Context(), "run_1", event.CancelClientRequest); err != nil {
		t.Fatal("the busy worker was ended:", err)
	}
	readAll(t, busy, "run_1", 0)
	if _, err := m.Attach(t.Context(), bind(2, 1), 2, m.Reserve(bind(2, 1))); !errors.Is(err, harness.ErrGone) {
		t.Fatalf("got %v, want ErrGone", err)
	}
	eventually(t, "there is room again", func() bool {
		again, err := m.Start(t.Context(), bind(2, 2), 2, m.Reserve(bind(2, 2)), construction(""), kept.snapshot())
		if err != nil {
			return false
		}
		kept.gen, kept.rt = 2, again
		return true
	})
	defer kept.rt.Close()
	if got := texts(kept.play(t, harness.Turn{RunID: "run_3", Text: `{"recall":true}`})); !strings.Contains(got, "remember me") {
		t.Fatalf("got %q", got)
	}
}

// TestShortlyIdleWorkersMakeRoom: rather than to refuse a run, a worker is ended that has been idle for a moment only.
func TestShortlyIdleWorkersMakeRoom(t *testing.T) {
	m := manager(t, shortDir(t), func(o *sandbox.Options) { o.MaxSandboxes, o.IdleTime = 2, time.Minute })
	var last harness.Runtime
	for n := range int64(3) {
		b := harness.Binding{SessionID: fmt.Sprint("ses_", n), Epoch: 1, SandboxGen: 1}
		eventually(t, "there is room", func() bool {
			rt, err := m.Start(t.Context(), b, 1, m.Reserve(b), construction(""), nil)
			if err != nil {
				return false
			}
			if last != nil {
				_ = last.Close()
			}
			last = rt
			return true
		})
	}
	defer last.Close()
	if all, err := m.List(t.Context()); err != nil || len(all) != 2 {
		t.Fatalf("%d sandboxes, %v, want 2", len(all), err)
	}
}
