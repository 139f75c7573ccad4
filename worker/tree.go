package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/worker/procfs"
)

// Command is one program to start. Nothing is inherited from the worker: not its environment, not its descriptors.
type Command struct {
	Path string   // absolute path, or a name that is looked up in the PATH of Env
	Args []string // without the program's own name
	Dir  string   // working folder; must exist
	Env  []string // the whole environment, KEY=value
}

// Process is one started program. All methods may be called from several goroutines.
type Process interface {
	Pid() int
	// Stdin is the write end of the program's standard input; closing it is how most harnesses are asked to end.
	Stdin() io.WriteCloser
	// Stdout is the read end of its standard output. It stays readable after the program has ended, up to the end of
	// what was written; a descendant that holds the other end open is cut off by Kill or KillAll.
	Stdout() io.ReadCloser
	// StderrTail is the last part of what it wrote to standard error, at most MaxStderrTail bytes, as valid UTF-8.
	StderrTail() string
	// Wait blocks until the program has ended and returns how: nil for exit code 0, else an *ExitError.
	Wait() error
	// Done is closed when the program has ended.
	Done() <-chan struct{}
	// Kill ends the program, its process group and everything that descends from it. It may be called at any time.
	Kill()
}

// Tree starts processes that the host owns: each in a session and process group of its own. The host is the subreaper
// of all of them, so that a descendant that detaches itself (setsid, double fork) is still found and ended.
type Tree interface {
	// Start starts the program. The process is not bound to ctx: ctx bounds only the start itself.
	Start(ctx context.Context, c Command) (Process, error)
}

// MarkVariable is added to the environment of every process that the tree starts. Descendants inherit it, so that one
// that left its parent, its group and its session is still known as ours, even after the worker is dead.
const MarkVariable = "HARNESS_ENGINE_MARK"

// MaxProcesses bounds how many processes a tree holds at a time, without their descendants.
const MaxProcesses = 64

// Errors of a Tree.
var (
	ErrTreeClosed       = errors.New("process tree is closed")
	ErrTooManyProcesses = fmt.Errorf("process tree holds %d processes already", MaxProcesses)
)

// MaxStderrTail bounds what Process.StderrTail keeps, in bytes.
const MaxStderrTail = 8 << 10

// ProcessTree is the Tree of a worker process. There is at most one in a process: it owns all its children.
type ProcessTree struct {
	self   int
	mark   string
	log    *slog.Logger
	starts chan func()
	stop   chan struct{}
	loops  sync.WaitGroup

	mu     sync.Mutex // held while a process is started, so that the reaper never sees a child that is not in live
	live   map[int]*process
	next   int
	closed bool
}

// TreeOptions configures a ProcessTree.
type TreeOptions struct {
	// Mark is the value of MarkVariable, without the number of the process. It names the sandbox.
	Mark string
	Log  *slog.Logger
}

// NewProcessTree makes this process a child subreaper (prctl(2), PR_SET_CHILD_SUBREAPER) and returns its tree. Close
// it to end everything.
func NewProcessTree(o TreeOptions) (*ProcessTree, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("failed to become child subreaper: %w", err)
	}
	t := &ProcessTree{
		self: os.Getpid(), mark: o.Mark, log: o.Log,
		starts: make(chan func()), stop: make(chan struct{}), live: map[int]*process{},
	}
	t.loops.Add(2)
	go t.startLoop()
	go t.reapLoop()
	return t, nil
}

// startLoop starts all processes from one thread that lives as long as the tree. The kernel sends the parent-death
// signal when the *thread* that forked ends, so a thread that Go may retire at any time would kill healthy children.
func (t *ProcessTree) startLoop() {
	defer t.loops.Done()
	runtime.LockOSThread() // never unlocked: the thread ends with the loop, and with it any child that is left
	for {
		select {
		case f := <-t.starts:
			f()
		case <-t.stop:
			return
		}
	}
}

