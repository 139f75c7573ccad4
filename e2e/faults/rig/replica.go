package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/e2e/faults/judge"
)

// Times of a replica.
const (
	ownPause   = 200 * time.Millisecond // before an engine that ended by itself is started again
	startsMost = 8                      // attempts to start an engine before that is a finding
	lookPause  = 10 * time.Millisecond
	workMoment = 250 * time.Millisecond // of an engine that is up, before it meets another fault
	idleStore  = 200 * time.Millisecond // without a transaction, before one is caused
	tellWithin = 20 * time.Second       // for an engine to tell what it did
)

// replica is one place at which an engine serves, life after life, behind an address that stays.
type replica struct {
	n       int
	rig     *Rig
	proxy   *proxy
	orders  string // file for the store's next fault
	log     *os.File
	stop    context.CancelFunc
	done    chan struct{}
	writing atomic.Bool // a write is on its way that only serves to meet a fault

	mu      sync.Mutex
	engine  *enginetest.Engine // the last life
	up      bool               // ready, and not known to have ended
	stopped bool               // by SIGSTOP
	excuse  string             // why this life may end, from a fault; empty: it may not
	ordered int                // faults of the store by which whichever lives take them will end
	pause   time.Duration      // before the next life
	since   time.Time          // when it came up
	// stillborn is how long the next life lasts from its launch; 0: as long as it can.
	stillborn time.Duration
	struck    int // process that was ended at its launch; it may have come up in that very moment
}

func newReplica(r *Rig, n int) (*replica, error) {
	p := &replica{n: n, rig: r, orders: filepath.Join(r.o.Folder, fmt.Sprintf("order-%d", n)), done: make(chan struct{})}
	var err error
	if p.log, err = os.OpenFile(filepath.Join(r.o.Folder, fmt.Sprintf("engine-%d.log", n)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil, fmt.Errorf("failed to make log of replica %d: %w", n, err)
	}
	if p.proxy, err = newProxy(""); err != nil {
		return nil, fmt.Errorf("failed to make proxy of replica %d: %w", n, err)
	}
	return p, nil
}

// begin starts the first life, and whoever starts the others.
func (p *replica) begin(ctx context.Context) error {
	e, err := p.live(ctx)
	if err != nil {
		return err
	}
	ctx, p.stop = context.WithCancel(ctx)
	go func() {
		defer close(p.done)
		p.supervise(ctx, e)
	}()
	return nil
}

// live starts an engine and lets clients to it.
func (p *replica) live(ctx context.Context) (*enginetest.Engine, error) {
	o := p.rig.o
	env := append(p.rig.model.environment(), StoreFaults+"="+p.orders, WorkerRecord+"="+filepath.Join(o.Folder, dirRecords))
	e, err := enginetest.Start(ctx, enginetest.Options{Binaries: o.Binaries, Data: p.rig.data, Args: o.Args, Env: env, Log: p.log, Launched: p.launched})
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.engine, p.up, p.excuse, p.pause = e, true, "", ownPause
	if p.struck == e.PID() {
		p.excuse = "ended at its start"
	}
	p.since = time.Now()
	p.proxy.serve(strings.TrimPrefix(e.URL(), "http://"))
	p.rig.journal.write("engine up", "", p.n, e.PID())
	return e, nil
}

// launched ends a life that is not to become one. The caller waits for it to be ready.
func (p *replica) launched(pid int) {
	p.mu.Lock()
	d := p.stillborn
	p.stillborn = 0
	p.mu.Unlock()
	if d > 0 {
		time.AfterFunc(d, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			// A life that was quicker is left alone, and a process that is another one by now, too.
			raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err == nil && bytes.Contains(raw, []byte(p.rig.data)) && p.engine.PID() != pid {
				p.struck = pid
				_ = unix.Kill(pid, unix.SIGKILL)
				p.rig.journal.write("engine killed at its start", d.String(), p.n, pid)
			}
		})
	}
}

