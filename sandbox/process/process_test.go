package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/sandbox"
	"github.com/harness-engine/harness-engine/worker"
	"github.com/harness-engine/harness-engine/worker/procfs"
)

func TestRefusedUnlessAllowed(t *testing.T) {
	if _, err := New(Options{Worker: workerPath}); !errors.Is(err, ErrUnisolated) {
		t.Fatalf("got %v, want ErrUnisolated", err)
	}
	if _, err := New(Options{AllowUnisolated: true}); err == nil {
		t.Fatal("a backend without a worker program")
	}
	if _, err := New(Options{AllowUnisolated: true, Worker: "/no/such/program"}); err == nil {
		t.Fatal("a backend with a program that does not exist")
	}
}

func pidOf(t *testing.T, data string, m *sandbox.Manager, b harness.Binding) procfs.Process {
	t.Helper()
	p, err := procfs.ReadFile(filepath.Join(data, "sbx", m.Reserve(b), "pid"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func gone(p procfs.Process) bool {
	now, err := procfs.Read(p.PID)
	return errors.Is(err, procfs.ErrGone) || now.Start != p.Start || now.Zombie()
}

func TestLife(t *testing.T) {
	data := shortDir(t)
	m := manager(t, data)
	r := startSandbox(t, m, binding, 1, "")
	if r.Isolation() != event.IsolationNone {
		t.Fatalf("isolation %q", r.Isolation())
	}
	if got := texts(play(t, r, "run_1", "hello there")); got != "hello there" {
		t.Fatalf("got %q", got)
	}
	addr := m.Reserve(binding)
	if all, err := m.List(t.Context()); err != nil || len(all) != 1 || all[0] != addr {
		t.Fatalf("list %v %v", all, err)
	}
	if _, err := m.Start(t.Context(), binding, 2, addr, construction("")); !errors.Is(err, harness.ErrConflict) {
		t.Fatalf("a second start: %v, want ErrConflict", err)
	}
	p := pidOf(t, data, m, binding)
	for range 2 {
		if err := m.Destroy(t.Context(), addr); err != nil {
			t.Fatal(err)
		}
	}
	if !gone(p) {
		t.Fatal("the worker lives")
	}
	if _, err := os.Stat(filepath.Join(data, "sbx", addr)); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the sandbox's folder is left")
	}
	if _, err := m.Attach(t.Context(), binding, 2, addr); !errors.Is(err, harness.ErrGone) {
		t.Fatalf("attach: %v, want ErrGone", err)
	}

	// The next generation remembers, through the state folder.
	next := binding
	next.SandboxGen = 2
	r2 := startSandbox(t, m, next, 2, "")
	if r2.Instance() == r.Instance() {
		t.Fatal("two workers with one instance")
	}
	if got := texts(play(t, r2, "run_2", `{"recall":true}`)); got != "I remember 1 message:\n1. hello there" {
		t.Fatalf("got %q", got)
	}
	// A forgotten epoch does not.
	if err := m.Destroy(t.Context(), m.Reserve(next)); err != nil {
		t.Fatal(err)
	}
	if err := m.ForgetState(t.Context(), binding.SessionID, 1); err != nil {
		t.Fatal(err)
	}
	next.SandboxGen = 3
	r3 := startSandbox(t, m, next, 2, "")
	if got := texts(play(t, r3, "run_3", `{"recall":true}`)); got != "I remember nothing." {
		t.Fatalf("got %q", got)
	}
}

// TestWorkerOutlivesEngine: the engine is killed in mid-run, by SIGKILL as well as by what its terminal sends to its
// group. The worker goes on, and another engine reads on from the cursor: what both read together is the whole run.
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
	if err := m.Destroy(t.Context(), m.Reserve(binding)); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
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

// TestNothingOfTheEngineGetsIn: environment, descriptors, arguments and files of a worker.
func TestNothingOfTheEngineGetsIn(t *testing.T) {
	t.Setenv("ENGINE_CANARY", "canary-in-the-environment")
	data := shortDir(t)
	m := manager(t, data)
	startSandbox(t, m, binding, 1, "")
	p := pidOf(t, data, m, binding)
	dir := filepath.Join(data, "sbx", m.Reserve(binding))
	for file, mode := range map[string]os.FileMode{"": 0o700, "secret": 0o600, "s": 0o600, "pid": 0o600, "log": 0o600} {
		st, err := os.Stat(filepath.Join(dir, file))
		if err != nil {
			t.Error(err)
			continue
		}
		if st.Mode().Perm() != mode {
			t.Errorf("%q has mode %v, want %v", file, st.Mode().Perm(), mode)
		}
	}
	secret, err := os.ReadFile(filepath.Join(dir, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"environ", "cmdline"} {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.PID, file))
		if errors.Is(err, os.ErrPermission) {
			continue // the worker is not dumpable, and this test is not root
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), "canary") || strings.Contains(string(raw), strings.TrimSpace(string(secret))) {
			t.Errorf("%s of the worker: %q", file, raw)
		}
	}
	if p.Session != p.PID {
		t.Errorf("the worker is in session %d, not its own", p.Session)
	}
}

