package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/session"
)

// enqueued writes into the run document that admission put the run into the queue.
func (c *Coordinator) enqueued(ctx context.Context, r Run, b session.Binding) (Run, error) {
	return c.update(ctx, r.ID, func(r *Run) bool {
		if r.Status != StatusAdmitting {
			return false
		}
		r.Status, r.Epoch = StatusQueued, b.Epoch
		return true
	})
}

// launchNext drives on the run that a transition of this engine has just made active, if it did.
func (c *Coordinator) launchNext(ctx context.Context, b session.Binding) error {
	if b.Active == nil || b.Active.Owner != c.Boot {
		return nil
	}
	r, err := c.Runs.Run(ctx, b.Active.Run)
	if err != nil {
		return fmt.Errorf("failed to read run %s, which is next in session %s: %w", b.Active.Run, b.ID, err)
	}
	c.launch(r, b, true)
	return nil
}

// unqueue takes a run that waits in its queue off it and ends it. False where it is not in a queue any more.
func (c *Coordinator) unqueue(ctx context.Context, r Run, reason event.CancelReason) (bool, error) {
	var dropped session.Dropped
	_, err := c.mutate(ctx, r.SessionID, func(b session.Binding, op session.Op) (session.Binding, error) {
		n, d, err := session.CancelQueued(b, r.ID, op)
		dropped = d
		return n, err
	})
	if errors.Is(err, session.ErrUnchanged) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, c.drop(ctx, dropped, reason)
}

// drop ends a run that was taken off a queue: its start and its end are one chunk.
func (c *Coordinator) drop(ctx context.Context, d session.Dropped, reason event.CancelReason) error {
	r, err := c.update(ctx, d.Run, func(r *Run) bool {
		if r.Status.Ended() || r.Ord != 0 {
			return false
		}
		r.Status, r.Ord, r.Epoch = StatusQueued, d.Ord, d.Epoch
		r.AgentVersion, r.Harness = d.Pin.AgentVersion, d.Pin.Harness
		if r.CancelReason == "" {
			r.CancelReason = reason
		}
		return true
	})
	if err != nil {
		return err
	}
	return c.endUnstarted(ctx, r, d.Gen)
}

// endUnstarted logs a cancelled run that never had a worker, under a lease generation that is its own, and projects it.
func (c *Coordinator) endUnstarted(ctx context.Context, r Run, gen int64) error {
	life, done := context.WithCancel(ctx)
	defer done()
	w, err := event.OpenWriter(life, event.WriterConfig{
		Log: c.Events, Publish: c.Publish, RunID: r.ID, SessionID: r.SessionID, Gen: gen, Nonce: c.Boot, Now: c.Now, Logger: c.Log,
	})
	if err != nil {
		return fmt.Errorf("failed to open the log of run %s: %w", r.ID, err)
	}
	if !w.Ended() {
		end := event.RunCancelled{Reason: r.CancelReason, SideEffects: event.SideEffectsNone, Thread: event.ThreadState{Durability: event.DurabilityNone}}
		if _, err := w.Append(ctx, event.Batch{Events: []event.Event{{Data: c.started(r)}, {Data: end}}}); err != nil {
			return fmt.Errorf("failed to end run %s, which never began: %w", r.ID, err)
		}
	}
	_, err = c.project(ctx, r.ID)
	return err
}

// sweepDropped ends a queued run that is in no queue any more: an engine took it off and died before it was ended.
func (c *Coordinator) sweepDropped(ctx context.Context, r Run) error {
	reason := r.CancelReason
	if reason == "" {
		reason = event.CancelSessionCleared // nothing else takes a run off its queue unasked
	}
	var d session.Dropped
	b, err := c.mutate(ctx, r.SessionID, func(b session.Binding, op session.Op) (session.Binding, error) {
		if b.Queued(r.ID) >= 0 || b.Active != nil && b.Active.Run == r.ID {
			return b, session.ErrUnchanged // it has its place
		}
		n, dropped := session.Drop(b, session.Queued{Run: r.ID, Pin: session.Pin{AgentVersion: r.AgentVersion, Harness: r.Harness}}, op)
		d = dropped
		return n, nil
	})
	if errors.Is(err, session.ErrUnchanged) {
		return nil
	}
	if err != nil {
		return err
	}
	if r.Ord != 0 { // it had its order already; only the end is missing
		return c.endUnstarted(ctx, r, d.Gen)
	}
	if d.Pin.AgentVersion == 0 {
		pin, err := c.pin(ctx, r, b)
		if err != nil {
			return err
		}
		d.Pin = pin
	}
	return c.drop(ctx, d, reason)
}

// sessionOf computes the conversation's id: the same key is the same conversation.
func (c *Coordinator) sessionOf(k session.Key) string {
	return id.Keyed(id.Session, c.Secret, k.Environment, k.Subject, k.AgentID, k.ConversationID)
}
