package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/worker/procfs"
)

// Traces lists every process of the machine, but the engine itself, that has to do with the engine's data folder: its
// arguments, environment or working directory are in it. Unlike Family it finds what has lost its parent.
func (e *Engine) Traces() ([]procfs.Process, error) {
	all, err := procfs.All()
	if err != nil {
		return nil, err
	}
	return e.pickTraces(all), nil
}

func (e *Engine) pickTraces(all []procfs.Process) []procfs.Process {
	data, err := filepath.Abs(e.opts.Data)
	if err != nil {
		return nil
	}
	var out []procfs.Process
	for _, p := range all {
		if !p.Zombie() && p.PID != e.PID() && p.PID != os.Getpid() && touches(p.PID, data) {
			out = append(out, p)
		}
	}
	return out
}

// touches reads what the kernel tells of a process; what is not ours to read belongs to somebody else.
func touches(pid int, folder string) bool {
	proc := "/proc/" + strconv.Itoa(pid)
	if cwd, err := os.Readlink(proc + "/cwd"); err == nil && strings.HasPrefix(cwd, folder) {
		return true
	}
	for _, file := range []string{"/cmdline", "/environ"} {
		if raw, err := os.ReadFile(proc + file); err == nil && bytes.Contains(raw, []byte(folder)) {
			return true
		}
	}
	return false
}

// AwaitTraces waits until the processes that have to do with the engine are as wanted.
func (e *Engine) AwaitTraces(ctx context.Context, wanted func([]procfs.Process) bool) ([]procfs.Process, error) {
	for {
		traces, err := e.Traces()
		if err != nil || wanted(traces) {
			return traces, err
		}
		select {
		case <-ctx.Done():
			return traces, fmt.Errorf("there are still %s: %w", Describe(traces), context.Cause(ctx))
		case <-time.After(readyPause):
		}
	}
}

// Describe names processes for a message.
func Describe(processes []procfs.Process) string {
	names := make([]string, len(processes))
	for i, p := range processes {
		names[i] = fmt.Sprintf("%d of %d (%.120s)", p.PID, p.PPID, bytes.Join(commandLine(p.PID), []byte(" ")))
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// KillWorkersAlone ends the worker processes with SIGKILL and nothing below them, as the kernel does that is out of
// memory, and returns how many there were.
func (e *Engine) KillWorkersAlone(ctx context.Context) (int, error) {
	workers, err := e.Workers()
	if err != nil {
		return 0, err
	}
	for _, p := range workers {
		if err := procfs.Signal(p, unix.SIGKILL); err != nil && !errors.Is(err, procfs.ErrGone) {
			return 0, fmt.Errorf("failed to kill worker %d: %w", p.PID, err)
		}
	}
	return len(workers), AwaitGone(ctx, workers)
}

// LoseHost removes what the workers of a conversation keep on this host: their native state and their workspace, as if
// the next worker were on another host. The workers have to be gone.
func (e *Engine) LoseHost(sessionID string) error {
	folder := filepath.Join(e.opts.Data, "sandboxes", "state", sessionID)
	if _, err := os.Stat(folder); err != nil {
		return fmt.Errorf("failed to find the conversation's state on this host: %w", err)
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("failed to remove the conversation's state from this host: %w", err)
	}
	return nil
}
