package shim

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/worker/procfs"
)

// rig is a shim with its worker, both up.
type rig struct {
	mark         string
	dir          string
	shim, worker procfs.Process
}

// launch starts a shim the way a backend does: by a starter that leaves it to init.
func launch(t *testing.T, as string, ttl time.Duration) rig {
	t.Helper()
	r := rig{mark: t.Name() + "/" + as, dir: t.TempDir()}
	cmd := exec.Command("/proc/self/exe", "--role", "starter", "--as", as, "--dir", r.dir, "--ttl", ttl.String())
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), markVariable + "=" + r.mark}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stderr, err := os.Create(r.dir + "/stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	cmd.ExtraFiles = []*os.File{theirs}
	t.Cleanup(func() { r.end(t) })
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	if line, err := bufio.NewReader(ours).ReadString('\n'); line != "ready\n" {
		said, _ := os.ReadFile(r.dir + "/stderr")
		t.Fatalf("%q %v: %s", line, err, said)
	}
	r.shim, r.worker = r.process(t, "shim"), r.process(t, "pid")
	return r
}

func (r rig) process(t *testing.T, file string) procfs.Process {
	t.Helper()
	p, err := procfs.ReadFile(r.dir + "/" + file)
	if err != nil {
		t.Fatal(file, err)
	}
	return p
}

// end leaves nothing of a failed test behind.
func (r rig) end(t *testing.T) {
	for _, line := range marked(r.mark) {
		if t.Failed() {
			t.Log("left:", line)
		}
		if pid, _, ok := strings.Cut(line, " "); ok {
			_ = exec.Command("kill", "-9", pid).Run()
		}
	}
}

func wantNone(t *testing.T, mark string) {
	t.Helper()
	deadline := time.Now().Add(bound)
	for {
		left := marked(mark)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v there are still %q", bound, left)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// bound is for what comes about unless it is broken.
const bound = time.Minute

// TestNothingIsLeft: whoever dies and however, of shim and worker, nothing of the sandbox is left.
func TestNothingIsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		as  string
		ttl time.Duration
		do  func(t *testing.T, r rig)
	}{
		"worker killed":      {"worker", time.Hour, func(t *testing.T, r rig) { send(t, r.worker, syscall.SIGKILL) }},
		"worker told to end": {"worker", time.Hour, func(t *testing.T, r rig) { send(t, r.worker, syscall.SIGTERM) }},
		"worker returns":     {"returns", time.Hour, nil},
		"shim told to end":   {"worker", time.Hour, func(t *testing.T, r rig) { send(t, r.shim, syscall.SIGTERM) }},
		"shim killed":        {"worker", time.Hour, func(t *testing.T, r rig) { send(t, r.shim, syscall.SIGKILL) }},
		"shim killed, worker stopped": {"worker", time.Hour, func(t *testing.T, r rig) {
			send(t, r.worker, syscall.SIGSTOP)
			send(t, r.shim, syscall.SIGKILL)
		}},
		"worker stopped for too long": {"worker", time.Second, func(t *testing.T, r rig) { send(t, r.worker, syscall.SIGSTOP) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.do == nil {
				mark := t.Name() + "/" + tc.as
				launchAny(t, tc.as, tc.ttl)
				wantNone(t, mark)
				return
			}
			r := launch(t, tc.as, tc.ttl)
			if n := len(marked(r.mark)); n < 5 { // shim, worker, three descendants or their shells
				t.Fatalf("%q: this shows nothing", marked(r.mark))
			}
			tc.do(t, r)
			wantNone(t, r.mark)
		})
	}
}

// launchAny is launch for a worker that may have ended by now.
func launchAny(t *testing.T, as string, ttl time.Duration) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "--role", "starter", "--as", as, "--dir", t.TempDir(), "--ttl", ttl.String())
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), markVariable + "=" + t.Name() + "/" + as}
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	if said, err := io.ReadAll(ours); err != nil || string(said) != "ready\n" {
		t.Fatalf("%q %v", said, err)
	}
}

func send(t *testing.T, p procfs.Process, sig syscall.Signal) {
	t.Helper()
	if err := procfs.Signal(p, sig); err != nil {
		t.Fatal(err)
	}
}

// TestOutOfTheTree: the shim is no descendant of whoever started it, in a session of its own, and so is the worker.
func TestOutOfTheTree(t *testing.T) {
	r := launch(t, "worker", time.Hour)
	all, err := procfs.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procfs.Descendants(all, os.Getpid()) {
		if p.PID == r.shim.PID || p.PID == r.worker.PID {
			t.Errorf("process %d is a descendant of this one", p.PID)
		}
	}
	if r.worker.PPID != r.shim.PID {
		t.Errorf("the worker's parent is %d, the shim is %d", r.worker.PPID, r.shim.PID)
	}
	if r.shim.Session != r.shim.PID || r.worker.Session != r.worker.PID {
		t.Errorf("sessions %d of %d, %d of %d", r.shim.Session, r.shim.PID, r.worker.Session, r.worker.PID)
	}
}

// TestStoppedForAWhile: shim and worker may be stopped together, also for longer than the worker may be silent.
func TestStoppedForAWhile(t *testing.T) {
	r := launch(t, "worker", 200*time.Millisecond)
	for _, p := range []procfs.Process{r.worker, r.shim} {
		send(t, p, syscall.SIGSTOP)
	}
	time.Sleep(time.Second) // the fault itself: longer than twice the time that a worker may be silent
	for _, p := range []procfs.Process{r.shim, r.worker} {
		send(t, p, syscall.SIGCONT)
	}
	time.Sleep(lastLook + 500*time.Millisecond) // by then a shim that had been misled would have ended it
	for what, p := range map[string]procfs.Process{"shim": r.shim, "worker": r.worker} {
		if now, err := procfs.Read(p.PID); err != nil || now.Start != p.Start || now.Zombie() {
			t.Errorf("the %s is gone: %v", what, err)
		}
	}
}

// startsNothing runs a shim that has to refuse.
func startsNothing(t *testing.T, mark, want string, args ...string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{"--role", "shim", "--as", "worker", "--ttl", "1h"}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), markVariable + "=" + mark}
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	cmd.ExtraFiles = []*os.File{theirs}
	said, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(said), want) {
		t.Fatalf("%v %s, want %q", err, said, want)
	}
}

// TestOneWorkerAtATime: a second shim with the same lock starts nothing.
func TestOneWorkerAtATime(t *testing.T) {
	r := launch(t, "worker", time.Hour)
	startsNothing(t, r.mark, "another worker", "--dir", r.dir)
	if n := len(marked(r.mark)); n < 5 {
		t.Fatalf("%q: the first did not go on", marked(r.mark))
	}
}

// TestOwner: a shim starts nothing where the folder belongs to another sandbox by now.
func TestOwner(t *testing.T) {
	dir := t.TempDir()
	owner := dir + "/owner"
	startsNothing(t, t.Name(), "another one's", "--dir", dir, "--owner", owner, "--claim", "1 sbx_a\n") // there is no owner
	if err := os.WriteFile(owner, []byte("2 sbx_b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	startsNothing(t, t.Name(), "another one's", "--dir", dir, "--owner", owner, "--claim", "1 sbx_a\n")
	if left := marked(t.Name()); len(left) > 0 {
		t.Fatalf("there is %q", left)
	}
}
