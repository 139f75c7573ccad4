package resolvers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/graph/model"
)

// recheckPause is how long a held stream waits before it asks again.
const recheckPause = 500 * time.Millisecond

// RunEvents follows a run's log. The channel is closed after the terminal event; any other end is an error of the
// stream.
func (s subscriptions) RunEvents(ctx context.Context, runID string, after int64) (<-chan *model.RunEventBatch, error) {
	if err := checkSequence("after", after); err != nil {
		return nil, err
	}
	until, err := s.renew(ctx, runID)
	if err != nil {
		return nil, err
	}
	out := make(chan *model.RunEventBatch)
	go func() {
		defer close(out)
		defer func() {
			if p := recover(); p != nil {
				endStream(ctx, s.Present(ctx, s.Recover(ctx, p)))
			}
		}()
		f := follower{Root: s.Root, runID: runID, until: until, out: out}
		if err := f.follow(ctx, s.Hub.Subscribe(runID, after)); err != nil && ctx.Err() == nil {
			endStream(ctx, s.Present(ctx, err))
		}
	}()
	return out, nil
}

// follower brings one run's events to one subscriber. It delivers only until the moment that the last check allows.
type follower struct {
	*Root
	runID string
	until time.Time
	out   chan<- *model.RunEventBatch
}

// follow returns nil after the terminal event.
func (f *follower) follow(ctx context.Context, sub *event.Subscription) error {
	for {
		delivery, err := f.next(ctx, sub)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		batch := &model.RunEventBatch{Events: make([]model.RunEvent, len(delivery.Events)), Through: delivery.Through, CaughtUp: delivery.CaughtUp}
		for i, e := range delivery.Events {
			if batch.Events[i], err = eventModel(e); err != nil {
				return err
			}
		}
		if err := f.send(ctx, batch); err != nil {
			return err
		}
	}
}

// next waits for events; while it waits it renews the permission whenever that runs out.
func (f *follower) next(ctx context.Context, sub *event.Subscription) (event.Delivery, error) {
	for {
		waiting, cancel := context.WithDeadline(ctx, f.until)
		delivery, err := sub.Next(waiting, f.Limits.BatchEvents)
		idle := waiting.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !idle || !errors.Is(err, context.DeadlineExceeded) {
			return delivery, err
		}
		if f.until, err = f.renew(ctx, f.runID); err != nil {
			return event.Delivery{}, err
		}
	}
}

// send hands the batch over while the permission lasts, however slow the subscriber is.
func (f *follower) send(ctx context.Context, batch *model.RunEventBatch) error {
	for {
		left := time.Until(f.until)
		if left > 0 {
			timer := time.NewTimer(left)
			select {
			case f.out <- batch:
				timer.Stop()
				return nil
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			case <-timer.C:
			}
		}
		var err error
		if f.until, err = f.renew(ctx, f.runID); err != nil {
			return err
		}
	}
}

// renew asks whether the caller may still view the run. While there is no answer nothing is delivered; the stream ends
// when that lasts longer than Limits.HoldFor.
func (r *Root) renew(ctx context.Context, runID string) (time.Time, error) {
	giveUp := time.Now().Add(r.Limits.HoldFor)
	for {
		until, err := r.Guard.Recheck(ctx, authz.CanView, authz.Run(runID))
		switch {
		case err == nil:
			return until, nil
		case problem.Is(err, problem.NotFound):
			return time.Time{}, problem.New(problem.Forbidden, "the permission to view this run has ended").Because(err)
		case !problem.Is(err, problem.AuthorizationUnavailable), time.Now().After(giveUp):
			return time.Time{}, fmt.Errorf("failed to renew the permission on run %s: %w", runID, err)
		}
		pause := time.NewTimer(recheckPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return time.Time{}, ctx.Err()
		case <-pause.C:
		}
	}
}
