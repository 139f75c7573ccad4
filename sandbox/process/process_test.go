package process

import (
	"errors"
	"fmt"
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
	kept := &conversation{m: m, session: binding.SessionID, gen: 1, rt: r}
	kept.commit(t, "run_1")
	addr := m.Reserve(binding)
	if all, err := m.List(t.Context()); err != nil || len(all) != 1 || all[0] != addr {
		t.Fatalf("list %v %v", all, err)
	}
	if _, err := m.Start(t.Context(), binding, 2, addr, construction(""), nil); !errors.Is(err, harness.ErrConflict) {
		t.Fatalf("a second start: %v, want ErrConflict", err)
	}
	p := pidOf(t, data, m, binding)
	for range 2 {
		if err := m.Destroy(t.Context(), addr, sandbox.AnyLease); err != nil {
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

	// The next generation remembers, through the thread state.
	next := binding
	next.SandboxGen = 2
	kept.seat(t)
	if kept.rt.Instance() == r.Instance() {
		t.Fatal("two workers with one instance")
	}
	if got := texts(kept.play(t, harness.Turn{RunID: "run_2", Text: `{"recall":true}`})); got != "I remember 1 message:\n1. hello there" {
		t.Fatalf("got %q", got)
	}
	// A forgotten epoch does not.
	if err := m.Destroy(t.Context(), m.Reserve(next), sandbox.AnyLease); err != nil {
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

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
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

// TestIdleWorkersMakeRoom: an idle worker gives its place to another conversation, a busy one does not, and the idle

// conversation goes on in a new worker.

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
			_, err = m.Start(t.Context(), binding, 1, m.Reserve(binding), construction(""), nil)
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
	_, err := m.Start(t.Context(), binding, 1, m.Reserve(binding), construction(`{"steps":[{"nonsense":1}]}`), nil)
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
	if err := m.Destroy(t.Context(), m.Reserve(binding), sandbox.AnyLease); err != nil {
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
		if err := m.Destroy(t.Context(), addr, sandbox.AnyLease); err != nil {
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

// BenchmarkEvents measures steps from a driver in a real worker to an engine that acknowledges in batches.
