package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/e2e/faults/judge"
	"github.com/harness-engine/harness-engine/e2e/faults/plan"
	"github.com/harness-engine/harness-engine/worker/procfs"
)

// termWithin is how long an engine may take to hand over.
const termWithin = 2 * time.Minute

// play carries the points out, one after the other, and waits for what they began to be over.
func (r *Rig) play(ctx context.Context) {
	var lasting sync.WaitGroup
	defer lasting.Wait()
	for _, p := range r.o.Plan.Points {
		if !pause(ctx, p.After) {
			return
		}
		if r.o.Only != 0 && p.N != r.o.Only {
			continue
		}
		r.awaitWork(ctx)
		about, met := r.hit(ctx, p, &lasting)
		r.points.Store(int64(p.N))
		r.journal.write("point", p.String(), about)
		r.mu.Lock()
		if met {
			r.kinds[p.Kind]++
		}
		r.mu.Unlock()
		if !met && ctx.Err() == nil {
			r.note(judge.Other, "", "point %d, %s, met nobody within %s", p.N, p.Kind, meetWithin)
		}
	}
}

// awaitWork waits, bounded, until an engine has been up for a moment: on a slow machine they would hardly be, and a fault where
// nobody is at work shows little.
func (r *Rig) awaitWork(ctx context.Context) {
	deadline := time.Now().Add(meetWithin)
	for time.Now().Before(deadline) {
		for _, p := range r.replicas {
			if p.working() {
				return
			}
		}
		if !pause(ctx, lookPause) {
			return
		}
	}
}

// hit causes one fault. It returns whom it met, and false where there was nobody to meet.
func (r *Rig) hit(ctx context.Context, p plan.Point, lasting *sync.WaitGroup) (about string, met bool) {
	switch p.Kind {
	case plan.EngineKill:
		return r.onEngine(ctx, p, func(x *replica, e *enginetest.Engine) {
			x.excuse, x.pause = string(p.Kind), p.Pause
			x.fell(e, unix.SIGKILL)
		})
	case plan.StartKill:
		return r.onEngine(ctx, p, func(x *replica, e *enginetest.Engine) {
			x.excuse, x.pause, x.stillborn = string(p.Kind), p.Pause, max(p.For, time.Millisecond)
			x.fell(e, unix.SIGKILL)
		})
	case plan.AllKill:
		return r.onEngine(ctx, p, func(first *replica, e *enginetest.Engine) {
			first.excuse, first.pause = string(p.Kind), p.Pause
			first.fell(e, unix.SIGKILL)
			for _, x := range r.replicas {
				if x != first {
					x.use(func(e *enginetest.Engine) { x.excuse, x.pause = string(p.Kind), p.Pause; x.fell(e, unix.SIGKILL) })
				}
			}
		})
	case plan.EngineTerm:
		return r.onEngine(ctx, p, func(x *replica, e *enginetest.Engine) {
			x.excuse, x.pause = string(p.Kind), p.Pause
			x.fell(e, unix.SIGTERM)
			lasting.Go(func() { r.awaitTerm(ctx, x, e) })
		})
	case plan.EngineStop:
		return r.onEngine(ctx, p, func(x *replica, e *enginetest.Engine) {
			x.stopped = true
			x.signal(e, unix.SIGSTOP)
			lasting.Go(func() {
				pause(ctx, p.For)
				x.mu.Lock()
				defer x.mu.Unlock()
				x.stopped = false
				x.signal(e, unix.SIGCONT)
			})
		})
	case plan.WorkerKill, plan.ShimKill:
		return r.onWorker(ctx, p, func(w served) {
			r.harm(w.session, time.Now())
			_ = procfs.Signal(w.process, unix.SIGKILL)
		})
	case plan.WorkerStop:
		return r.onWorker(ctx, p, func(w served) { // no harm: the engine has to wait for it
			_ = procfs.Signal(w.process, unix.SIGSTOP)
			lasting.Go(func() {
				pause(ctx, p.For)
				_ = procfs.Signal(w.process, unix.SIGCONT)
			})
		})
	case plan.SocketCut:
		return strconv.Itoa(r.replicas[p.Replica].proxy.cut()) + " connections", true
	case plan.SocketHold:
		r.replicas[p.Replica].proxy.hold(p.For)
		return "", true
	case plan.SocketShut:
		for _, x := range r.replicas {
			x.proxy.refuse(p.For)
		}
		return "", true
	case plan.ModelCut:
		return strconv.Itoa(r.model.proxy.cut()) + " connections", true
	}
	return r.onStore(ctx, p)
}

