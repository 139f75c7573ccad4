package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/worker/procfs"
)

func playRole(role string) int {
	switch role {
	case "detach":
		// A tool that does its best to get away: own session, parent gone.
		self, err := os.Executable()
		if err != nil {
			return 2
		}
		env := []string{"WORKER_TEST_ROLE=orphan", MarkVariable + "=" + os.Getenv(MarkVariable)}
		p, err := os.StartProcess(self, []string{self}, &os.ProcAttr{
			Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
		if err != nil {
			return 2
		}
		_ = p.Release()
		if os.Getenv("WORKER_TEST_STAY") != "" {
			_, _ = io.Copy(io.Discard, os.Stdin)
		}
		return 0
	case "keeper":
		// A worker that is killed: its child has to go with it.
		tree, err := NewProcessTree(TreeOptions{Mark: "keeper", Log: quiet})
		if err != nil {
			return 2
		}
		p, err := tree.Start(context.Background(), sh("read x"))
		if err != nil {
			return 2
		}
		runtime.GC() // threads come and go; the one that the child depends on must stay
		fmt.Println(p.Pid())
		time.Sleep(time.Hour) // until it is killed
	case "orphan":
		fmt.Println("orphan", os.Getpid())
		time.Sleep(time.Hour) // until it is killed
	}
	return 2
}

func newTree(t *testing.T) *ProcessTree {
	t.Helper()
	tree, err := NewProcessTree(TreeOptions{Mark: t.Name(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	})
	return tree
}

func sh(script string) Command {
	return Command{Path: "/bin/sh", Args: []string{"-c", script}, Dir: "/", Env: []string{"PATH=" + os.Getenv("PATH")}}
}

func start(t *testing.T, tree *ProcessTree, c Command) Process {
	t.Helper()
	p, err := tree.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// detached starts the double-forking test role and returns the process and the orphan's id.
func detached(t *testing.T, tree *ProcessTree, env ...string) (Process, int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, tree, Command{Path: self, Dir: "/", Env: append([]string{"WORKER_TEST_ROLE=detach"}, env...)})
	line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
	if err != nil {
		t.Fatalf("no orphan: %v %s", err, p.StderrTail())
	}
	pid, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(line), "orphan "))
	if err != nil {
		t.Fatal(err)
	}
	return p, pid
}

func gone(pid int) bool {
	p, err := procfs.Read(pid)
	return errors.Is(err, procfs.ErrGone) || err == nil && p.Zombie()
}

func TestTreeStreamsAndExit(t *testing.T) {
	tree := newTree(t)
	p := start(t, tree, sh(`read x; echo "got $x"; echo "env $SECRET." ; echo oops >&2; exit 3`))
	if _, err := io.WriteString(p.Stdin(), "word\n"); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != "got word\nenv .\n" {
		t.Fatalf("stdout %q", out)
	}
	var exit *ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.Code != 3 {
		t.Fatalf("wait: %v, want exit code 3", err)
	}
	if err := start(t, tree, sh("exit 0")).Wait(); err != nil {
		t.Fatalf("wait: %v, want nil", err)
	}
}

func TestTreeInheritsNothing(t *testing.T) {
	t.Setenv("HARNESS_TEST_SECRET", "s3cret")
	tree := newTree(t)
	p := start(t, tree, sh("env; ls -l /proc/self/fd | wc -l"))
	out, _ := io.ReadAll(p.Stdout())
	if strings.Contains(string(out), "s3cret") {
		t.Fatalf("the worker's environment was inherited: %s", out)
	}
	if !strings.Contains(string(out), MarkVariable+"="+t.Name()+".1") {
		t.Fatalf("mark is missing: %s", out)
	}
}

func TestTreeStderrTailIsBounded(t *testing.T) {
	tree := newTree(t)
	p := start(t, tree, sh(`i=0; while [ $i -lt 3000 ]; do echo "äöü line $i" >&2; i=$((i+1)); done`))
	_, _ = io.ReadAll(p.Stdout())
	_ = p.Wait()
	deadline := time.After(time.Minute)
	for !strings.HasSuffix(p.StderrTail(), "line 2999\n") { // the copy ends on its own time
		select {
		case <-deadline:
			t.Fatalf("tail ends with %q", p.StderrTail())
		case <-time.After(time.Millisecond):
		}
	}
	if n := len(p.StderrTail()); n > MaxStderrTail || n < MaxStderrTail-4 {
		t.Fatalf("tail holds %d bytes", n)
	}
}

func TestTreeRefusals(t *testing.T) {
	tree := newTree(t)
	cases := map[string]Command{
		"relative path":    {Path: "bin/sh", Dir: "/"},
		"not in PATH":      {Path: "no-such-program", Dir: "/", Env: []string{"PATH=/bin:/usr/bin"}},
		"no PATH at all":   {Path: "sh", Dir: "/"},
		"missing folder":   {Path: "/bin/sh", Dir: "/no/such/folder"},
		"missing program":  {Path: "/no/such/program", Dir: "/"},
		"relative in PATH": {Path: "sh", Dir: "/bin", Env: []string{"PATH=."}},
	}
	for name, c := range cases {
		if p, err := tree.Start(t.Context(), c); err == nil {
			p.Kill()
			t.Errorf("%s: started", name)
		}
	}
	if p, err := tree.Start(t.Context(), Command{Path: "true", Dir: "/", Env: []string{"PATH=/bin:/usr/bin"}}); err != nil {
		t.Error(err)
	} else if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

func TestTreeCountIsBounded(t *testing.T) {
	tree := newTree(t)
	for range MaxProcesses {
		start(t, tree, sh("read x"))
	}
	if _, err := tree.Start(t.Context(), sh("true")); !errors.Is(err, ErrTooManyProcesses) {
		t.Fatalf("got %v, want ErrTooManyProcesses", err)
	}
}

func TestKillEndsDetachedDescendants(t *testing.T) {
	for name, env := range map[string][]string{"parent gone": nil, "parent lives": {"WORKER_TEST_STAY=1"}} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t)
			other := start(t, tree, sh("read x"))
			p, orphan := detached(t, tree, env...)
			if env == nil {
				if err := p.Wait(); err != nil {
					t.Fatal(err)
				}
			}
			if gone(orphan) {
				t.Fatal("the orphan ended by itself: the test proves nothing")
			}
			p.Kill()
			if !gone(orphan) {
				t.Fatal("the orphan survived Kill")
			}
			if gone(other.Pid()) {
				t.Fatal("Kill of one process ended another")
			}
			<-p.Done()
		})
	}
}

