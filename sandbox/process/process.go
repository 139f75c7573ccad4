// Package process is the sandbox backend without isolation: the worker is an ordinary process of the engine's user.
// What a harness does there, it does with that user's rights.
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
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/sandbox"
	"github.com/harness-engine/harness-engine/worker"
	"github.com/harness-engine/harness-engine/worker/procfs"
	"github.com/harness-engine/harness-engine/worker/shim"
)

// Name is the backend's name in profiles.
const Name = "process"

// ErrUnisolated: the operator did not allow work without isolation.
var ErrUnisolated = errors.New("the process backend isolates nothing and is refused unless unisolated work is allowed")

// Times of the backend.
const (
	politeTime = 12 * time.Second // for a worker to stop when asked; it bounds itself below that
	shimTime   = 2 * time.Second  // for a shim to see to what its worker left, which it does at once
	pollTime   = 5 * time.Millisecond
	maxStderr  = 4 << 10 // of a failed worker, in the error
)

// Options configures a Backend.
type Options struct {
	AllowUnisolated bool
	Worker          string // path of the harness-worker program
	Node            string // Node.js program for the harnesses that need it; empty: looked up in PATH
	NodeDir         string // folder of the Node.js agents; empty: there is none
	ClaudeDir       string // folder of the Claude bridge; empty: there is none
	LogLevel        string // of the workers: debug, info, warn, error; empty is info
}

// Backend implements sandbox.Backend.
type Backend struct {
	o      Options
	polite time.Duration // politeTime, less in tests
}

var _ sandbox.Backend = (*Backend)(nil)

// New returns the backend, or ErrUnisolated.
func New(o Options) (*Backend, error) {
	if !o.AllowUnisolated {
		return nil, ErrUnisolated
	}
	for what, path := range map[string]*string{"worker program": &o.Worker, "node folder": &o.NodeDir, "claude folder": &o.ClaudeDir} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return nil, fmt.Errorf("failed to find %s: %w", what, err)
		}
		if _, err := os.Stat(abs); err != nil {
			return nil, fmt.Errorf("failed to find %s: %w", what, err)
		}
		*path = abs
	}
	if o.Worker == "" {
		return nil, errors.New("failed to find worker program: no path")
	}
	if o.LogLevel == "" {
		o.LogLevel = "info"
	}
	return &Backend{o: o, polite: politeTime}, nil
}

// Isolation implements sandbox.Backend.
func (b *Backend) Isolation() event.Isolation { return event.IsolationNone }

func pidFile(s sandbox.Spec) string { return filepath.Join(s.Dir, "pid") }

func shimFile(s sandbox.Spec) string { return filepath.Join(s.Dir, "shim") }

// Launch implements sandbox.Backend. The worker gets a parent outside of the engine's process tree, a session of its own,
// so that neither the engine's end nor its terminal reaches it, and an environment in which nothing of the engine's is.
func (b *Backend) Launch(ctx context.Context, s sandbox.Spec) error {
	temp := filepath.Join(s.Dir, "tmp")
	if err := os.Mkdir(temp, 0o700); err != nil {
		return fmt.Errorf("failed to launch worker: %w", err)
	}
	scratch := filepath.Join(s.Dir, "packed") // not what harnesses get as their folder for temporary files
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return fmt.Errorf("failed to launch worker: %w", err)
	}
	// What the Go runtime itself prints, when the worker crashes. The worker's log is a bounded file of its own.
	crash, err := os.OpenFile(filepath.Join(s.Dir, "stderr"), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("failed to launch worker: %w", err)
	}
	defer crash.Close()
	ours, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("failed to launch worker: %w", err)
	}
	defer ours.Close()
	defer theirs.Close()

	args := []string{"shim", "--pid-file", shimFile(s), "--ttl", s.OrphanTTL.String()}
	if os.Getpid() != 1 { // the first process of a machine or container has to reap what lost its parent; this one would not
		args = append(args, "--detach")
	}
	if s.Lock != "" {
		args = append(args, "--lock", s.Lock, "--owner", s.Owner, "--claim", s.Claim)
	}
	args = append(args, "--",
		"--socket", s.Socket, "--secret-file", s.SecretFile, "--state", s.State, "--workspace", s.Workspace,
		"--mark", s.Addr, "--pid-file", pidFile(s), "--log-file", filepath.Join(s.Dir, "log"), "--log-level", b.o.LogLevel,
		"--orphan-ttl", s.OrphanTTL.String(), "--parked-ttl", s.ParkedTTL.String(), "--scratch", scratch, "--ready-fd", strconv.Itoa(shim.ReadyFD))
	if b.o.NodeDir != "" {
		args = append(args, "--node-dir", b.o.NodeDir)
	}
	if b.o.ClaudeDir != "" {
		args = append(args, "--claude-dir", b.o.ClaudeDir)
	}
	if b.o.Node != "" {
		args = append(args, "--node", b.o.Node)
	}
	cmd := exec.Command(b.o.Worker, args...) // not CommandContext: the worker does not end with ctx
	cmd.Dir = s.Dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.State, "LANG=C.UTF-8", "TMPDIR=" + temp}
	if dir := os.Getenv(worker.RecordVariable); dir != "" { // tests only; harnesses do not get it
		cmd.Env = append(cmd.Env, worker.RecordVariable+"="+dir)
	}
	cmd.Stdout, cmd.Stderr = crash, crash
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("failed to launch worker: %w", err)
	}
	_ = theirs.Close()
	go func() { _ = cmd.Wait() }() // reaps it; what it left behind is init's to reap
	if err := awaitReady(ctx, ours); err != nil {
		_ = cmd.Process.Kill()
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*b.polite)
		defer cancel()
		_ = b.Kill(clean, s, false)
		return fmt.Errorf("failed to launch worker: %w: %s", err, firstLines(crash))
	}
	return nil
}

