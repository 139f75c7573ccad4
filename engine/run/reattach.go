package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// reattach finds the worker of a run that has begun. The same incarnation may be asked again for the same turn; where
// it is gone the run ends as uncertain and is never dispatched again.
func (x *execution) reattach(ctx context.Context, w *event.Writer) (harness.Runtime, error) {
	first, err := x.c.Events.Get(ctx, x.run.ID, 1)
	if err != nil {
		return nil, fmt.Errorf("failed to read the start of run %s: %w", x.run.ID, err)
	}
	events, err := first.Events()
	if err != nil {
		return nil, err
	}
	started, ok := events[0].Data.(event.RunStarted)
	if !ok {
		return nil, fmt.Errorf("%w: run %s begins with %s", event.ErrCorrupt, x.run.ID, events[0].Type())
	}
	if err := x.projectStart(ctx, started); err != nil {
		return nil, err
	}
	if x.distrust {
		p := &pump{x: x, w: w}
		return nil, p.lost(ctx, harness.ErrStaleLease)
	}
	until := x.c.Now().Add(x.c.Limits.ReconnectFor)
	for {
		attaching, done := x.patient(ctx)
		rt, err := x.attachTo(attaching, started)
		done()
		switch {
		case err == nil:
			return rt, nil
		case errors.Is(err, harness.ErrStaleLease) || ctx.Err() != nil:
			return nil, err
		case x.overdue():
			p := &pump{x: x, w: w}
			return nil, p.endDeaf(ctx, err)
		case errors.Is(err, harness.ErrUnreachable) && x.c.Now().Before(until):
			if err := wait(ctx, 100*time.Millisecond); err != nil {
				return nil, err
			}
		default:
			p := &pump{x: x, w: w}
			return nil, p.lost(ctx, err)
		}
	}
}

func (x *execution) attachTo(ctx context.Context, started event.RunStarted) (harness.Runtime, error) {
	if x.b.Sandbox == nil || x.b.Sandbox.Gen != started.SandboxGeneration {
		return nil, errLost
	}
	rt, err := x.c.Workers.Attach(ctx, x.binding(), x.lease.Gen, x.b.Sandbox.Addr)
	if err != nil {
		return nil, err
	}
	if rt.Instance() != started.WorkerInstance {
		_ = rt.Close()
		return nil, errLost
	}
	return rt, nil
}

// mayUse asks whether the run's subject may still use the agent.
func (x *execution) mayUse(ctx context.Context) (bool, error) {
	return x.c.Authz.Check(ctx, authz.Check{
		User: authz.TypeUser + ":" + x.run.Subject, Relation: authz.CanUse, Object: authz.Agent(x.run.AgentID), Fresh: true,
	})
}
