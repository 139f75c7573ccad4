package run

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/session"
)

// Limits of a coordinator; a zero field takes the default.
type Limits struct {
	MaxRuns        int           // runs that this engine drives at once; default 256
	MaxRunDuration time.Duration // of a run whose agent sets none; default 1 h
	StartTimeout   time.Duration // to have a worker ready and bound; default 60 s
	CancelGrace    time.Duration // for a worker to end a cancelled turn before it is destroyed; default 10 s
	ReconnectFor   time.Duration // to reach a worker again before it counts as lost; default 30 s
	IdleWorker     time.Duration // that a worker stays for a follow-up turn; default 10 min
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
	def(&l.CancelGrace, 10*time.Second)
	def(&l.ReconnectFor, 30*time.Second)
	def(&l.IdleWorker, 10*time.Minute)
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
	Authz        authz.Checker // asked again before a recovered run is dispatched
	Secret       []byte        // keys the digests that make ids, at least 32 bytes; the same on every replica
	Boot         string        // nonce of this boot
	Limits       Limits
	Now          func() time.Time
	Log          *slog.Logger
}

// Coordinator admits runs and drives those that it holds the lease of.
type Coordinator struct {
	Options

	ctx  context.Context // ends when the engine lets go of its runs
	stop context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex
	draining bool
	live     map[string]*execution  // by run
	idle     map[string]*time.Timer // by session
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
	return &Coordinator{Options: o, ctx: ctx, stop: stop, live: map[string]*execution{}, idle: map[string]*time.Timer{}}
}

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
			x.again = &claim{run: r, binding: b}
		}
		return
	}
	if t := c.idle[b.ID]; t != nil {
		t.Stop()
		delete(c.idle, b.ID)
	}
	x := newExecution(c, r, b)
	x.recovered = recovered
	c.live[r.ID] = x
	c.work.Go(func() {
		defer func() {
			c.mu.Lock()
			delete(c.live, r.ID)
			again := x.again
			c.mu.Unlock()
			if again != nil {
				c.launch(again.run, again.binding, false)
			}
		}()
		x.drive(c.ctx)
	})
}

// room refuses a run that this engine has no room for.
func (c *Coordinator) room() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return problem.New(problem.Capacity, "the engine is shutting down").With("retryAfter", 1)
	}
	if len(c.live) >= c.Limits.MaxRuns {
		return problem.New(problem.Capacity, "the engine drives %d runs already", len(c.live)).With("retryAfter", 5)
	}
	return nil
}

// idleLater ends the session's worker of that generation when no turn has followed in time.
func (c *Coordinator) idleLater(b session.Binding) {
	if b.Sandbox == nil || b.Active != nil {
		return
	}
	gen, addr := b.Sandbox.Gen, b.Sandbox.Addr
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return
	}
	if t := c.idle[b.ID]; t != nil {
		t.Stop()
	}
	c.idle[b.ID] = time.AfterFunc(c.Limits.IdleWorker, func() {
		c.mu.Lock()
		if c.draining {
			c.mu.Unlock()
			return
		}
		c.work.Add(1)
		delete(c.idle, b.ID)
		c.mu.Unlock()
		defer c.work.Done()
		c.retire(c.ctx, b.ID, gen, addr)
	})
}

// retire takes an idle worker off its binding, then ends it.
func (c *Coordinator) retire(ctx context.Context, sessionID string, gen int64, addr string) {
	_, err := session.Mutate(ctx, c.Sessions, sessionID, c.Now, func(b session.Binding, op session.Op) (session.Binding, error) {
		return session.Retire(b, gen, op)
	})
	if err != nil {
		return // a turn came first, or the next engine sweeps it
	}
	if err := c.Workers.Destroy(ctx, addr); err != nil {
		c.Log.Warn("idle worker not destroyed", "session", sessionID, "error", err)
	}
}

// Drain stops accepting runs and lets go of those in work: their workers go on and wait for the next engine. Idle
// workers are ended. It returns when nothing of the coordinator runs any more, or with ctx.
func (c *Coordinator) Drain(ctx context.Context) error {
	c.mu.Lock()
	c.draining = true
	idle := c.idle
	c.idle = map[string]*time.Timer{}
	c.mu.Unlock()
	for sessionID, t := range idle {
		t.Stop()
		b, err := c.Sessions.Session(ctx, sessionID)
		if err == nil && b.Active == nil && b.Sandbox != nil {
			c.retire(ctx, sessionID, b.Sandbox.Gen, b.Sandbox.Addr)
		}
	}
	c.stop()
	done := make(chan struct{})
	go func() { c.work.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
