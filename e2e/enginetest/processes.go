package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/worker/procfs"
)

// cleanupTimeout bounds the killing of what an engine left.
const cleanupTimeout = 2 * time.Minute

// Workers lists the worker processes that serve this engine's data folder, whoever their parent is now.
func (e *Engine) Workers() ([]procfs.Process, error) {
	all, err := procfs.All()
	if err != nil {
		return nil, err
	}
	return e.pickWorkers(all), nil
}

// Family lists the workers with their shims and everything that descends from them.
func (e *Engine) Family() ([]procfs.Process, error) {
	all, err := procfs.All()
	if err != nil {
		return nil, err
	}
	return e.pickFamily(all), nil
}

func (e *Engine) pickWorkers(all []procfs.Process) []procfs.Process {
	return e.pickByName(all, filepath.Base(e.opts.Binaries.Worker))
}

// shimName is how the parent of a worker calls itself.
const shimName = "harness-shim"

// pickByName picks the processes of a program that serve the engine's data folder.
func (e *Engine) pickByName(all []procfs.Process, name string) []procfs.Process {
	data, err := filepath.Abs(e.opts.Data)
	if err != nil {
		return nil
	}
	var out []procfs.Process
	found := map[int]bool{}
	for _, p := range all {
		if args := commandLine(p.PID); !p.Zombie() && len(args) > 0 &&
			filepath.Base(string(args[0])) == name && mentions(args[1:], data) {
			out, found[p.PID] = append(out, p), true
		}
	}
	// Between its start and its program a process looks like its parent.
	return slices.DeleteFunc(out, func(p procfs.Process) bool { return found[p.PPID] })
}

func (e *Engine) pickFamily(all []procfs.Process) []procfs.Process {
	var out []procfs.Process
	seen := map[int]bool{}
	for _, w := range append(e.pickByName(all, shimName), e.pickWorkers(all)...) {
		if seen[w.PID] {
			continue // it descends from its shim
		}
		out = append(out, w)
		for _, d := range procfs.Descendants(all, w.PID) {
			if seen[d.PID] = true; !d.Zombie() {
				out = append(out, d)
			}
		}
	}
	return out
}

func commandLine(pid int) [][]byte {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || len(raw) == 0 {
		return nil
	}
	return bytes.Split(bytes.TrimSuffix(raw, []byte{0}), []byte{0})
}

// mentions reports whether an argument names the folder or something in it.
func mentions(args [][]byte, folder string) bool {
	for _, a := range args {
		if bytes.Contains(a, []byte(folder)) {
			return true
		}
	}
	return false
}

// KillWorkers ends the workers with SIGKILL, each with its descendants, and returns how many workers there were.
func (e *Engine) KillWorkers(ctx context.Context) (int, error) {
	workers, err := e.Workers()
	if err != nil {
		return 0, err
	}
	family, err := e.Family()
	if err != nil {
		return 0, err
	}
	return len(workers), kill(ctx, family)
}

func kill(ctx context.Context, processes []procfs.Process) error {
	for _, p := range processes {
		if err := procfs.Signal(p, unix.SIGKILL); err != nil && !errors.Is(err, procfs.ErrGone) {
			return fmt.Errorf("failed to kill process %d: %w", p.PID, err)
		}
	}
	return AwaitGone(ctx, processes)
}

// AwaitGone waits until none of the processes runs any more.
func AwaitGone(ctx context.Context, processes []procfs.Process) error {
	for _, p := range processes {
		for Alive(p) {
			select {
			case <-time.After(readyPause):
			case <-ctx.Done():
				return fmt.Errorf("process %d (%s) is still running: %w", p.PID, bytes.Join(commandLine(p.PID), []byte(" ")), context.Cause(ctx))
			}
		}
	}
	return nil
}

// Alive reports whether exactly this process still runs.
func Alive(p procfs.Process) bool {
	now, err := procfs.Read(p.PID)
	return err == nil && now.Start == p.Start && !now.Zombie()
}

// Cleanup ends the engine and everything that works for its data folder. It is for the end of a test or demo, whatever
// state it is in.
func (e *Engine) Cleanup() error {
	e.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	return procfs.KillAll(ctx, e.pickFamily, nil)
}
