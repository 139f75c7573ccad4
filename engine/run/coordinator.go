package run

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/replica"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/engine/thread"
)

// Limits of a coordinator; a zero field takes the default.
type Limits struct {
	MaxRuns        int           // runs that this engine drives at once; default 256
	MaxRunDuration time.Duration // of a run whose agent sets none; default 1 h
	StartTimeout   time.Duration // to have a worker ready and bound; default 60 s
	CancelGrace    time.Duration // for a worker that has heard of a cancel to end the turn before it is ended; default 6 s
	ReconnectFor   time.Duration // to reach a worker again before it counts as lost; default 30 s
	IdleWorker     time.Duration // that a worker stays for a follow-up turn; default 10 min
	AbandonedAfter time.Duration // that a step is seen unfinished beside other engines before it is finished; default 15 s

	InterruptDeadline time.Duration // for a person to decide, where the agent sets none; default 24 h
}

func (l Limits) withDefaults() Limits {
	def := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	if l.MaxRuns == 0 {
		l.MaxRuns = 256
	}
	def(&l.MaxRunDuration, time.Hour)
	def(&l.StartTimeout, time.Minute)
	def(&l.CancelGrace, 6*time.Second)
	def(&l.ReconnectFor, 30*time.Second)
	def(&l.IdleWorker, 10*time.Minute)
	def(&l.AbandonedAfter, 15*time.Second)
	def(&l.InterruptDeadline, 24*time.Hour)
	return l
}

// Options are what a coordinator is made of. All but Limits, Now and Log are required.
type Options struct {
	Runs         Store
	Sessions     session.Store
	Events       event.Log
	Publish      func(event.Chunk) // called with each durable chunk, in order per run
	Agents       Agents
	Harnesses    Harnesses
	Workers      Workers
	Capabilities Capabilities
	Authz        authz.Checker         // asked again before a recovered run is dispatched
	Secret       []byte                // keys the digests that make ids, at least 32 bytes; the same on every replica
	Boot         string                // nonce of this boot
	Blobs        blob.Store            // packed thread states; nil: none is committed
	Changed      func(session.Binding) // called after each change of a binding that this engine makes; may be nil
	Admit        func() error          // refuses new runs while the store has no room; may be nil
	Replicas     Replicas              // the other engines on the store; nil: there are none
	Limits       Limits
	Now          func() time.Time
	Log          *slog.Logger
}

// settleTimeout bounds the writes that follow a terminal event.
const settleTimeout = 10 * time.Second

// Coordinator admits runs and drives those that it holds the lease of.
type Coordinator struct {
	Options

	ctx  context.Context // ends when the engine lets go of its runs
	stop context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex
	draining bool
	live     map[string]*execution // by run
	idle     map[string]idleWorker // by session
	late     []session.Binding     // that became idle while draining

	deadlines map[string]*deadline // of pending interrupts, by session
	halted    map[string]bool      // runs whose log is corrupt: nobody drives them on
	doubted   map[string]bool      // runs that LetGo let go of: they may be claimed again at once

	sweeping sync.Mutex
	seen     watch         // what sweeps have seen abandoned; guarded by sweeping
	poke     chan struct{} // capacity 1: another engine has gone
}

// New makes a coordinator. Call Recover before the first Start, and Drain at the end.
func New(o Options) *Coordinator {
	o.Limits = o.Limits.withDefaults()
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Coordinator{Options: o, ctx: ctx, stop: stop, live: map[string]*execution{},
		idle: map[string]idleWorker{}, deadlines: map[string]*deadline{}, halted: map[string]bool{}, doubted: map[string]bool{},
		seen: watch{}, poke: make(chan struct{}, 1)}
}

// mutate changes a binding and tells who watches. The binding knows of the last settled interrupt only: before another
// takes its place, its run's document has to say what became of it, which an engine that died may have left undone.
func (c *Coordinator) mutate(ctx context.Context, sessionID string, t session.Transition) (session.Binding, error) {
	b, err := session.Mutate(ctx, c.Sessions, sessionID, c.now, func(b session.Binding, op session.Op) (session.Binding, error) {
		n, err := t(b, op)
		if err == nil && b.Decided != nil && n.Decided != b.Decided {
			c.recordInterrupt(ctx, b.Decided)
		}
		return n, err
	})
	if err == nil && c.Changed != nil {
		c.Changed(b)
	}
	if err == nil {
		c.tell(replica.BindingChanged, b.ID)
	}
	return b, err
}

func (c *Coordinator) threads() thread.Threads { return thread.Threads{Blobs: c.Blobs} }

// launch drives the run under the lease until it has settled. A run that is already being driven is left alone, unless
// this lease is a later one: then it is driven again afterwards.
// recovered says that another engine admitted it: what admission checked is checked again before it is dispatched.
func (c *Coordinator) launch(r Run, b session.Binding, recovered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return
	}
	if x := c.live[r.ID]; x != nil {
		// A repeat of its key that saw the run unadmitted, and admitted it once more after it had been settled: the
		// binding is taken again, and only a further look frees it.
		if b.Active.Gen > x.admitted {
			x.next = &claim{run: r, binding: b}
		}
		return
	}
	if w, waits := c.idle[b.ID]; waits {
		w.timer.Stop()
		delete(c.idle, b.ID)
	}
	x := newExecution(c, r, b)
	x.recovered = recovered
	c.live[r.ID] = x
	delete(c.doubted, r.ID)
	life, letGo := context.WithCancelCause(c.ctx)
	x.letGo = letGo
	c.work.Go(func() {
		defer letGo(nil)
		defer func() {
			c.mu.Lock()
			delete(c.live, r.ID)
			next := x.next
			if errors.Is(context.Cause(life), errDoubt) {
				c.doubted[r.ID] = true
				defer c.Wake()
			}
			c.mu.Unlock()
			close(x.left)
			if next != nil {
				c.launch(next.run, next.binding, false)
			}
		}()
		x.drive(life)
	})
}

