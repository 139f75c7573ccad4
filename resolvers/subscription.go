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

// lease is the permission that a stream delivers under, and the moment until which it may.
type lease struct {
	*Root
	permission string
	object     authz.Object
	until      time.Time
}

// grant asks for the permission for the first time.
func (r *Root) grant(ctx context.Context, permission string, object authz.Object) (*lease, error) {
	l := &lease{Root: r, permission: permission, object: object}
	return l, l.renew(ctx)
}

// renew asks whether the caller still has the permission. While there is no answer nothing is delivered; the stream ends
// when that lasts longer than Limits.HoldFor.
func (l *lease) renew(ctx context.Context) error {
	giveUp := time.Now().Add(l.Limits.HoldFor)
	for {
		until, err := l.Guard.Recheck(ctx, l.permission, l.object)
		switch {
		case err == nil:
			l.until = until
			return nil
		case problem.Is(err, problem.NotFound), problem.Is(err, problem.Forbidden):
			return problem.New(problem.Forbidden, "the permission to read this %s has ended", l.object.Type).Because(err)
		case !problem.Is(err, problem.AuthorizationUnavailable), time.Now().After(giveUp):
			return fmt.Errorf("failed to renew the permission on %s: %w", l.object, err)
		}
		pause := time.NewTimer(recheckPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-pause.C:
		}
	}
}

// stream runs one subscription: it sends what next gives, as long as the permission lasts, until next gives io.EOF.
// Any other end is an error of the stream. Whatever next holds is let go by done, which may be nil.
func stream[T any](ctx context.Context, l *lease, next func(context.Context) (T, error), done func()) <-chan T {
	out := make(chan T)
	go func() {
		defer close(out)
		defer func() {
			if p := recover(); p != nil {
				endStream(ctx, l.Present(ctx, l.Recover(ctx, p)))
			}
		}()
		if done != nil {
			defer done()
		}
		for {
			item, err := waitFor(ctx, l, next)
			if err == nil {
				err = send(ctx, l, out, item)
			}
			switch {
			case err == nil:
				continue
			case !errors.Is(err, io.EOF) && ctx.Err() == nil:
				endStream(ctx, l.Present(ctx, err))
			}
			return
		}
	}()
	return out
}

// idleAhead is how long before its permission runs out an idle stream asks for it anew, at most: so that one that was
// taken away ends the stream in time.
const idleAhead = 500 * time.Millisecond

// waitFor waits for the next item; while it waits it renews the permission whenever that is about to run out.
func waitFor[T any](ctx context.Context, l *lease, next func(context.Context) (T, error)) (T, error) {
	for {
		ahead := min(idleAhead, time.Until(l.until)/10)
		waiting, cancel := context.WithDeadline(ctx, l.until.Add(-max(ahead, 0)))
		item, err := next(waiting)
		idle := waiting.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !idle || !errors.Is(err, context.DeadlineExceeded) {
			return item, err
		}
		if err := l.renew(ctx); err != nil {
			return item, err
		}
	}
}

// send hands the item over while the permission lasts, however slow the subscriber is.
func send[T any](ctx context.Context, l *lease, out chan<- T, item T) error {
	for {
		if left := time.Until(l.until); left > 0 {
			timer := time.NewTimer(left)
			select {
			case out <- item:
				timer.Stop()
				return nil
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			case <-timer.C:
			}
		}
		if err := l.renew(ctx); err != nil {
			return err
		}
	}
}

// RunEvents follows a run's log. The channel is closed after the terminal event.
func (s subscriptions) RunEvents(ctx context.Context, runID string, after int64, logEpoch *string) (<-chan *model.RunEventBatch, error) {
	if err := checkSequence("after", after); err != nil {
		return nil, err
	}
	l, err := s.grant(ctx, authz.CanView, authz.Run(runID))
	if err != nil {
		return nil, err
	}
	if err := s.sameEpoch(ctx, runID, logEpoch); err != nil {
		return nil, err
	}
	sub := s.Hub.Subscribe(runID, after)
	return stream(ctx, l, func(ctx context.Context) (*model.RunEventBatch, error) {
		d, err := sub.Next(ctx, s.Limits.BatchEvents)
		if err != nil {
			return nil, err
		}
		events, err := eventModels(d.Events)
		return &model.RunEventBatch{Events: events, Through: d.Through, CaughtUp: d.CaughtUp}, err
	}, nil), nil
}

func eventModels(events []event.Event) (_ []model.RunEvent, err error) {
	ms := make([]model.RunEvent, len(events))
	for i, e := range events {
		if ms[i], err = eventModel(e); err != nil {
			return nil, err
		}
	}
	return ms, nil
}
