package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/session"
)

// A run whose log is damaged cannot be ended by its log. It is *halted*: its document says so, nobody appends to the log any
// more, and its worker is ended. The conversation stays busy until somebody with the right to decide that has the run given
// up: by a cancel, a clear, a run that takes its place, or `admin repair`. See docs/decisions/0011.

// codeLogDamaged is the code of the terminal that a given-up run has in its document only.
const codeLogDamaged = "log_damaged"

// maxWhy bounds Halt.Why, in bytes.
const maxWhy = 500

// halt notes that a run's log is damaged, in memory at once, so that no sweep of this engine tries again, and in the run's
// document. Where the run was asked to end it is given up.
func (c *Coordinator) halt(ctx context.Context, runID string, cause error) {
	c.noteHalted(runID)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	r, err := c.update(ctx, runID, func(r *Run) bool {
		if r.Halted != nil || r.Status.Ended() {
			return false
		}
		r.Halted = &Halt{At: c.now(), Why: clipped(cause.Error(), maxWhy)}
		return true
	})
	if err == nil && r.CancelReason != "" {
		err = c.giveUp(ctx, r)
	}
	if err != nil { // a sweep finds it again
		c.Log.Error("halted run not settled", "run", runID, "error", err)
	}
}

// clipped is at most n bytes of s, whole characters.
func clipped(s string, n int) string {
	for i := range s {
		if i > n {
			return s[:i]
		}
	}
	return s
}

func (c *Coordinator) noteHalted(runID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.halted[runID] = true
}

func (c *Coordinator) isHalted(runID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.halted[runID]
}

// unhalt lets the run be driven again: an operator has found its log whole.
func (c *Coordinator) unhalt(runID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.halted, runID)
}

// halt ends what the run has begun outside of its log: nobody will look after it.
func (x *execution) halt(ctx context.Context, cause error) {
	x.log.Error("run halted: its log is damaged", "error", cause)
	x.c.halt(ctx, x.run.ID, cause)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	old := x.b.Sandbox
	err := x.mutate(ctx, func(b session.Binding, op session.Op) (session.Binding, error) {
		return session.Discard(b, x.lease, op)
	})
	if err == nil && old != nil {
		err = x.endWorker(ctx, old.Addr, x.c.Workers.Kill)
	}
	if err != nil && !errors.Is(err, session.ErrNotActive) { // which is that it was given up, and the worker ended, already
		x.log.Warn("worker of a halted run not ended", "error", err)
	}
}

// GiveUp writes into the document of a halted run that it has ended, at event last. False where there is nothing to write.
func GiveUp(r *Run, last int64, now time.Time) (bool, error) {
	if r.Halted == nil || r.Status.Ended() {
		return false, nil
	}
	raw, err := event.Encode(event.Event{RunID: r.ID, SessionID: r.SessionID, Sequence: max(last, r.LastSequence) + 1, Time: now, Data: event.RunError{
		Code: codeLogDamaged, Message: "the record of this run is damaged, and the run was given up; what it did is not known",
		Category: event.CategoryPersistence, SideEffects: event.SideEffectsPossible,
		Thread: event.ThreadState{Durability: event.DurabilityUncertain},
	}})
	if err != nil {
		return false, fmt.Errorf("failed to give run %s up: %w", r.ID, err)
	}
	r.Status, r.Terminal, r.EndedAt, r.LastSequence = StatusFailed, raw, &now, max(last, r.LastSequence)
	return true, nil
}

// giveUp ends a halted run without its log: its document first, then its place in the conversation, then its worker. It may
// be repeated, by any engine.
func (c *Coordinator) giveUp(ctx context.Context, r Run) error {
	last := int64(0)
	if tail, err := c.Events.Tail(ctx, r.ID); err == nil {
		last = tail.Last
	}
	var failed error
	r, err := c.update(ctx, r.ID, func(r *Run) bool {
		var changed bool
		changed, failed = GiveUp(r, last, c.now())
		return changed && failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if r.Halted == nil { // an operator has found the log whole
		return nil
	}
	var before session.Binding
	b, err := c.mutate(ctx, r.SessionID, func(b session.Binding, op session.Op) (session.Binding, error) {
		before = b
		if b.Active != nil && b.Active.Run == r.ID && b.Epoch != b.Active.Epoch { // see settle
			c.recordInterrupt(ctx, &session.Decided{Interrupt: id.OfInterrupt(r.ID), How: session.Cleared})
		}
		return session.GiveUp(b, r.ID, c.Boot, op)
	})
	switch {
	case errors.Is(err, session.ErrUnchanged):
		return nil
	case err != nil:
		return err
	}
	c.Log.Warn("run given up: its log is damaged", "run", r.ID, "session", b.ID)
	if before.Sandbox != nil {
		// It is off the binding: whoever has attached to it has it no more.
		bounded, cancel := context.WithTimeout(ctx, endTime)
		defer cancel()
		if err := c.Workers.Kill(bounded, before.Sandbox.Addr, math.MaxInt64); err != nil && !errors.Is(err, harness.ErrGone) {
			c.Log.Error("worker of a run that was given up not ended", "run", r.ID, "error", err)
		}
	}
	if before.Active.Epoch != before.Epoch {
		old := before
		old.Epoch, old.Sandbox = before.Active.Epoch, nil
		c.forget(ctx, old)
	}
	return c.launchNext(ctx, b)
}

// halted sees to a halted run that a binding holds: it is given up where somebody has asked for that, and the engine that took
// the request has gone.
func (s *sweep) halted(ctx context.Context, r Run, b session.Busy) error {
	if r.Status.Ended() || r.CancelReason != "" {
		return s.c.giveUp(ctx, r)
	}
	reason := event.CancelSuperseded
	switch {
	case b.Draining == r.ID:
		reason = event.CancelSessionCleared
	case !b.Urgent:
		return nil
	}
	_, err := s.c.requestCancel(ctx, r.ID, reason)
	return err
}
