package run

import (
	"context"
	"errors"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/replica"
	"github.com/harness-engine/harness-engine/engine/session"
)

// Cancel asks for the run's end and returns at once; the log then shows how it ended. It is idempotent, and changes
// nothing about a run that has ended. The request is durable: an engine that takes the run over obeys it. A run that is halted
// is given up.
func (c *Coordinator) Cancel(ctx context.Context, runID string) (Run, error) {
	r, err := c.requestCancel(ctx, runID, event.CancelClientRequest)
	if errors.Is(err, ErrNotFound) {
		return Run{}, problem.NotFoundf("run")
	}
	return r, err
}

// requestCancel records the first reason and wakes the owner, where that is this engine.
func (c *Coordinator) requestCancel(ctx context.Context, runID string, reason event.CancelReason) (Run, error) {
	r, err := c.update(ctx, runID, func(r *Run) bool {
		if r.Status.Ended() || r.CancelReason != "" {
			return false
		}
		r.CancelReason = reason
		return true
	})
	if err != nil {
		return Run{}, err
	}
	c.mu.Lock()
	x := c.live[runID]
	c.mu.Unlock()
	switch {
	case r.CancelReason == "":
	case r.Halted != nil:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout+endTime)
		defer cancel()
		if err := c.giveUp(ctx, r); err != nil {
			return r, err
		}
		return c.Runs.Run(ctx, runID)
	case x != nil:
		x.cancel(r.CancelReason)
	case r.Status == StatusQueued && r.Ord == 0: // it waits for its turn
		if _, err := c.unqueue(context.WithoutCancel(ctx), r, r.CancelReason); err != nil {
			return r, err
		}
		return c.Runs.Run(ctx, runID)
	default:
		c.tell(replica.CancelAsked, runID) // its owner is another engine
	}
	return r, nil
}

// Clear begins a new epoch of the conversation: its next run starts without memory, on the agent's current version. A
// run that is active is cancelled, and the next one is refused until that has ended.
func (c *Coordinator) Clear(ctx context.Context, sessionID string) (session.Binding, error) {
	var before session.Binding
	var dropped []session.Dropped
	b, err := c.mutate(ctx, sessionID, func(b session.Binding, op session.Op) (session.Binding, error) {
		before = b
		n, d := session.Clear(b, op)
		dropped = d
		return n, nil
	})
	if errors.Is(err, session.ErrNotFound) {
		return session.Binding{}, problem.NotFoundf("session")
	}
	if err != nil {
		return session.Binding{}, err
	}
	ctx = context.WithoutCancel(ctx)
	if before.Pending != nil {
		c.recordInterrupt(ctx, b.Decided)
	}
	for _, d := range dropped { // what is not ended here is swept at the next start
		if err := c.drop(ctx, d, event.CancelSessionCleared); err != nil {
			c.Log.Warn("queued run of a cleared conversation not ended", "run", d.Run, "error", err)
		}
	}
	if b.Draining != "" {
		r, err := c.requestCancel(ctx, b.Draining, event.CancelSessionCleared)
		if err == nil && r.Halted != nil {
			return c.Sessions.Session(ctx, b.ID)
		}
		return b, err
	}
	c.forget(ctx, before)
	return b, nil
}

// forget removes what an epoch left on this host: its worker, its workspace and its native state. What stays behind
// after a crash goes when the next epoch starts its first worker.
func (c *Coordinator) forget(ctx context.Context, b session.Binding) {
	c.forgetThreads(ctx, b.ID, b.Epoch) // first: a worker may take long to end
	if b.Sandbox != nil {
		if err := c.Workers.Destroy(ctx, b.Sandbox.Addr, b.LeaseGen); err != nil {
			c.Log.Warn("worker of a cleared epoch not destroyed", "session", b.ID, "error", err)
		}
	}
	if err := c.Workers.ForgetState(ctx, b.ID, b.Epoch); err != nil {
		c.Log.Warn("state of a cleared epoch not removed", "session", b.ID, "epoch", b.Epoch, "error", err)
	}
}

// forgottenEpochs is how many epochs are looked at for states that a crash left behind.
const forgottenEpochs = 32

// forgetThreads removes the stored states of the epochs up to this one. An earlier one may still be there when the engine
// ended before it forgot that.
func (c *Coordinator) forgetThreads(ctx context.Context, sessionID string, epoch int64) {
	if c.Blobs == nil {
		return
	}
	for e := epoch; e > max(0, epoch-forgottenEpochs); e-- {
		if err := c.threads().Keep(ctx, sessionID, e, session.Head{}); err != nil {
			c.Log.Warn("thread of a cleared epoch not removed", "session", sessionID, "epoch", e, "error", err)
		}
	}
}
