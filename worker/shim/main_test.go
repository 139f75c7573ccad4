package shim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/worker/procfs"
)

// markVariable is in the environment of everything that a test starts: what has it and runs is left behind.
const markVariable = "SHIM_TEST_MARK"

// TestMain is also the shim, its worker and the worker's children: the test program started with a role.
func TestMain(m *testing.M) {
	switch role := argument("--role"); role {
	case "starter": // an engine's first step
		if err := Detach([]string{"--role", "shim", "--as", argument("--as"), "--dir", argument("--dir"), "--ttl", argument("--ttl")}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "shim":
		dir := argument("--dir")
		err := Run(Options{ // the worker may take its time to come up: its first word says the TTL of the test
			Args:    []string{"--role", argument("--as"), "--dir", dir, "--ttl", argument("--ttl")},
			PidFile: dir + "/shim", Lock: dir + "/lock", Owner: argument("--owner"), Claim: argument("--claim"), TTL: time.Hour, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "":
		goleak.VerifyTestMain(m)
	default:
		work(role)
	}
}

func argument(name string) string {
	for i, a := range os.Args {
		if a == name && i+1 < len(os.Args) {
			return os.Args[i+1]
		}
	}
	return ""
}

// work is a worker with three descendants: a child, one in a session of its own, and one that lost its parent. The last
// two do not hear of the worker's death.
func work(role string) {
	runtime.LockOSThread()
	dir := argument("--dir")
	link, err := OpenLink(linkFD)
	if err != nil {
		panic(err)
	}
	for _, s := range []string{"sleep 1000", "setsid sleep 1000 &", "(setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1000; done' &)"} {
		cmd := exec.Command("/bin/sh", "-c", s)
		cmd.Env = os.Environ()
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		if s != "sleep 1000" {
			_ = cmd.Wait()
		}
	}
	if err := procfs.WriteFile(dir + "/pid"); err != nil {
		panic(err)
	}
	ready := os.NewFile(ReadyFD, "ready")
	_, _ = io.WriteString(ready, "ready\n")
	_ = ready.Close()
	stop := make(chan os.Signal, 1)
	switch role {
	case "worker", "returns": // a worker that is well
		ttl, _ := time.ParseDuration(argument("--ttl"))
		go link.Vouch(context.Background(), func() time.Duration { return ttl }, ttl)
		signal.Notify(stop, syscall.SIGTERM)
		if role == "returns" {
			os.Exit(7)
		}
	case "silent": // one that hangs, and hears nothing
		signal.Ignore(syscall.SIGTERM)
		select {}
	}
	go func() {
		link.Gone()
		self := os.Getpid()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = procfs.KillAll(ctx, func(all []procfs.Process) []procfs.Process {
			var left []procfs.Process
			for _, p := range all {
				if v, ok := procfs.Environ(p.PID, markVariable); ok && v == os.Getenv(markVariable) && p.PID != self {
					left = append(left, p)
				}
			}
			return left
		}, nil)
		os.Exit(1)
	}()
	<-stop
	os.Exit(0)
}

// marked lists what runs with the mark, by name.
func marked(mark string) []string {
	all, err := procfs.All()
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, p := range all {
		if v, ok := procfs.Environ(p.PID, markVariable); ok && v == mark && !p.Zombie() {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
			out = append(out, fmt.Sprintf("%d of %d: %s", p.PID, p.PPID, strings.ReplaceAll(string(line), "\x00", " ")))
		}
	}
	return out
}
