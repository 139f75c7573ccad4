package process

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/sandbox"
	"github.com/harness-engine/harness-engine/worker/procfs"
)

func TestWorkerOutlivesEngine(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			data := shortDir(t)
			m := manager(t, data)
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			engine := exec.Command(self)
			engine.Env = append(os.Environ(), "SANDBOX_TEST_ENGINE="+data, "SANDBOX_TEST_WORKER="+workerPath)
			engine.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			engine.Stderr = os.Stderr
			out, err := engine.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := engine.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			lines.Buffer(nil, 1<<20)
			lines.Scan()
			instance := lines.Text()
			var got []string
			for len(got) < 50 && lines.Scan() {
				got = append(got, lines.Text())
			}
			if err := syscall.Kill(-engine.Process.Pid, sig); err != nil {
				t.Fatal(err)
			}
			for lines.Scan() { // what it had read before it died
				got = append(got, lines.Text())
			}
			_ = engine.Wait()
			if len(got) < 50 {
				t.Fatalf("the engine read %d steps", len(got))
			}

			r, err := m.Attach(t.Context(), binding, 2, m.Reserve(binding))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if r.Instance() != instance {
				t.Fatal("another worker answers")
			}
			// Starting again, as an engine does that cannot know whether it had started, changes nothing.
			if err := r.StartTurn(t.Context(), harness.Turn{RunID: "run_1", Text: longScript}); err != nil {
				t.Fatal(err)
			}
			s, err := r.Events(t.Context(), "run_1", int64(len(got)))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for {
				e, err := s.Next(t.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, line(e))
			}
			// The whole of it once more, from the beginning: the journal still has it.
			whole, err := r.Events(t.Context(), "run_1", 0)
			if err != nil {
				t.Fatal(err)
			}
			defer whole.Close()
			for i := 0; ; i++ {
				e, err := whole.Next(t.Context())
				if errors.Is(err, io.EOF) {
					if i != len(got) || i != 301 {
						t.Fatalf("%d steps against %d", len(got), i)
					}
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if got[i] != line(e) {
					t.Fatalf("step %d: read %s, journal has %s", i+1, got[i], line(e))
				}
			}
		})
	}
}

func TestWorkerDies(t *testing.T) {
	data := shortDir(t)
	m := manager(t, data)
	r := startSandbox(t, m, binding, 1, "")
	if err := r.StartTurn(t.Context(), harness.Turn{RunID: "run_1", Text: `[{"text":"last words"},{"delay_ms":20},{"exit":3}]`}); err != nil {
		t.Fatal(err)
	}
	s, err := r.Events(t.Context(), "run_1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for err == nil {
		_, err = s.Next(t.Context())
	}
	if !errors.Is(err, harness.ErrUnreachable) {
		t.Fatalf("got %v, want ErrUnreachable", err)
	}
	eventually(t, "the worker is dead", func() bool {
		_, err := m.Attach(t.Context(), binding, 2, m.Reserve(binding))
		return errors.Is(err, harness.ErrGone)
	})
	if err := m.Destroy(t.Context(), m.Reserve(binding), sandbox.AnyLease); err != nil {
		t.Fatal(err)
	}
}

func TestAttachFences(t *testing.T) {
	m := manager(t, shortDir(t))
	old := startSandbox(t, m, binding, 1, "")
	if err := old.StartTurn(t.Context(), harness.Turn{RunID: "run_1", Text: `{"hang":true}`}); err != nil {
		t.Fatal(err)
	}
	s, err := old.Events(t.Context(), "run_1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := m.Attach(t.Context(), binding, 7, m.Reserve(binding))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := s.Next(t.Context()); !errors.Is(err, harness.ErrStaleLease) {
		t.Fatalf("stream of the old engine: %v, want ErrStaleLease", err)
	}
	if err := old.Cancel(t.Context(), "run_1", event.CancelClientRequest); !errors.Is(err, harness.ErrStaleLease) {
		t.Fatalf("cancel by the old engine: %v, want ErrStaleLease", err)
	}
	if _, err := m.Attach(t.Context(), binding, 6, m.Reserve(binding)); !errors.Is(err, harness.ErrStaleLease) {
		t.Fatalf("attach with a lower lease: %v, want ErrStaleLease", err)
	}
	if err := r.Cancel(t.Context(), "run_1", event.CancelClientRequest); err != nil {
		t.Fatal(err)
	}
	events := readAll(t, r, "run_1", 0)
	if events[len(events)-1].Type() != event.TypeRunCancelled {
		t.Fatalf("got %v", events)
	}
}