func TestCapacity(t *testing.T) {
	data := shortDir(t)
	m := manager(t, data, func(o *sandbox.Options) { o.MaxSandboxes = 2 })
	bind := func(n int64) harness.Binding {
		return harness.Binding{SessionID: fmt.Sprint("ses_", n), Epoch: 1, SandboxGen: 1}
	}
	for n := int64(1); n <= 2; n++ {
		startSandbox(t, m, bind(n), 1, "")
	}
	full := func(m *sandbox.Manager) {
		t.Helper()
		_, err := m.Start(t.Context(), bind(3), 1, m.Reserve(bind(3)), construction(""))
		p, ok := problem.As(err)
		if !ok || p.Code != problem.Capacity || p.Extra["retryAfter"] == nil {
			t.Fatalf("got %v, want CAPACITY with retryAfter", err)
		}
	}
	full(m)
	// An engine that starts counts what is there.
	full(manager(t, data, func(o *sandbox.Options) { o.MaxSandboxes = 2 }))
	// A worker that died by itself makes room.
	p := pidOf(t, data, m, bind(1))
	if err := procfs.Signal(p, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the worker is dead", func() bool { return gone(p) })
	startSandbox(t, m, bind(3), 1, "")
}

// TestIdleWorkersMakeRoom: an idle worker gives its place to another conversation, a busy one does not, and the idle
// conversation goes on in a new worker.
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
	var third harness.Runtime
	eventually(t, "there is room", func() bool { // a stream's end is noticed a moment after the client's Close
		var err error
		third, err = m.Start(t.Context(), bind(3, 1), 1, m.Reserve(bind(3, 1)), construction(""))
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
	var again harness.Runtime
	eventually(t, "there is room again", func() bool {
		var err error
		again, err = m.Start(t.Context(), bind(2, 2), 2, m.Reserve(bind(2, 2)), construction(""))
		return err == nil
	})
	defer again.Close()
	if got := texts(play(t, again, "run_3", `{"recall":true}`)); !strings.Contains(got, "remember me") {
		t.Fatalf("got %q", got)
	}
}

func TestWorkerThatDoesNotComeUp(t *testing.T) {
	for name, program := range map[string]string{
		"ends at once": "#!/bin/sh\necho no such luck >&2\nexit 1\n",
		"never ready":  "#!/bin/sh\nexec sleep 60\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			fake := filepath.Join(dir, "worker")
			if err := os.WriteFile(fake, []byte(program), 0o700); err != nil {
				t.Fatal(err)
			}
			m, _, err := newManager(filepath.Join(dir, "d"), fake, func(o *sandbox.Options) {
				o.Profiles[0].StartTimeout = 300 * time.Millisecond
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = m.Start(t.Context(), binding, 1, m.Reserve(binding), construction(""))
			if !problem.Is(err, problem.HarnessUnavailable) {
				t.Fatalf("got %v, want HARNESS_UNAVAILABLE", err)
			}
			if strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "luck") {
				t.Fatalf("the error shows too much: %v", err)
			}
			if all, err := m.List(t.Context()); err != nil || len(all) != 0 {
				t.Fatalf("left behind: %v %v", all, err)
			}
		})
	}
}

func TestHarnessThatDoesNotOpen(t *testing.T) {
	m := manager(t, shortDir(t))
	_, err := m.Start(t.Context(), binding, 1, m.Reserve(binding), construction(`{"steps":[{"nonsense":1}]}`))
	if !problem.Is(err, problem.HarnessUnavailable) || !strings.Contains(err.Error(), "nonsense") {
		t.Fatalf("got %v, want HARNESS_UNAVAILABLE that names the field", err)
	}
	if all, err := m.List(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("left behind: %v %v", all, err)
	}
}

// TestKillStoppedWorker: a worker that does not react is ended all the same.
func TestKillStoppedWorker(t *testing.T) {
	data := shortDir(t)
	m, backend, err := newManager(data, workerPath)
	if err != nil {
		t.Fatal(err)
	}
	backend.polite = 200 * time.Millisecond
	startSandbox(t, m, binding, 1, "")
	p := pidOf(t, data, m, binding)
	if err := procfs.Signal(p, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := m.Destroy(t.Context(), m.Reserve(binding)); err != nil {
		t.Fatal(err)
	}
	if !gone(p) {
		t.Fatal("the worker lives")
	}
}

// TestKillFindsWhatADeadWorkerLeft: a descendant that detached itself, whose worker is dead, is known by its mark.
func TestKillFindsWhatADeadWorkerLeft(t *testing.T) {
	m := manager(t, shortDir(t))
	addr := m.Reserve(binding)
	for mark, mine := range map[string]bool{addr + ".1": true, addr: false, "sbx_other.1": false} {
		left := exec.Command("/bin/sh", "-c", "echo up; read x")
		left.Env = []string{worker.MarkVariable + "=" + mark}
		left.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		in, err := left.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := left.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := left.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		if err := m.Destroy(t.Context(), addr); err != nil {
			t.Fatal(err)
		}
		p, err := procfs.Read(left.Process.Pid)
		if ended := errors.Is(err, procfs.ErrGone) || p.Zombie(); ended != mine {
			t.Errorf("mark %q: ended is %v", mark, ended)
		}
		_ = in.Close()
		_ = left.Wait()
	}
}

func TestOrphanedWorkerEnds(t *testing.T) {
	data := shortDir(t)
	m := manager(t, data, func(o *sandbox.Options) { o.Profiles[0].OrphanTTL = 300 * time.Millisecond })
	r := startSandbox(t, m, binding, 1, "")
	p := pidOf(t, data, m, binding)
	if err := r.StartTurn(t.Context(), harness.Turn{RunID: "run_1", Text: `{"hang":true}`}); err != nil {
		t.Fatal(err)
	}
	s, err := r.Events(t.Context(), "run_1", 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
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

func BenchmarkStartToFirstEvent(b *testing.B) {
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, _, err := newManager(dir, workerPath)
	if err != nil {
		b.Fatal(err)
	}
	n := int64(0)
	for b.Loop() {
		n++
		bind := harness.Binding{SessionID: "ses_1", Epoch: 1, SandboxGen: n}
		r, err := m.Start(b.Context(), bind, 1, m.Reserve(bind), construction(""))
		if err != nil {
			b.Fatal(err)
		}
		if err := r.StartTurn(b.Context(), harness.Turn{RunID: "run_1", Text: "x"}); err != nil {
			b.Fatal(err)
		}
		s, err := r.Events(b.Context(), "run_1", 0)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		r.Close()
		if err := m.Destroy(b.Context(), m.Reserve(bind)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkEvents measures steps from a driver in a real worker to an engine that acknowledges in batches.
func BenchmarkEvents(b *testing.B) {
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, _, err := newManager(dir, workerPath)
	if err != nil {
		b.Fatal(err)
	}
	r, err := m.Start(b.Context(), binding, 1, m.Reserve(binding), construction(""))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { r.Close(); _ = m.Destroy(context.Background(), m.Reserve(binding)) }()
	if err := r.StartTurn(b.Context(), harness.Turn{RunID: "run_1", Text: `{"repeat":{"times":1000000,"steps":[{"text":"benchmark"}]}}`}); err != nil {
		b.Fatal(err)
	}
	s, err := r.Events(b.Context(), "run_1", 0)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ReportAllocs()
	for b.Loop() {
		e, err := s.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if e.Seq%512 == 0 {
			if err := r.Ack(b.Context(), "run_1", e.Seq); err != nil {
				b.Fatal(err)
			}
		}
	}
}
