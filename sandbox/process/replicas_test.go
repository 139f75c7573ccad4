package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/sandbox"
	"github.com/harness-engine/harness-engine/worker"
)

// between is the backend with something that happens around a launch.
type between struct {
	*Backend
	before, after func(sandbox.Spec)
}

func (b *between) Launch(ctx context.Context, s sandbox.Spec) error {
	if b.before != nil {
		b.before(s)
	}
	err := b.Backend.Launch(ctx, s)
	if b.after != nil {
		b.after(s)
	}
	return err
}

// with is a manager on the data folder with a backend of its own.
func with(t *testing.T, data string, b *between) *sandbox.Manager {
	t.Helper()
	var err error
	if b.Backend, err = New(Options{AllowUnisolated: true, Worker: workerPath}); err != nil {
		t.Fatal(err)
	}
	return manager(t, data, func(o *sandbox.Options) { o.Backends = map[string]sandbox.Backend{Name: b} })
}

// TestLaterWorkerWins: an engine that was stopped in the middle of a start cannot take the state folder from the worker
// that another engine has started since, wherever it was stopped.
func TestLaterWorkerWins(t *testing.T) {
	later := binding
	later.SandboxGen = 2
	for _, when := range []string{"before it began", "before the launch", "after the launch"} {
		t.Run(when, func(t *testing.T) {
			data := shortDir(t)
			other := manager(t, data)
			var second harness.Runtime
			take := func(sandbox.Spec) {
				if second != nil {
					return
				}
				// As the engine does that took over: it gives out the next generation, destroys, and starts.
				if err := other.Destroy(t.Context(), other.Reserve(binding), sandbox.AnyLease); err != nil {
					t.Fatal(err)
				}
				second = startSandbox(t, other, later, 2, "")
				play(t, second, "run_1", "remember me")
			}
			b := &between{}
			stale := with(t, data, b)
			switch when {
			case "before it began":
				take(sandbox.Spec{})
			case "before the launch":
				b.before = take
			case "after the launch":
				b.after = take
			}
			if rt, err := stale.Start(t.Context(), binding, 1, stale.Reserve(binding), construction(""), nil); err == nil {
				rt.Close()
				t.Fatal("the stale engine started a worker")
			}
			// What the later worker wrote is there, and its next turn may begin.
			if _, err := os.Stat(filepath.Join(data, "state", binding.SessionID, "1", "state", "turns.json")); err != nil {
				entries, _ := os.ReadDir(filepath.Join(data, "state", binding.SessionID, "1", "state"))
				t.Fatalf("%v; there is %v", err, entries)
			}
			kept := &conversation{m: other, session: later.SessionID, gen: 2, rt: second}
			kept.commit(t, "run_1")
			if got := texts(kept.play(t, harness.Turn{RunID: "run_2", Text: `{"recall":true}`})); !strings.Contains(got, "remember me") {
				t.Fatalf("got %q", got)
			}
		})
	}
}

// TestTakenOverWhileItStarts: another engine took the worker over while this one was still about to bind it. This one
// leaves it alone.
func TestTakenOverWhileItStarts(t *testing.T) {
	data := shortDir(t)
	var second *worker.Client
	m := with(t, data, &between{after: func(s sandbox.Spec) {
		secret, err := os.ReadFile(s.SecretFile)
		if err != nil {
			t.Fatal(err)
		}
		second, err = worker.Dial(t.Context(), worker.ClientOptions{
			Socket: s.Socket, Secret: strings.TrimSpace(string(secret)), Binding: binding, LeaseGen: 2, Isolation: event.IsolationNone,
		})
		if err != nil {
			t.Fatal(err)
		}
		c := construction("")
		if err := second.Bind(t.Context(), worker.BindRequest{Construction: &c}); err != nil {
			t.Fatal(err)
		}
	}})
	if _, err := m.Start(t.Context(), binding, 1, m.Reserve(binding), construction(""), nil); !errors.Is(err, harness.ErrStaleLease) {
		t.Fatalf("got %v, want ErrStaleLease", err)
	}
	defer second.Close()
	if got := texts(play(t, second, "run_1", "still here")); got != "still here" {
		t.Fatalf("got %q", got)
	}
}

// TestPlacesAreShared: engines on one data folder count each other's workers.
func TestPlacesAreShared(t *testing.T) {
	data := shortDir(t)
	two := func(o *sandbox.Options) { o.MaxSandboxes = 2 }
	managers := []*sandbox.Manager{manager(t, data, two), manager(t, data, two)}
	bind := func(n int) harness.Binding {
		return harness.Binding{SessionID: fmt.Sprint("ses_", n), Epoch: 1, SandboxGen: 1}
	}
	for n, m := range managers {
		r := startSandbox(t, m, bind(n), 1, "")
		if err := r.StartTurn(t.Context(), harness.Turn{RunID: "run_1", Text: `{"hang":true}`}); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range managers {
		if _, err := m.Start(t.Context(), bind(2), 1, m.Reserve(bind(2)), construction(""), nil); !problem.Is(err, problem.Capacity) {
			t.Fatalf("got %v, want CAPACITY", err)
		}
	}
}
