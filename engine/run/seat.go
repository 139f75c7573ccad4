package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/session"
)

// untouched is the thread state of a run that changed nothing.
func (x *execution) untouched() event.ThreadState {
	switch {
	case x.b.Head.Rev > 0:
		return event.ThreadState{Durability: event.DurabilityCommitted, Revision: x.b.Head.Rev}
	case x.b.SandboxGen == 0 || x.keepsState():
		return event.ThreadState{Durability: event.DurabilityNone}
	}
	return event.ThreadState{Durability: event.DurabilityLocal}
}

// noWorker tells the client why, as far as the error may be shown.
func (x *execution) noWorker(err error) event.RunError {
	e := x.failure(codeWorkerNotStarted, "no worker could be started for the run", event.CategoryUnavailable)
	e.Retryable = true
	if errors.Is(err, blob.ErrNotFound) || errors.Is(err, blob.ErrHash) {
		e.Code, e.Category, e.Retryable = codeThreadLost, event.CategoryPersistence, false
		e.Message = "the conversation's state is missing or damaged; clear the conversation to go on without it"
		return e
	}
	if p, ok := problem.As(err); ok {
		e.Message = p.Message
		switch p.Code {
		case problem.Capacity:
			e.Code, e.Category = codeNoCapacity, event.CategoryCapacity
			if s, ok := p.Extra["retryAfter"].(int); ok {
				e.RetryAfterMs = int64(s) * 1000
			}
		case problem.BadUserInput:
			e.Category, e.Retryable = event.CategoryConfiguration, false
		}
	}
	return e
}

// seatUnlessCancelled is seat, given up when the run is cancelled: a worker may take long to come, or not answer at all.
func (x *execution) seatUnlessCancelled(ctx context.Context) (harness.Runtime, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-x.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return x.seat(ctx)
}

// seat finds the conversation's worker again, or starts one under a new worker generation.
func (x *execution) seat(ctx context.Context) (harness.Runtime, error) {
	ctx, cancel := context.WithTimeout(ctx, x.c.Limits.StartTimeout)
	defer cancel()
	end := x.c.Workers.Kill // it does not answer, or lies
	if x.b.Sandbox != nil && !x.distrust {
		rt, err := x.c.Workers.Attach(ctx, x.binding(), x.lease.Gen, x.b.Sandbox.Addr)
		if err == nil {
			err, end = x.sameHead(ctx, rt), x.c.Workers.Destroy
		}
		if err == nil || errors.Is(err, harness.ErrStaleLease) {
			return rt, err
		}
		x.log.Info("worker of the conversation is gone", "addr", x.b.Sandbox.Addr, "error", err)
	}
	c, err := x.construction(ctx)
	if err != nil {
		return nil, err
	}
	old := x.b.Sandbox
	if err := x.replaceWorker(ctx); err != nil {
		return nil, err
	}
	if old != nil {
		if err := x.endWorker(ctx, old.Addr, end); err != nil {
			return nil, fmt.Errorf("failed to destroy worker %s: %w", old.Addr, err)
		}
	} else if x.epoch > 1 {
		x.c.forgetThreads(ctx, x.b.ID, x.epoch-1)
		if err := x.c.Workers.ForgetState(ctx, x.b.ID, x.epoch-1); err != nil {
			x.log.Warn("state of the epoch before not removed", "error", err)
		}
	}
	return x.c.Workers.Start(ctx, x.binding(), x.lease.Gen, x.b.Sandbox.Addr, c, x.snapshot())
}

// sameHead makes sure that a warm worker holds the thread state that the binding knows. A worker that has run ahead, or
// fallen behind, is not used: it is let go, and the caller replaces it.
func (x *execution) sameHead(ctx context.Context, rt harness.Runtime) error {
	keeper, ok := rt.(harness.StateKeeper)
	if !ok || x.b.Head.Rev == 0 {
		return nil
	}
	err := keeper.Commit(ctx, x.b.Head.ByRun, x.head())
	if err != nil {
		_ = rt.Close()
	}
	return err
}

// snapshot is the thread state that a new worker starts from; nil where the harness keeps none. An empty one says that
// nothing may be left of what an uncommitted turn wrote.
func (x *execution) snapshot() *harness.Snapshot {
	if !x.keepsState() {
		return nil
	}
	if s := x.c.threads().Snapshot(x.b.ID, x.epoch, x.b.Head); s != nil {
		return s
	}
	return &harness.Snapshot{}
}

func (x *execution) head() harness.Head {
	return harness.Head{Rev: x.b.Head.Rev, Hash: x.b.Head.Hash}
}

// binding names whom the worker serves.
func (x *execution) binding() harness.Binding {
	b := harness.Binding{SessionID: x.b.ID, Epoch: x.epoch}
	if x.b.Sandbox != nil {
		b.SandboxGen = x.b.Sandbox.Gen
	}
	return b
}

// replaceWorker raises the worker generation. A store that refuses, and wrote nothing, is asked again until ctx ends: it is no
// reason to end a run that has not begun.
func (x *execution) replaceWorker(ctx context.Context) error {
	for {
		err := x.mutate(ctx, func(b session.Binding, op session.Op) (session.Binding, error) {
			return session.Replace(b, x.lease, func(gen int64) string {
				return x.c.Workers.Reserve(harness.Binding{SessionID: b.ID, Epoch: x.epoch, SandboxGen: gen})
			}, op)
		})
		if err == nil || final(err) {
			return err
		}
		x.log.Warn("worker generation not raised, trying again", "error", err)
		if wait(ctx, storePause) != nil {
			return err
		}
	}
}

// endTime bounds the ending of a worker that was taken off its binding.
const endTime = 30 * time.Second

// endWorker ends a worker that this execution has taken off the binding, by end. That another engine has attached to it is a
// lie, told by whoever got at the worker, where the binding still says that the lease is ours: it is asked once more then.
func (x *execution) endWorker(ctx context.Context, addr string, end func(ctx context.Context, addr string, leaseGen int64) error) error {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	err := end(ctx, addr, x.lease.Gen)
	if !errors.Is(err, harness.ErrStaleLease) {
		return err
	}
	b, err := x.c.Sessions.Session(ctx, x.run.SessionID)
	if err != nil {
		return fmt.Errorf("failed to read session %s: %w", x.run.SessionID, err)
	}
	if lease, active := b.Lease(); !active || lease != x.lease {
		return session.ErrFenced
	}
	x.log.Warn("worker claims another owner, ending it", "addr", addr)
	return x.c.Workers.Kill(ctx, addr, math.MaxInt64)
}
