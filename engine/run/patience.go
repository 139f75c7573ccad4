package run

import (
	"context"
	"errors"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// cancelAsk bounds how long a worker may take to say that it has heard of a cancel, whatever call it is busy with, or hangs
// in. One that has heard gets Limits.CancelGrace to end its turn; one that has not is ended at once.
const cancelAsk = 2500 * time.Millisecond

// errDeaf ends a call to a worker that has not heard of the run's cancel in time.
var errDeaf = errors.New("the worker has not answered since the run was asked to end")

// patience is until when the worker is given, once the run was asked to end; false before that.
func (x *execution) patience() (until time.Time, ending bool) {
	switch _, ok := x.cancelled(); {
	case !ok:
		return time.Time{}, false
	case x.heard.IsZero():
		return x.asked.Add(min(cancelAsk, x.c.Limits.CancelGrace)), true
	}
	return x.heard.Add(x.c.Limits.CancelGrace), true
}

// overdue says whether the run was asked to end, and its worker has had its time.
func (x *execution) overdue() bool {
	until, ending := x.patience()
	return ending && !time.Now().Before(until)
}

// patient is ctx for calls to a worker: it ends, because of errDeaf, when the run is overdue. The function that is returned
// has to be called behind the call, by whoever drives the run: nothing looks at the run's patience any more then.
func (x *execution) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-x.stopping:
		case <-ctx.Done():
			return
		}
		until, _ := x.patience()
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		select {
		case <-timer.C:
			end(errDeaf)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		end(nil)
		<-over
	}
}

// endDeaf ends a run whose worker did not end it in time.
func (p *pump) endDeaf(ctx context.Context, cause error) error {
	return p.end(ctx, event.RunCancelled{Reason: p.x.reason, SideEffects: event.SideEffectsPossible}, cause)
}

// stopTurn asks the worker to end the turn. Where it has heard, and where it cannot be reached for a moment, it has its
// time; then the run is overdue.
func (f *follow) stopTurn(ctx context.Context) error {
	asking, done := f.x.patient(ctx)
	err := f.rt.Cancel(asking, f.x.run.ID, f.x.reason)
	done()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, harness.ErrStaleLease):
		return err
	case err == nil:
		f.x.heard = time.Now()
	default:
		f.x.log.Warn("cancel not delivered", "error", err)
	}
	until, _ := f.x.patience()
	f.grace = time.After(time.Until(until))
	return nil
}