// reapLoop collects orphans that were handed to this process as their subreaper.
func (t *ProcessTree) reapLoop() {
	defer t.loops.Done()
	child := make(chan os.Signal, 1)
	signal.Notify(child, syscall.SIGCHLD)
	defer signal.Stop(child)
	for {
		select {
		case <-child:
			t.reap()
		case <-t.stop:
			return
		}
	}
}

// reap waits for the ended children that no process of the tree waits for.
func (t *ProcessTree) reap() {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, err := procfs.All()
	if err != nil {
		t.log.Error("failed to look for orphans", "error", err)
		return
	}
	for _, p := range all {
		if p.PPID == t.self && p.Zombie() && t.live[p.PID] == nil {
			_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
		}
	}
}

// Start implements Tree.
func (t *ProcessTree) Start(ctx context.Context, c Command) (Process, error) {
	path, err := lookPath(c)
	if err != nil {
		return nil, err
	}
	var p *process
	started := make(chan struct{})
	run := func() {
		defer close(started)
		p, err = t.start(path, c)
	}
	select {
	case t.starts <- run:
		<-started
	case <-t.stop:
		err = ErrTreeClosed
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to start %s: %w", filepath.Base(path), err)
	}
	return p, nil
}

func (t *ProcessTree) start(path string, c Command) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, ErrTreeClosed
	case len(t.live) >= MaxProcesses:
		return nil, ErrTooManyProcesses
	}
	t.next++
	mark := t.mark + "." + strconv.Itoa(t.next)
	ends, theirs, err := pipes()
	if err != nil {
		return nil, err
	}
	defer closeAll(theirs[:])
	proc, err := os.StartProcess(path, append([]string{path}, c.Args...), &os.ProcAttr{
		Dir:   c.Dir,
		Env:   append(append(make([]string, 0, len(c.Env)+1), c.Env...), MarkVariable+"="+mark),
		Files: theirs[:],
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		closeAll(ends[:])
		return nil, err
	}
	p := &process{tree: t, proc: proc, mark: mark, stdin: ends[0], stdout: ends[1], stderr: ends[2], done: make(chan struct{})}
	t.live[proc.Pid] = p
	go p.wait()
	go func() {
		defer p.stderr.Close()
		_, _ = io.Copy(&p.tail, p.stderr) // ends with the last holder of the other end, which Kill and Close see to
	}()
	return p, nil
}

// pipes makes the three standard streams: our ends and theirs.
func pipes() (ours, theirs [3]*os.File, err error) {
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours[:])
			closeAll(theirs[:])
			return ours, theirs, err
		}
		ours[i], theirs[i] = r, w
		if i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	return ours, theirs, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

func (t *ProcessTree) forget(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, p.proc.Pid)
}

// KillAll ends everything that descends from this process and returns when nothing of it runs, or an error after a
// bounded time. The tree can be used again.
func (t *ProcessTree) KillAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	return procfs.KillAll(ctx, func(all []procfs.Process) []procfs.Process {
		return procfs.Descendants(all, t.self)
	}, t.reap)
}

// Close refuses further starts and ends everything that descends from this process.
func (t *ProcessTree) Close() error {
	t.mu.Lock()
	again := t.closed
	t.closed = true
	t.mu.Unlock()
	err := t.KillAll()
	if !again {
		close(t.stop)
	}
	t.loops.Wait()
	return err
}

// lookPath finds the program in the PATH of the command's own environment.
func lookPath(c Command) (string, error) {
	if strings.ContainsRune(c.Path, '/') {
		if !filepath.IsAbs(c.Path) {
			return "", fmt.Errorf("failed to start %s: path is not absolute", filepath.Base(c.Path))
		}
		return c.Path, nil
	}
	for _, kv := range c.Env {
		list, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			full := filepath.Join(dir, c.Path)
			if !filepath.IsAbs(full) {
				continue
			}
			if st, err := os.Stat(full); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
				return full, nil
			}
		}
	}
	return "", fmt.Errorf("failed to start %q: not found in the command's PATH", c.Path)
}
