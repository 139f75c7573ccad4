package run

import (
	"context"
	"errors"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/replica"
)

// Replicas is what the coordinator asks of the other engines on the store.
type Replicas interface {
	// Gone says whether the engine of that boot nonce holds no lease any more, as far as this one can tell. A wrong yes
	// costs a fence in the log, and nothing else.
	Gone(boot string) bool
	// Alone says whether there is no other engine.
	Alone() bool
	// Tell gives the others a hint; it must not block.
	Tell(h replica.Hint)
}

// errDoubt ends the driving of a run whose lease another engine may have taken.
var errDoubt = errors.New("this engine may have been taken for gone")

// gone says whether an owner of leases is no more. Without other engines every owner but this one is.
func (c *Coordinator) gone(owner string) bool {
	if owner == c.Boot {
		return false
	}
	return c.Replicas == nil || c.Replicas.Gone(owner)
}

func (c *Coordinator) alone() bool { return c.Replicas == nil || c.Replicas.Alone() }

func (c *Coordinator) tell(kind replica.Kind, id string) {
	if c.Replicas != nil {
		c.Replicas.Tell(replica.Hint{Kind: kind, ID: id})
	}
}

// Wake makes Run look at once for what an engine that has gone left behind. It never blocks.
func (c *Coordinator) Wake() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// LetGo lets go of every run in work, as Drain does, but goes on accepting: the others may have taken the runs over.
// Those that nobody took are taken up again by the next sweep.
func (c *Coordinator) LetGo() {
	c.mu.Lock()
	for _, x := range c.live {
		x.letGo(errDoubt)
	}
	c.mu.Unlock()
}

// Hinted obeys a cancel that another engine has accepted.
func (c *Coordinator) Hinted(h replica.Hint) {
	if h.Kind != replica.CancelAsked && h.Kind != replica.Everything {
		return
	}
	c.mu.Lock()
	_, mine := c.live[h.ID]
	some := len(c.live) > 0
	draining := c.draining
	if (mine || h.Kind == replica.Everything && some) && !draining {
		c.work.Add(1)
		defer c.work.Done()
	}
	c.mu.Unlock()
	if !mine && h.Kind == replica.CancelAsked || !some || draining {
		return
	}
	if err := c.obey(c.ctx); err != nil && c.ctx.Err() == nil {
		c.Log.Warn("cancel requests not read", "error", err)
	}
}

// How often Run looks, whatever hints came.
const (
	obeyEvery  = 500 * time.Millisecond // for requests to runs of this engine: they are obeyed within a second
	sweepEvery = 5 * time.Second        // for what nobody finishes
)

// Run obeys requests that other engines have accepted, and takes over and finishes what engines that are gone have left,
// until ctx ends.
func (c *Coordinator) Run(ctx context.Context) {
	obey, sweep := time.NewTicker(obeyEvery), time.NewTicker(sweepEvery)
	defer obey.Stop()
	defer sweep.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-c.poke:
			err = c.Sweep(ctx)
		case <-sweep.C:
			err = c.Sweep(ctx)
		case <-obey.C:
			err = c.obey(ctx)
		}
		if err != nil && ctx.Err() == nil {
			c.Log.Warn("sweep failed, it will be tried again", "error", err)
		}
	}
}

// obey ends the runs of this engine that were asked to end.
func (c *Coordinator) obey(ctx context.Context) error {
	c.mu.Lock()
	idle := len(c.live) == 0
	c.mu.Unlock()
	if idle {
		return nil
	}
	for after := ""; ; {
		asked, err := c.Runs.CancelRequests(ctx, after, sweepPage)
		if err != nil {
			return err
		}
		for _, r := range asked {
			after = r.Run
			c.cancelLive(r.Run, r.Reason)
		}
		if len(asked) < sweepPage {
			return nil
		}
	}
}

// cancelLive cancels the run where this engine drives it.
func (c *Coordinator) cancelLive(runID string, reason event.CancelReason) {
	c.mu.Lock()
	x := c.live[runID]
	c.mu.Unlock()
	if x != nil {
		x.cancel(reason)
	}
}