// awaitReady waits for the worker's line. The end of the pipe means that it died.
func awaitReady(ctx context.Context, r *os.File) error {
	defer context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Now()) })()
	line, err := bufio.NewReader(io.LimitReader(r, 64)).ReadString('\n')
	switch {
	case line == "ready\n":
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return errors.New("it ended before it listened")
	}
	return fmt.Errorf("it did not say that it listens: %w", err)
}

func firstLines(f *os.File) string {
	raw := make([]byte, maxStderr)
	n, _ := f.ReadAt(raw, 0)
	return strings.TrimSpace(strings.ToValidUTF8(string(raw[:n]), "?"))
}

// Alive implements sandbox.Backend. A worker that its shim has not started yet counts.
func (b *Backend) Alive(s sandbox.Spec) (bool, error) {
	_, err := procfs.ReadFile(pidFile(s))
	if !errors.Is(err, procfs.ErrGone) {
		return err == nil, err
	}
	if _, err := os.Lstat(pidFile(s)); !errors.Is(err, os.ErrNotExist) {
		return false, nil // there was one
	}
	_, err = procfs.ReadFile(shimFile(s))
	if errors.Is(err, procfs.ErrGone) {
		return false, nil
	}
	return err == nil, err
}

// Kill implements sandbox.Backend: it asks the worker, where it is to, then stops it so that it starts nothing more, ends what
// descends from it, and ends it. Then the shim ends, which sees to what the worker left. What is left where both died
// before is known by the mark in its environment.
func (b *Backend) Kill(ctx context.Context, s sandbox.Spec, ask bool) error {
	patience := time.Duration(0)
	if ask {
		patience = b.polite
	}
	for _, look := range []struct {
		file     string
		patience time.Duration
	}{{pidFile(s), patience}, {shimFile(s), max(patience, shimTime)}} {
		p, err := procfs.ReadFile(look.file)
		switch {
		case errors.Is(err, procfs.ErrGone):
		case err != nil:
			return err
		default:
			if err := b.end(ctx, p, look.patience); err != nil {
				return err
			}
		}
	}
	return procfs.KillAll(ctx, func(all []procfs.Process) []procfs.Process {
		var out []procfs.Process
		for _, q := range all {
			if mark, ok := procfs.Environ(q.PID, worker.MarkVariable); ok && strings.HasPrefix(mark, s.Addr+".") {
				out = append(out, q)
				out = append(out, procfs.Descendants(all, q.PID)...)
			}
		}
		return out
	}, nil)
}

// errStopped: who was asked to end is stopped, and hears nothing.
var errStopped = errors.New("process is stopped")

// end asks a process to end, where there is patience for it, and then ends it.
func (b *Backend) end(ctx context.Context, p procfs.Process, patience time.Duration) error {
	// One that is stopped would have to be woken to hear, and might go on with what it was doing first.
	if patience > 0 && p.State != 'T' && procfs.Signal(p, unix.SIGTERM) == nil {
		polite, cancel := context.WithTimeout(ctx, patience)
		err := awaitEnd(polite, p, true)
		cancel()
		if err == nil {
			return nil
		}
	}
	if err := procfs.Signal(p, unix.SIGSTOP); err != nil && !errors.Is(err, procfs.ErrGone) {
		return err
	}
	if err := procfs.KillAll(ctx, func(all []procfs.Process) []procfs.Process {
		return procfs.Descendants(all, p.PID)
	}, nil); err != nil {
		return err
	}
	if err := procfs.Signal(p, unix.SIGKILL); err != nil && !errors.Is(err, procfs.ErrGone) {
		return err
	}
	return awaitEnd(ctx, p, false)
}

// awaitEnd polls, because the process may not be a child of this one. Where asked is true, one that is stopped is not waited
// for: errStopped.
func awaitEnd(ctx context.Context, p procfs.Process, asked bool) error {
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	for {
		now, err := procfs.Read(p.PID)
		if errors.Is(err, procfs.ErrGone) || err == nil && (now.Start != p.Start || now.Zombie()) {
			return nil
		}
		if asked && err == nil && now.State == 'T' {
			return errStopped
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("failed to end process %d: %w", p.PID, context.Cause(ctx))
		}
	}
}