func TestKillAllEndsEverything(t *testing.T) {
	tree := newTree(t)
	p, orphan := detached(t, tree)
	_ = p.Wait()
	// A shell with a background job that ignores everything that can be ignored, in a group of its own.
	q := start(t, tree, sh(`trap '' TERM INT HUP; (trap '' TERM; while :; do sleep 1; done) & echo $!; wait`))
	line, err := bufio.NewReader(q.Stdout()).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	job, _ := strconv.Atoi(strings.TrimSpace(line))
	if err := tree.KillAll(); err != nil {
		t.Fatal(err)
	}
	for name, pid := range map[string]int{"orphan": orphan, "shell": q.Pid(), "job": job} {
		if !gone(pid) {
			t.Errorf("%s survived KillAll", name)
		}
	}
	var exit *ExitError
	if err := q.Wait(); !errors.As(err, &exit) || exit.Signal == "" {
		t.Errorf("wait: %v, want a signal", err)
	}
	// Orphans are reaped, not left as zombies of the worker. The reaper hears of a death a moment after it.
	eventually(t, "every orphan is reaped", func() bool {
		all, err := procfs.All()
		if err != nil {
			t.Fatal(err)
		}
		return len(procfs.Descendants(all, os.Getpid())) == 0
	})
	// The tree goes on.
	if err := start(t, tree, sh("exit 0")).Wait(); err != nil {
		t.Error(err)
	}
}

func TestReaperLeavesKnownChildrenAlone(t *testing.T) {
	tree := newTree(t)
	for i := range 50 {
		p := start(t, tree, sh(fmt.Sprintf("sh -c 'sh -c : &' ; exit %d", i%7)))
		var exit *ExitError
		err := p.Wait()
		if i%7 == 0 && err != nil || i%7 != 0 && (!errors.As(err, &exit) || exit.Code != i%7) {
			t.Fatalf("process %d: %v", i, err)
		}
	}
}

// TestChildrenDieWithTheWorker: the kernel ends what a killed worker cannot.
func TestChildrenDieWithTheWorker(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	keeper := exec.Command(self)
	keeper.Env = []string{"WORKER_TEST_ROLE=keeper", "PATH=" + os.Getenv("PATH")}
	out, err := keeper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if gone(child) {
		t.Fatal("the child ended by itself: the test proves nothing")
	}
	if err := keeper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = keeper.Wait()
	eventually(t, "the child is gone", func() bool { return gone(child) })
}

func TestTreeClosed(t *testing.T) {
	tree, err := NewProcessTree(TreeOptions{Mark: "x", Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	p, err := tree.Start(t.Context(), sh("read x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Close(); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if _, err := tree.Start(t.Context(), sh("true")); !errors.Is(err, ErrTreeClosed) {
		t.Fatalf("got %v, want ErrTreeClosed", err)
	}
	if err := tree.Close(); err != nil {
		t.Fatal(err)
	}
}
