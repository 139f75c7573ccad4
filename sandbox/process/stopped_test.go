package process

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// TestStoppedWorkerIsNotAsked: a worker that is stopped hears nothing. Whoever ends it does not wait for an answer, also when
// it is stopped after it was asked; and one that is to be ended at once is not asked.
func TestStoppedWorkerIsNotAsked(t *testing.T) {
	for name, kill := range map[string]bool{"destroyed": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			data := shortDir(t)
			m := with(t, data, &between{})
			m2, b, err := newManager(data, workerPath)
			if err != nil {
				t.Fatal(err)
			}
			b.polite = time.Hour
			r := startSandbox(t, m, binding, 1, "")
			p := pidOf(t, data, m, binding)
			if err := r.StartTurn(t.Context(), harness.Turn{RunID: "run_1", Text: `{"hang":true}`}); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(p.PID, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			end := m2.Destroy
			if kill {
				end = m2.Kill
			}
			if err := end(t.Context(), m.Reserve(binding), 1); err != nil {
				t.Fatal(err)
			}
			if !gone(p) {
				t.Fatal("the worker lives")
			}
		})
	}
}

// TestStaleEngineEndsNothing: an engine whose lease is over ends no worker that another one has attached to, though that worker
// hangs and refuses nothing by itself.
func TestStaleEngineEndsNothing(t *testing.T) {
	data := shortDir(t)
	m, other := manager(t, data), manager(t, data)
	startSandbox(t, m, binding, 1, "")
	p := pidOf(t, data, m, binding)
	rt, err := other.Attach(t.Context(), binding, 2, other.Reserve(binding))
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	if err := syscall.Kill(p.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func() error{
		"destroy": func() error { return m.Destroy(t.Context(), m.Reserve(binding), 1) },
		"kill":    func() error { return m.Kill(t.Context(), m.Reserve(binding), 1) },
	} {
		if err := end(); !errors.Is(err, harness.ErrStaleLease) {
			t.Fatalf("%s: %v, want ErrStaleLease", name, err)
		}
	}
	if err := syscall.Kill(p.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := texts(play(t, rt, "run_1", "still here")); got != "still here" {
		t.Fatalf("got %q", got)
	}
	if err := other.Kill(t.Context(), other.Reserve(binding), 2); err != nil || !gone(p) {
		t.Fatalf("the owner's kill: %v", err)
	}
}
