// Package shim is the parent of a worker: a small process outside of the engine's process tree that lets nothing of a
// sandbox stay behind. The engine may be killed; the shim and its worker go on. When the worker dies, however it dies,
// the shim ends and reaps everything that descends from it. When nobody looks after the worker any more and it cannot
// end by itself (it hangs, or is stopped), the shim ends it. When the shim is killed, the worker ends itself.
//
// It holds no secret and speaks to nobody but its worker, over one socket pair. See docs/workers.md.
package shim

import (
	"bufio"
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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/worker/procfs"
)

// ReadyFD is the descriptor on which a worker says that it listens: it is handed on from whoever started the shim.
const ReadyFD = 3

// linkFD is the worker's end of the socket pair.
const linkFD = 4

// Times of a shim.
const (
	politeTime = 20 * time.Second // for a worker to end when it was asked; it bounds itself below that
	lastLook   = 2 * time.Second  // for a worker that was stopped together with the shim to speak again
	sweepTime  = 10 * time.Second // of one attempt to end what is left
	lockTime   = 2 * time.Second  // for the shim of a worker that has ended to let the lock go
	lockPause  = 10 * time.Millisecond
	sweepPause = time.Second // between two attempts
)

// Options say which worker to start. It is the running program itself, with other arguments.
type Options struct {
	Args    []string // of the worker, without its name; the descriptor of its link is added
	PidFile string   // where the shim says which process it is, before it starts the worker
	Lock    string   // file whose lock the shim holds until nothing of the sandbox is left; empty: none
	Owner   string   // file that has to say Claim once the lock is held, or nothing is started; empty: none
	Claim   string
	TTL     time.Duration // how long a worker may be silent until it has said otherwise
	Log     *slog.Logger
}

// Detach starts the shim once more, in a session of its own, and returns: the caller then exits, which makes the shim
// nobody's child. args are the shim's own without what led here.
func Detach(args []string) error {
	self, err := program()
	if err != nil {
		return err
	}
	p, err := os.StartProcess("/proc/self/exe", append([]string{filepath.Join(filepath.Dir(self), "harness-shim")}, args...), &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, os.NewFile(ReadyFD, "ready")},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("failed to detach shim: %w", err)
	}
	return p.Release()
}

// program is the path of the running program, also when its file was replaced meanwhile.
func program() (string, error) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("failed to find own program: %w", err)
	}
	return strings.TrimSuffix(self, " (deleted)"), nil
}

// Run starts the worker and returns when nothing of the sandbox is left. It must be called from the main goroutine, and
// the process has to exit right after: it takes over all children and signals of the process.
func Run(o Options) error {
	// The kernel sends the parent-death signal when the *thread* that forked ends. The main thread ends with the process.
	runtime.LockOSThread()
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	// What the worker leaves when it is killed falls to the shim.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("failed to become child subreaper: %w", err)
	}
	if o.PidFile != "" {
		if err := procfs.WriteFile(o.PidFile); err != nil {
			return err
		}
	}
	if o.Lock != "" {
		lock, err := takeLock(o.Lock)
		if err != nil {
			return err
		}
		defer lock.Close() // which lets it go
	}
	if o.Owner != "" {
		says, err := os.ReadFile(o.Owner)
		if err != nil || string(says) != o.Claim {
			return errors.New("failed to start worker: the state folder is another one's by now")
		}
	}
	w, err := start(o)
	if err != nil {
		return err
	}
	o.Log.Info("worker started", "pid", w.proc.Pid)
	how := w.watch(o, stop)
	left := sweep(o.Log)
	o.Log.Info("worker ended", "how", how, "left behind", left)
	return nil
}

// takeLock takes the lock, which the kernel lets go when this process ends, however it ends.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("failed to lock state folder: %w", err)
	}
	for until := time.Now().Add(lockTime); ; time.Sleep(lockPause) { // one that ends lets it go last
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if time.Now().After(until) {
			_ = f.Close()
			return nil, fmt.Errorf("failed to lock state folder: another worker of the conversation uses it: %w", err)
		}
	}
}