// supervise starts the next life whenever one has ended.
func (p *replica) supervise(ctx context.Context, e *enginetest.Engine) {
	for {
		select {
		case <-e.Exited():
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		p.up, p.stopped = false, false
		excuse, pause := p.excuse, p.pause
		if p.ordered > 0 && storeFailed(e) { // perhaps by an order for the life before
			p.ordered--
			if excuse == "" {
				excuse = "a fault of the store"
			}
		}
		p.proxy.serve("")
		p.mu.Unlock()
		if excuse == "" && p.rig.endedByAnother(ctx, p, e) {
			excuse = "stopped in a commit, ended by another engine"
		}
		p.rig.journal.write("engine down", excuse, p.n, e.PID())
		if excuse == "" && ctx.Err() == nil {
			p.rig.note(judge.Other, "", "engine of replica %d ended by itself: %s", p.n, lastLine(e.Log()))
		}
		for attempt := 1; ; attempt++ {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			var err error
			if e, err = p.live(ctx); err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			p.rig.journal.write("engine not started", err.Error(), p.n)
			if attempt == startsMost {
				p.rig.note(judge.Other, "", "engine of replica %d does not start: %s", p.n, lastLine(err.Error()))
			}
			pause = ownPause
		}
	}
}

// endedByAnother says whether another engine tells that it ended this one, which is gone: it had stopped while everybody waited
// for its commit (docs/storage.md). The other tells so behind its deed.
func (r *Rig) endedByAnother(ctx context.Context, than *replica, e *enginetest.Engine) bool {
	if e.ExitCode() >= 0 { // by itself
		return false
	}
	for deadline := time.Now().Add(tellWithin); ; {
		for _, p := range r.replicas {
			if p == than {
				continue
			}
			raw, err := os.ReadFile(p.log.Name())
			if err == nil && endedAnother(string(raw), e.PID()) {
				return true
			}
		}
		if time.Now().After(deadline) || !pause(ctx, lookPause*5) {
			return false
		}
	}
}

func endedAnother(log string, pid int) bool {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "stopped in a commit was ended") && strings.HasSuffix(strings.TrimSpace(line), fmt.Sprintf("pid=%d", pid)) {
			return true
		}
	}
	return false
}

// use gives the living engine to f, while nothing else is done to it. False where none is up.
func (p *replica) use(f func(e *enginetest.Engine)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.up || p.stopped {
		return false
	}
	f(p.engine)
	return true
}

// signal ends or stops the engine.
func (p *replica) signal(e *enginetest.Engine, s unix.Signal) {
	_ = unix.Kill(e.PID(), s) // it may have ended by itself just now
}

// order gives the store its next fault, and waits until it was taken. False where no transaction took it in time.
func (p *replica) order(ctx context.Context, kind string, d time.Duration) (bool, error) {
	if err := Order(p.orders, kind, d, 0); err != nil {
		return false, err
	}
	deadline, idle := time.NewTimer(meetWithin), time.NewTicker(idleStore)
	defer deadline.Stop()
	defer idle.Stop()
	for {
		if _, err := os.Stat(p.orders); errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		select {
		case <-time.After(lookPause):
			continue
		case <-idle.C: // a replica that drives nothing writes nothing
			if p.writing.CompareAndSwap(false, true) {
				p.rig.group.Go(func() {
					defer p.writing.Store(false)
					p.rig.talks[0].write(ctx, p.n)
				})
			}
			continue
		case <-deadline.C:
		case <-ctx.Done():
		}
		return errors.Is(os.Remove(p.orders), fs.ErrNotExist), nil
	}
}

// working says whether the engine has been up for a moment and goes on.
func (p *replica) working() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.up && !p.stopped && time.Since(p.since) > workMoment
}

func (p *replica) describe() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopped:
		return "stopped"
	case p.up:
		return "up"
	}
	return "down"
}

// dump has the engine print its goroutines and end.
func (p *replica) dump() {
	p.mu.Lock()
	p.excuse = "asked for its goroutines"
	e := p.engine
	p.mu.Unlock()
	p.signal(e, unix.SIGCONT)
	p.signal(e, unix.SIGQUIT)
	select {
	case <-e.Exited():
	case <-time.After(10 * time.Second):
	}
}

// halt stops the supervision and ends the engine by SIGTERM, as an operator does.
func (p *replica) halt() error {
	p.stop()
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	up := p.up
	p.up = false
	p.proxy.serve("")
	if !up {
		return nil
	}
	return p.engine.Stop()
}

// end ends the engine and everything that works for the data folder.
func (p *replica) end() {
	if p.stop != nil {
		p.stop()
		<-p.done
	}
	if p.engine != nil {
		if err := p.engine.Cleanup(); err != nil {
			p.rig.journal.write("not cleaned up", err.Error(), p.n)
		}
	}
	p.proxy.close()
	_ = p.log.Close()
}

// storeFailed says whether an engine that has ended says that its store failed.
func storeFailed(e *enginetest.Engine) bool {
	lines := strings.Split(strings.TrimSpace(e.Log()), "\n")
	return strings.Contains(strings.Join(lines[max(0, len(lines)-lastWords):], "\n"), "harness-engine: the store failed")
}

// lastWords is how many lines an engine says at most when it ends badly.
const lastWords = 8

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