// orphanTTL is for workers that are to end alone. Within it a test has to do its next step, on a machine that is slow or stands
// still for a moment, too.
const orphanTTL = 3 * time.Second

func TestOrphanedWorkerEnds(t *testing.T) {
	t.Parallel() // it waits
	data := shortDir(t)
	m := manager(t, data, func(o *sandbox.Options) { o.Profiles[0].OrphanTTL = orphanTTL })
	r := startSandbox(t, m, binding, 1, "")
	p := pidOf(t, data, m, binding)
	if err := r.StartTurn(t.Context(), harness.Turn{RunID: "run_1", Text: `{"hang":true}`}); err != nil {
		t.Fatal(err)
	}
	s, err := r.Events(t.Context(), "run_1", 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*orphanTTL)
	defer cancel()
	if _, err := s.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a stream that is open keeps the worker: %v", err)
	}
	s.Close()
	eventually(t, "the orphan has ended", func() bool { return gone(p) })
	if _, err := os.Stat(filepath.Join(data, "sbx", m.Reserve(binding), "s")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the socket is left")
	}
}

// shimOf is the parent of a binding's worker.
func shimOf(t *testing.T, data string, m *sandbox.Manager, b harness.Binding) procfs.Process {
	t.Helper()
	p, err := procfs.ReadFile(filepath.Join(data, "sbx", m.Reserve(b), "shim"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestOneOfTwoDies: of a worker and its shim, whoever is killed, the other ends in bounded time, and the run is lost: no
// terminal is made up on the way.
func TestOneOfTwoDies(t *testing.T) {
	for _, victim := range []string{"worker", "shim"} {
		t.Run(victim, func(t *testing.T) {
			data := shortDir(t)
			m := manager(t, data)
			r := startSandbox(t, m, binding, 1, "")
			worker, shim := pidOf(t, data, m, binding), shimOf(t, data, m, binding)
			if worker.PPID != shim.PID || shim.PPID == os.Getpid() {
				t.Fatalf("the worker is a child of %d, the shim %d of %d", worker.PPID, shim.PID, shim.PPID)
			}
			if err := r.StartTurn(t.Context(), harness.Turn{RunID: "run_1", Text: `[{"text":"last words"},{"hang":true}]`}); err != nil {
				t.Fatal(err)
			}
			s, err := r.Events(t.Context(), "run_1", 0)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := procfs.Signal(map[string]procfs.Process{"worker": worker, "shim": shim}[victim], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			for err == nil {
				var e harness.SourceEvent
				e, err = s.Next(t.Context())
				for _, ev := range e.Events {
					if ev.Type().Terminal() {
						t.Errorf("the run ended with %s", ev.Type())
					}
				}
			}
			if !errors.Is(err, harness.ErrUnreachable) {
				t.Fatalf("got %v, want ErrUnreachable", err)
			}
			eventually(t, "both are gone", func() bool { return gone(worker) && gone(shim) })
			if _, err := m.Attach(t.Context(), binding, 2, m.Reserve(binding)); !errors.Is(err, harness.ErrGone) {
				t.Fatalf("attach: %v, want ErrGone", err)
			}
			// The next generation may begin.
			next := binding
			next.SandboxGen = 2
			startSandbox(t, m, next, 2, "")
		})
	}
}

// TestStoppedOrphanEnds: a worker that is stopped and that nobody looks after is ended by its shim.
func TestStoppedOrphanEnds(t *testing.T) {
	t.Parallel() // it waits
	data := shortDir(t)
	m := manager(t, data, func(o *sandbox.Options) { o.Profiles[0].OrphanTTL = orphanTTL })
	r := startSandbox(t, m, binding, 1, "")
	worker, shim := pidOf(t, data, m, binding), shimOf(t, data, m, binding)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := procfs.Signal(worker, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are gone", func() bool { return gone(worker) && gone(shim) })
}