// fell marks the engine as one that ends, and signals it. The caller has the lock.
func (p *replica) fell(e *enginetest.Engine, s unix.Signal) {
	p.up = false
	p.signal(e, s)
}

// onEngine meets the plan's replica when it is up, or else the next that is.
func (r *Rig) onEngine(ctx context.Context, p plan.Point, f func(x *replica, e *enginetest.Engine)) (string, bool) {
	deadline := time.Now().Add(meetWithin)
	for time.Now().Before(deadline) {
		for i := range r.replicas {
			x := r.replicas[(p.Replica+i)%len(r.replicas)]
			pid := 0
			if x.use(func(e *enginetest.Engine) { pid = e.PID(); f(x, e) }) {
				return fmt.Sprintf("replica %d, process %d", x.n, pid), true
			}
		}
		if !pause(ctx, lookPause) {
			break
		}
	}
	return "", false
}

// awaitTerm waits for an engine to hand over; one that does not is killed, and found.
func (r *Rig) awaitTerm(ctx context.Context, x *replica, e *enginetest.Engine) {
	select {
	case <-e.Exited():
		if code := e.ExitCode(); code != 0 && !storeFailed(e) && !r.endedByAnother(ctx, x, e) { // which is another fault's doing
			r.note(judge.Other, "", "engine of replica %d ended with code %d after SIGTERM: %s", x.n, code, lastLine(e.Log()))
		}
	case <-ctx.Done():
	case <-time.After(termWithin):
		r.note(judge.Other, "", "engine of replica %d did not end within %s of SIGTERM", x.n, termWithin)
		x.dump()
	}
}

// onStore orders a fault of the store of the plan's replica, or of the next that is up.
func (r *Rig) onStore(ctx context.Context, p plan.Point) (string, bool) {
	deadline := time.Now().Add(meetWithin)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		for i := range r.replicas {
			x := r.replicas[(p.Replica+i)%len(r.replicas)]
			var e *enginetest.Engine
			if !x.use(func(up *enginetest.Engine) {
				e = up
				if p.Kind.Ends() {
					x.ordered, x.pause = x.ordered+1, p.Pause
				}
			}) {
				continue
			}
			taken, err := x.order(ctx, p.Kind.Order(), p.For)
			if err != nil {
				r.note(judge.Other, "", "point %d: %s", p.N, err)
			}
			if !taken {
				// It stays counted: an engine may take an order and be gone before anybody sees that it was taken.
				continue
			}
			return fmt.Sprintf("replica %d, process %d", x.n, e.PID()), true
		}
		pause(ctx, lookPause)
	}
	return "", false
}

// onWorker meets one of the workers, or what is above it.
func (r *Rig) onWorker(ctx context.Context, p plan.Point, f func(w served)) (string, bool) {
	deadline := time.Now().Add(meetWithin)
	for time.Now().Before(deadline) {
		workers := r.workers(p.Kind == plan.ShimKill)
		if len(workers) == 0 && p.Kind == plan.ShimKill { // a worker without one, or none yet
			workers = r.workers(false)
		}
		if len(workers) > 0 {
			w := workers[p.Pick%uint64(len(workers))]
			f(w)
			return fmt.Sprintf("process %d of session %s", w.process.PID, w.session), true
		}
		if !pause(ctx, lookPause*5) {
			break
		}
	}
	return "", false
}

// served is a worker process, or the shim above one.
type served struct {
	process procfs.Process
	session string
}

// workerArgument is an argument of a worker that names its conversation.
var workerArgument = regexp.MustCompile(`/sandboxes/state/(ses_[a-z0-9]+)/`)

// A shim is the same program: it calls itself by another name, and whoever starts it by its command.
const (
	shimName = "harness-shim"
	shimWord = "shim"
)

// workers lists the workers of the data folder, or their shims, in the order of their sessions.
func (r *Rig) workers(shims bool) []served {
	all, err := procfs.All()
	if err != nil {
		return nil
	}
	name := filepath.Base(r.o.Binaries.Worker)
	if shims {
		name = shimName
	}
	var out []served
	for _, p := range all {
		raw, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cmdline")
		if err != nil || p.Zombie() || !bytes.Contains(raw, []byte(r.data)) {
			continue
		}
		args := strings.Split(string(raw), "\x00")
		m := workerArgument.FindStringSubmatch(string(raw))
		if m == nil || len(args) < 2 || filepath.Base(args[0]) != name || (args[1] == shimWord) != shims {
			continue
		}
		out = append(out, served{process: p, session: m[1]})
	}
	slices.SortFunc(out, func(a, b served) int { return strings.Compare(a.session, b.session) })
	return out
}
