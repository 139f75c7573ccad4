package worker

import (
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/harness-engine/harness-engine/worker/procfs"
)

// process is a direct child of the worker.
type process struct {
	tree   *ProcessTree
	proc   *os.Process
	mark   string // value of MarkVariable in its environment, and by inheritance in its descendants'
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	tail   tail
	done   chan struct{}
	err    error // set before done is closed
}

func (p *process) Pid() int              { return p.proc.Pid }
func (p *process) Stdin() io.WriteCloser { return p.stdin }
func (p *process) Stdout() io.ReadCloser { return p.stdout }
func (p *process) StderrTail() string    { return p.tail.String() }
func (p *process) Done() <-chan struct{} { return p.done }

func (p *process) Wait() error {
	<-p.done
	return p.err
}

// Kill ends the process and its descendants: those by parentage, those of its session, and those that detached
// themselves, which are known by the mark in their environment.
func (p *process) Kill() {
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	err := procfs.KillAll(ctx, func(all []procfs.Process) []procfs.Process {
		var roots []procfs.Process
		for _, q := range procfs.Descendants(all, p.tree.self) {
			if p.holds(q.PID) && q.PID == p.Pid() || p.holds(q.Session) && q.Session == p.Pid() || p.marked(q.PID) {
				roots = append(roots, q)
			}
		}
		out := roots
		for _, r := range roots {
			out = append(out, procfs.Descendants(all, r.PID)...)
		}
		return out
	}, p.tree.reap)
	if err != nil {
		p.tree.log.Error("failed to kill process", "pid", p.Pid(), "error", err)
	}
	_ = p.stdin.Close()
}

// holds reports whether the id still stands for this process or its session, and not for a later process of the tree
// that was given the same id.
func (p *process) holds(pid int) bool {
	p.tree.mu.Lock()
	defer p.tree.mu.Unlock()
	now := p.tree.live[pid]
	return now == nil || now == p
}

func (p *process) marked(pid int) bool {
	v, ok := procfs.Environ(pid, MarkVariable)
	return ok && v == p.mark
}

// wait reaps the process. Only this goroutine may: the tree's reaper leaves known children alone.
func (p *process) wait() {
	state, err := p.proc.Wait()
	switch ws, ok := sysWait(state); {
	case err != nil:
		p.err = err
	case ok && ws.Signaled():
		p.err = &ExitError{Code: -1, Signal: ws.Signal().String()}
	case state.ExitCode() != 0:
		p.err = &ExitError{Code: state.ExitCode()}
	}
	p.tree.forget(p)
	close(p.done)
}

func sysWait(s *os.ProcessState) (syscall.WaitStatus, bool) {
	if s == nil {
		return 0, false
	}
	ws, ok := s.Sys().(syscall.WaitStatus)
	return ws, ok
}

// tail keeps the last MaxStderrTail bytes that were written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - MaxStderrTail; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buf
	for len(b) > 0 && !utf8.RuneStart(b[0]) { // the cut may have split a rune
		b = b[1:]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// killTime bounds one Kill or KillAll.
const killTime = 10 * time.Second
