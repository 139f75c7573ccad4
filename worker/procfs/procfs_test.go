package procfs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	tail := " S 10 20 30 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2"
	cases := []struct {
		name, in string
		want     Process
		bad      bool
	}{
		{name: "plain", in: "42 (sh)" + tail, want: Process{42, 10, 20, 30, 'S', 98765}},
		{name: "name with parentheses and spaces", in: "42 (a) S 1 (b) c)" + tail, want: Process{42, 10, 20, 30, 'S', 98765}},
		{name: "name with newline", in: "42 (a\nb)" + tail, want: Process{42, 10, 20, 30, 'S', 98765}},
		{name: "empty", in: "", bad: true},
		{name: "no name", in: "42 sh S 1 2 3", bad: true},
		{name: "short", in: "42 (sh) S 1 2 3", bad: true},
		{name: "bad id", in: "x (sh)" + tail, bad: true},
		{name: "bad start", in: "42 (sh) S 10 20 30 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 -5 1 2", bad: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseStat([]byte(c.in))
			if (err != nil) != c.bad {
				t.Fatalf("error %v, want bad=%v", err, c.bad)
			}
			if !c.bad && got != c.want {
				t.Fatalf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (a) b) S 10 20 30 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2"))
	f.Add([]byte(")("))
	f.Fuzz(func(t *testing.T, raw []byte) { _, _ = parseStat(raw) })
}

func TestDescendants(t *testing.T) {
	all := []Process{{PID: 1, PPID: 0}, {PID: 2, PPID: 1}, {PID: 3, PPID: 2}, {PID: 4, PPID: 3}, {PID: 5, PPID: 1}, {PID: 0, PPID: 0}}
	got := map[int]bool{}
	for _, p := range Descendants(all, 2) {
		got[p.PID] = true
	}
	if len(got) != 2 || !got[3] || !got[4] {
		t.Fatalf("got %v, want 3 and 4", got)
	}
}

func TestReadSelf(t *testing.T) {
	p, err := Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if p.PPID != os.Getppid() || p.Start == 0 || p.Zombie() {
		t.Fatalf("got %+v", p)
	}
}

func TestSignalRefusesAnotherStartTime(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	stranger := p
	stranger.Start++
	if err := Signal(stranger, unix.SIGKILL); !errors.Is(err, ErrGone) {
		t.Fatalf("signal to another start time: %v, want ErrGone", err)
	}
	if now, err := Read(p.PID); err != nil || now.Zombie() {
		t.Fatalf("the process was hit: %+v %v", now, err)
	}
	if err := Signal(p, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := Signal(p, unix.SIGKILL); !errors.Is(err, ErrGone) {
		t.Fatalf("signal after the end: %v, want ErrGone", err)
	}
}

func TestEnviron(t *testing.T) {
	// The kernel reports the start of a program a moment before its environment can be read, hence the echo.
	cmd := exec.Command("/bin/sh", "-c", "echo up; read x")
	cmd.Env = []string{"A=1", "MARK=x=y", "MARKER=z", "PATH=" + os.Getenv("PATH")}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe() // holds the shell in its read
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if v, ok := Environ(cmd.Process.Pid, "MARK"); !ok || v != "x=y" {
		t.Fatalf("got %q %v", v, ok)
	}
	if _, ok := Environ(cmd.Process.Pid, "NONE"); ok {
		t.Fatal("found a variable that is not there")
	}
}

func TestKillAllIsBounded(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	ghost := Process{PID: os.Getpid(), Start: 1} // never ours, so never hit, and always "alive"
	err := KillAll(ctx, func([]Process) []Process { return []Process{ghost} }, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want the deadline", err)
	}
}
