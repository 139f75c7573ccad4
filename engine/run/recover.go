package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/session"
)

const sweepPage = 200

// Recover takes over what an engine before left: every binding that is busy gets a new lease and its run is driven on,
// or to its end; admissions that were cut off are finished or refused; workers that serve no busy binding are ended.
// It returns when every lease is taken; the runs go on by themselves. It must be called before the first Start.
func (c *Coordinator) Recover(ctx context.Context) error {
	var claims []claim
	keep := map[string]bool{} // workers that serve somebody
	for after := ""; ; {
		ids, err := c.Sessions.BusySessions(ctx, after, sweepPage)
		if err != nil {
			return fmt.Errorf("failed to list busy sessions: %w", err)
		}
		for _, sessionID := range ids {
			taken, err := c.takeOver(ctx, sessionID)
			if err != nil {
				return err
			}
			if s := taken.binding.Sandbox; s != nil {
				keep[s.Addr] = true
			}
			if taken.run.ID != "" {
				claims = append(claims, taken)
			}
			after = sessionID
		}
		if len(ids) < sweepPage {
			break
		}
	}
	decided, err := c.sweepUnfinished(ctx, claims)
	if err != nil {
		return err
	}
	// Before any run is driven on: a worker that one of them starts is not a left-over.
	if err := c.sweepWorkers(ctx, keep); err != nil {
		return err
	}
	for _, taken := range claims {
		c.launch(taken.run, taken.binding, true)
	}
	for _, r := range decided {
		_, err := c.admitResume(ctx, r)
		if _, refused := problem.As(err); err != nil && !refused {
			return err
		}
	}
	return nil
}

// claim is a run whose lease was taken over.
type claim struct {
	run     Run
	binding session.Binding
}

// takeOver claims the lease of a busy binding's run. The claim has no run where the binding only waits for a person.
func (c *Coordinator) takeOver(ctx context.Context, sessionID string) (claim, error) {
	b, err := c.mutate(ctx, sessionID, func(b session.Binding, op session.Op) (session.Binding, error) {
		if b.Active == nil {
			return b, session.ErrNotActive
		}
		return session.Claim(b, b.Active.Run, c.Boot, op)
	})
	if errors.Is(err, session.ErrNotActive) {
		c.expireLater(b)
		return claim{binding: b}, nil
	}
	if err != nil {
		return claim{}, err
	}
	r, err := c.Runs.Run(ctx, b.Active.Run)
	if err != nil {
		return claim{}, fmt.Errorf("failed to read active run %s of session %s: %w", b.Active.Run, b.ID, err)
	}
	c.Log.Info("run taken over", "run", r.ID, "session", b.ID, "status", r.Status, "lease_gen", b.Active.Gen)
	return claim{run: r, binding: b}, nil
}

// sweepUnfinished settles runs that no busy binding knows of: the terminal is logged but not projected, or the
// admission was cut off before the binding.
func (c *Coordinator) sweepUnfinished(ctx context.Context, claims []claim) (decided []Run, err error) {
	driven := map[string]bool{}
	for _, taken := range claims {
		driven[taken.run.ID] = true
	}
	for after := ""; ; {
		runs, err := c.Runs.UnfinishedRuns(ctx, after, sweepPage)
		if err != nil {
			return nil, fmt.Errorf("failed to list unfinished runs: %w", err)
		}
		for _, r := range runs {
			after = r.ID
			if driven[r.ID] {
				continue
			}
			if r.Status == StatusAdmitting && r.Continues != nil { // its decision was accepted: it is taken, or refused for good
				decided = append(decided, r)
				continue
			}
			if r.Status == StatusQueued {
				ended, err := c.project(ctx, r.ID)
				if err == nil && !ended {
					err = c.sweepDropped(ctx, r)
				}
				if err != nil {
					return nil, err
				}
				continue
			}
			if r.Status == StatusAdmitting {
				if r.IdempotencyKey != "" {
					continue // invisible; a repeat of its key finishes it
				}
				_, err := c.reject(ctx, r, Refusal{Code: string(problem.Capacity), Message: "the engine stopped before the run was admitted"})
				if _, refused := problem.As(err); err != nil && !refused {
					return nil, err
				}
				continue
			}
			ended, err := c.project(ctx, r.ID)
			if err != nil {
				return nil, err
			}
			if !ended {
				c.Log.Error("integrity: run is unfinished, but its session does not hold it", "run", r.ID, "session", r.SessionID)
			}
		}
		if len(runs) < sweepPage {
			return decided, nil
		}
	}
}

// sweepWorkers ends workers that serve neither a run nor a person who decides. An idle conversation loses its warm worker by that, and
// nothing else: its state is kept apart from it.
func (c *Coordinator) sweepWorkers(ctx context.Context, keep map[string]bool) error {
	addrs, err := c.Workers.List(ctx)
	if err != nil {
		return fmt.Errorf("failed to list workers: %w", err)
	}
	for _, addr := range addrs {
		if keep[addr] {
			continue
		}
		if err := c.Workers.Destroy(ctx, addr); err != nil {
			c.Log.Warn("left-over worker not destroyed", "addr", addr, "error", err)
		}
	}
	return nil
}

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
		rt, err := x.attachTo(ctx, started)
		switch {
		case err == nil:
			return rt, nil
		case errors.Is(err, harness.ErrStaleLease) || ctx.Err() != nil:
			return nil, err
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