// child is the shim's worker.
type child struct {
	proc  *os.Process
	self  procfs.Process
	ended chan string        // how it ended
	vouch chan time.Duration // for how long it may be silent now
}

func start(o Options) (*child, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("failed to start worker: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "link"), os.NewFile(uintptr(pair[1]), "link")
	defer theirs.Close()
	ready := os.NewFile(ReadyFD, "ready")
	defer ready.Close() // so that whoever waits sees the end when the worker dies before it listens
	self, err := program()
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	proc, err := os.StartProcess("/proc/self/exe", append(append([]string{self}, o.Args...), "--link-fd", strconv.Itoa(linkFD)), &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, ready, theirs},
		// The end of the socket pair tells the worker that the shim is gone; the signal wakes one that is stopped.
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGCONT},
	})
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("failed to start worker: %w", err)
	}
	c := &child{proc: proc, ended: make(chan string, 1), vouch: make(chan time.Duration, 1)}
	if c.self, err = procfs.Read(proc.Pid); err != nil { // not reaped yet, so it is there
		_ = ours.Close()
		_ = proc.Kill()
		return nil, fmt.Errorf("failed to start worker: %w", err)
	}
	go func() {
		state, err := proc.Wait()
		if err != nil {
			c.ended <- err.Error()
			return
		}
		c.ended <- state.String()
	}()
	go c.listen(ours)
	return c, nil
}

// maxVouch bounds what a worker can ask for.
const maxVouch = 31 * 24 * time.Hour

// listen reads what the worker says: lines with a number of milliseconds. What is not one says nothing.
func (c *child) listen(link io.ReadCloser) {
	defer link.Close()
	lines := bufio.NewReaderSize(link, 64)
	for long := false; ; {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = true
			continue
		}
		if err != nil {
			return // its end shows elsewhere
		}
		if long { // what is left of it is no line
			long = false
			continue
		}
		ms, err := strconv.ParseInt(strings.TrimSpace(string(line)), 10, 64)
		if err != nil || ms < 0 || ms > maxVouch.Milliseconds() {
			continue
		}
		select { // the newest counts
		case <-c.vouch:
		default:
		}
		c.vouch <- time.Duration(ms) * time.Millisecond
	}
}

// watch returns when the worker has ended, and ends it when it is silent for too long or when the shim is asked to end.
func (c *child) watch(o Options, stop <-chan os.Signal) string {
	silence := time.NewTimer(o.TTL)
	defer silence.Stop()
	late := false
	var patience <-chan time.Time // how long it may take to end, once it was asked
	ask := func(why string) {
		if patience == nil {
			o.Log.Warn("ending worker", "why", why)
			_ = procfs.Signal(c.self, unix.SIGTERM)
			patience = time.After(politeTime)
		}
	}
	for {
		select {
		case how := <-c.ended:
			return how
		case left := <-c.vouch:
			late = false
			silence.Reset(left)
		case <-silence.C:
			// What it said may still be unread, when both were stopped.
			if !late {
				late = true
				silence.Reset(lastLook)
				continue
			}
			if now, err := procfs.Read(c.self.PID); err == nil && now.State == 'T' {
				o.Log.Warn("ending worker", "why", "it is stopped, and nobody looks after it")
				_ = procfs.Signal(c.self, unix.SIGKILL)
				continue
			}
			ask("nobody looks after it, and it does not end by itself")
		case s := <-stop:
			ask(s.String())
		case <-patience:
			_ = procfs.Signal(c.self, unix.SIGKILL)
		}
	}
}

// sweep ends and reaps everything that descends from this process, and returns how many processes that were. It does not
// give up: a process that cannot be ended is one that must not be forgotten.
func sweep(log *slog.Logger) int {
	self := os.Getpid()
	seen := map[int]bool{}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
		err := procfs.KillAll(ctx, func(all []procfs.Process) []procfs.Process {
			left := procfs.Descendants(all, self)
			for _, p := range left {
				seen[p.PID] = true
			}
			return left
		}, reap)
		cancel()
		if err == nil {
			reap()
			return len(seen)
		}
		log.Error("failed to end what a worker left", "error", err)
		time.Sleep(sweepPause)
	}
}

// reap collects every child that has ended.
func reap() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}
