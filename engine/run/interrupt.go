package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/session"
)

// unparkTimeout bounds the telling of a worker that an interrupt was given up.
const unparkTimeout = 15 * time.Second

// withDeadline gives a request without a deadline the agent's, by the engine's clock.
func (x *execution) withDeadline(ctx context.Context, events []event.Event) []event.Event {
	isRequest := func(e event.Event) bool { return e.Type() == event.TypeInterruptRequested }
	if !slices.ContainsFunc(events, isRequest) {
		return events
	}
	out := slices.Clone(events)
	for i, e := range out {
		if d, ok := e.Data.(event.InterruptRequested); ok && d.Deadline == nil {
			limit := x.c.Limits.InterruptDeadline
			if v, err := x.c.Agents.Version(ctx, x.run.AgentID, x.run.AgentVersion); err == nil && v.Blueprint.Limits.InterruptSeconds > 0 {
				limit = time.Duration(v.Blueprint.Limits.InterruptSeconds) * time.Second
			}
			at := x.c.now().Add(limit)
			d.Deadline = &at
			out[i].Data = d
		}
	}
	return out
}

// pending is the interrupt that the events end the run in; nil where they do not. The request is among them, or was
// logged before.
func (x *execution) pending(ctx context.Context, events []event.Event) (*session.Pending, error) {
	if events[len(events)-1].Type() != event.TypeRunInterrupted {
		return nil, nil
	}
	var asked *event.InterruptRequested
	for _, e := range events {
		if d, ok := e.Data.(event.InterruptRequested); ok {
			asked = &d
		}
	}
	if asked == nil {
		p, err := x.c.fold(ctx, x.run.ID)
		if err != nil {
			return nil, err
		}
		asked = p.asked
	}
	if asked == nil {
		return nil, fmt.Errorf("%w: run %s is interrupted by nothing", event.ErrCorrupt, x.run.ID)
	}
	raw, err := json.Marshal(asked)
	if err != nil {
		return nil, fmt.Errorf("failed to encode the interrupt of run %s: %w", x.run.ID, err)
	}
	return &session.Pending{Interrupt: id.OfInterrupt(x.run.ID), Run: x.run.ID, Revision: asked.Revision, Deadline: asked.Deadline, Request: raw}, nil
}

// recordInterrupt shows in the interrupted run what became of its interrupt. The binding is the authority: StatusIn
// tells the truth also where this has not happened.
func (c *Coordinator) recordInterrupt(ctx context.Context, d *session.Decided) {
	if d == nil {
		return
	}
	runID, ok := id.RunOfInterrupt(d.Interrupt)
	if !ok {
		return
	}
	_, err := c.update(ctx, runID, func(r *Run) bool {
		if r.Interrupt == nil || r.Interrupt.Settled != "" {
			return false
		}
		changed := *r.Interrupt
		changed.Settled, changed.ResumedBy = d.How, d.Run
		r.Interrupt = &changed
		return true
	})
	if err != nil {
		c.Log.Warn("settled interrupt not recorded", "run", runID, "error", err)
	}
}

// SettledIn is what became of the interrupt, by the binding that decides; empty while it waits.
func (i Interrupt) SettledIn(b session.Binding) session.Settlement {
	switch {
	case b.Pending != nil && b.Pending.Interrupt == i.ID:
		return ""
	case b.Decided != nil && b.Decided.Interrupt == i.ID:
		return b.Decided.How
	case i.Settled != "":
		return i.Settled
	}
	return session.Superseded
}

// deadline is the timer of an interrupt. Every engine that knows of the interrupt has one; the first to settle it does. It holds
// nothing of the binding: it may be for a month.
type deadline struct {
	interrupt string
	timer     *time.Timer
	made      time.Time
}

// expireLater gives the pending interrupt up at its deadline.
func (c *Coordinator) expireLater(b session.Binding) {
	if b.Pending == nil || b.Pending.Deadline == nil {
		return
	}
	sessionID, interrupt, revision := b.ID, b.Pending.Interrupt, b.Pending.Revision
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return
	}
	if d := c.deadlines[sessionID]; d != nil {
		d.timer.Stop()
	}
	d := &deadline{interrupt: interrupt, made: time.Now()}
	c.deadlines[sessionID] = d
	d.timer = time.AfterFunc(max(0, b.Pending.Deadline.Sub(c.Now())), func() {
		c.mu.Lock()
		if c.draining || c.deadlines[sessionID] != d {
			c.mu.Unlock()
			return
		}
		c.work.Add(1)
		delete(c.deadlines, sessionID)
		c.mu.Unlock()
		defer c.work.Done()
		if _, err := c.settleInterrupt(c.ctx, sessionID, interrupt, revision, session.Expired); err != nil && c.ctx.Err() == nil {
			var conflict *session.ConflictError
			if !errors.As(err, &conflict) {
				c.Log.Error("interrupt not expired", "session", sessionID, "interrupt", interrupt, "error", err)
			}
		}
	})
}