// room refuses a run that this engine has no room for.
func (c *Coordinator) room() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return problem.New(problem.Capacity, "the engine is shutting down").With("retryAfter", 1)
	}
	if c.Admit != nil {
		if err := c.Admit(); err != nil {
			return problem.New(problem.Capacity, "the engine has no room to store a run").With("retryAfter", 30).Because(err)
		}
	}
	if len(c.live) >= c.Limits.MaxRuns {
		return problem.New(problem.Capacity, "the engine drives %d runs already", len(c.live)).With("retryAfter", 5)
	}
	return nil
}

// settled waits until the run that holds the session's binding has been let go, where its log has ended already: between
// the terminal and the release of the binding lie two writes, and a client that has seen the one must not be refused for
// the other. It reports whether another look at the binding is worth it.
func (c *Coordinator) settled(ctx context.Context, sessionID, runID string) bool {
	tail, err := c.Events.Tail(ctx, runID)
	if err != nil || !tail.Terminal {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	c.mu.Lock()
	x := c.live[runID]
	c.mu.Unlock()
	if x == nil {
		return c.settledElsewhere(ctx, sessionID, runID)
	}
	select {
	case <-x.left:
		return true
	case <-ctx.Done():
	}
	return false
}

// Pauses between two looks at a binding that another engine is about to free.
const (
	settlePause     = 5 * time.Millisecond
	settlePauseMost = 200 * time.Millisecond
)

// settledElsewhere waits for another engine, while that lives.
func (c *Coordinator) settledElsewhere(ctx context.Context, sessionID, runID string) bool {
	for pause := settlePause; ; pause = min(2*pause, settlePauseMost) {
		b, err := c.Sessions.Session(ctx, sessionID)
		if err != nil {
			return false
		}
		if b.Active == nil || b.Active.Run != runID || b.Active.Owner == c.Boot || c.gone(b.Active.Owner) {
			return true
		}
		if err := wait(ctx, pause); err != nil {
			return false
		}
	}
}

// asksNatively says whether an interrupt of the harness survives its worker. Where it does not, the worker is kept for as
// long as somebody may decide.
func (c *Coordinator) asksNatively(harnessID string) bool {
	d, ok := c.Harnesses.Descriptor(harnessID)
	return ok && d.Capabilities[harness.InterruptToolApproval] == harness.Native
}

// idleWorker is a worker that this engine will end.
type idleWorker struct {
	since session.Binding
	timer *time.Timer
}

// idleLater ends the session's worker when no turn has followed in time.
func (c *Coordinator) idleLater(b session.Binding) {
	if b.Sandbox == nil || b.Active != nil || b.Pending != nil && !c.asksNatively(b.Harness) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining { // Drain ends it, when all runs have been let go
		c.late = append(c.late, b)
		return
	}
	if w, waits := c.idle[b.ID]; waits {
		w.timer.Stop()
	}
	timer := time.AfterFunc(c.Limits.IdleWorker, func() {
		c.mu.Lock()
		if c.draining {
			c.mu.Unlock()
			return
		}
		c.work.Add(1)
		delete(c.idle, b.ID)
		c.mu.Unlock()
		defer c.work.Done()
		c.retire(c.ctx, b)
	})
	c.idle[b.ID] = idleWorker{since: b, timer: timer}
}

// retire takes a worker that has been idle since then off its binding, and ends it. Another engine may have used it for a turn
// meanwhile: then it is that one's to end, and a decision may wait in it.
func (c *Coordinator) retire(ctx context.Context, since session.Binding) {
	_, err := c.mutate(ctx, since.ID, func(b session.Binding, op session.Op) (session.Binding, error) {
		if b.LeaseGen != since.LeaseGen {
			return b, session.ErrUnchanged
		}
		return session.Retire(b, since.Sandbox.Gen, op)
	})
	if err != nil {
		return // a turn came first, or the next engine sweeps it
	}
	if err := c.Workers.Destroy(ctx, since.Sandbox.Addr, since.LeaseGen); err != nil {
		c.Log.Warn("idle worker not destroyed", "session", since.ID, "error", err)
	}
}

// Drain stops accepting runs and lets go of those in work: their workers go on and wait for the next engine. Idle
// workers are ended, unless there is another engine to use them. It returns when nothing of the coordinator runs any more, or with ctx.
func (c *Coordinator) Drain(ctx context.Context) error {
	c.mu.Lock()
	c.draining = true
	idle := c.idle
	c.idle = map[string]idleWorker{}
	for _, d := range c.deadlines {
		d.timer.Stop()
	}
	c.mu.Unlock()
	ends := make([]session.Binding, 0, len(idle))
	for _, w := range idle {
		w.timer.Stop()
		ends = append(ends, w.since)
	}
	c.retireAll(ctx, ends)
	c.stop()
	done := make(chan struct{})
	go func() { c.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.retireAll(ctx, c.late) // nothing writes it any more
	return nil
}

// retiring is how many workers are ended at once.
const retiring = 16

// retireAll ends idle workers, unless there is another engine, which may take the next turns of their conversations to them.
// What is left when ctx ends is ended by its shim, after a while without a call.
func (c *Coordinator) retireAll(ctx context.Context, idle []session.Binding) {
	if !c.alone() {
		return
	}
	var work sync.WaitGroup
	room := make(chan struct{}, retiring)
	for _, since := range idle {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		work.Go(func() {
			defer func() { <-room }()
			c.retire(ctx, since)
		})
	}
	work.Wait()
}