// forgetDeadlines drops the timers of interrupts that were made before, and are not among those that pend, by session.
func (c *Coordinator) forgetDeadlines(before time.Time, pending map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for sessionID, d := range c.deadlines {
		if d.made.Before(before) && pending[sessionID] != d.interrupt {
			d.timer.Stop()
			delete(c.deadlines, sessionID)
		}
	}
}

// expires says whether this engine has a timer for the session's interrupt.
func (c *Coordinator) expires(sessionID, interrupt string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.deadlines[sessionID]
	return d != nil && d.interrupt == interrupt
}

// settleInterrupt gives a pending interrupt up and lets the next queued run begin.
func (c *Coordinator) settleInterrupt(ctx context.Context, sessionID, interrupt string, revision int64, how session.Settlement) (session.Binding, error) {
	b, err := c.mutate(ctx, sessionID, func(b session.Binding, op session.Op) (session.Binding, error) {
		return session.Settle(b, interrupt, revision, how, c.Boot, op)
	})
	if errors.Is(err, session.ErrUnchanged) {
		c.recordInterrupt(ctx, b.Decided) // the engine that settled it may have died before it said so
		return b, nil
	}
	if err != nil {
		return b, err
	}
	c.recordInterrupt(ctx, b.Decided)
	c.unpark(b)
	c.idleLater(b)
	return b, c.launchNext(ctx, b)
}

// unpark tells the worker that nobody will decide what waits in it, so that it need not be kept for that. It is only
// needed where the wait lives in the worker, and no run follows that would end it; a worker that does not hear it keeps
// its place for longer, and nothing else.
func (c *Coordinator) unpark(b session.Binding) {
	runID, ok := id.RunOfInterrupt(b.Decided.Interrupt)
	if !ok || b.Active != nil || b.Sandbox == nil || c.asksNatively(b.Harness) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return
	}
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, unparkTimeout)
		defer cancel()
		rt, err := c.Workers.Attach(ctx, harness.Binding{SessionID: b.ID, Epoch: b.Epoch, SandboxGen: b.Sandbox.Gen}, b.LeaseGen, b.Sandbox.Addr)
		if err != nil {
			c.Log.Debug("settled interrupt not told to the worker", "session", b.ID, "error", err)
			return
		}
		defer func() { _ = rt.Close() }()
		if err := rt.Cancel(ctx, runID, event.CancelClientRequest); err != nil {
			c.Log.Debug("settled interrupt not told to the worker", "session", b.ID, "error", err)
		}
	})
}

// openAtEnd is what a run left open when it was interrupted: as its document says, or, of runs from before that and while the
// document is being written, folded from its log, on what the run before it left.
func (c *Coordinator) openAtEnd(ctx context.Context, runID string) (event.Inheritance, error) {
	r, err := c.Runs.Run(ctx, runID)
	if err != nil {
		return event.Inheritance{}, fmt.Errorf("failed to read interrupted run %s: %w", runID, err)
	}
	if r.Interrupt != nil && r.Interrupt.Open != nil {
		return *r.Interrupt.Open, nil
	}
	v := event.NewValidator(event.DefaultBounds())
	if r.Continues != nil {
		in, err := c.openAtEnd(ctx, r.Continues.Run)
		if err != nil {
			return in, err
		}
		if err := v.Inherit(in); err != nil {
			return in, err
		}
	}
	for after := int64(0); ; {
		chunks, err := c.Events.Read(ctx, runID, after, projectPage)
		if err != nil {
			return event.Inheritance{}, fmt.Errorf("failed to read interrupted run %s: %w", runID, err)
		}
		if len(chunks) == 0 {
			return v.Inheritance(), nil
		}
		for _, chunk := range chunks {
			events, err := decoded(chunk, after)
			if err != nil {
				return event.Inheritance{}, fmt.Errorf("failed to read interrupted run %s: %w", runID, err)
			}
			for _, e := range events {
				if _, err := v.Accept(e); err != nil {
					return event.Inheritance{}, fmt.Errorf("%w: run %s at %d: %w", event.ErrCorrupt, runID, e.Sequence, err)
				}
			}
			after = chunk.Last
		}
	}
}
