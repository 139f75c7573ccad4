package ws

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/resolvers"
)

// renewAhead is how long before a permission ends a feed asks for it anew, at most: so that deliveries need not wait for
// the answer, a permission that was taken away ends the feed in time, and not all feeds ask at once.
const renewAhead = time.Second

// renewalOf is when to ask for a permission again that lasts until then.
func renewalOf(until time.Time) time.Time {
	ahead := min(renewAhead, time.Until(until)/5)
	if ahead <= 0 {
		return until
	}
	return until.Add(-ahead/2 - rand.N(ahead/2+1)) //nolint:gosec // spreads load
}

// follow makes the operation a feed, which belongs to the writer. What it took to open it is let go.
func (op *operation) follow(feed resolvers.Feed) {
	feed.Notify(op.notified)
	until := feed.Until()
	k := op.k
	k.mu.Lock()
	defer k.mu.Unlock()
	op.cancel()
	op.cancel = nil
	op.feed = feed
	op.until, op.renewAt = until, renewalOf(until)
	k.arm(op.renewAt)
	if _, op.state = feed.(resolvers.StateFeed); !op.state {
		op.forget()
	}
	op.endless()
	op.want()
}

// notified is called by the feed when there may be something.
func (op *operation) notified() {
	op.k.mu.Lock()
	defer op.k.mu.Unlock()
	op.want()
}

// want puts a feed in line for the writer. mu is held.
func (op *operation) want() {
	if op.feed == nil || op.queued || op.gone {
		return
	}
	op.queued = true
	if len(op.k.ready) == 0 {
		op.k.ready = op.k.lone[:0]
	}
	op.k.ready = append(op.k.ready, op)
	op.k.rouse()
}

// again is called by the writer for a state that was not written in its time: the feed shows it anew.
func (op *operation) again() {
	if f, ok := op.feed.(resolvers.StateFeed); ok {
		f.Again()
	}
	op.k.mu.Lock()
	defer op.k.mu.Unlock()
	op.want()
}

// starve is called by the writer for a feed that had its turn without a permission: it has another with the answer.
func (op *operation) starve() {
	op.k.mu.Lock()
	defer op.k.mu.Unlock()
	op.starved = true
	op.askAgain()
}

// askAgain begins to renew the feed's permission, beside the writer. mu is held.
func (op *operation) askAgain() {
	if op.renewing || op.over.Load() {
		return
	}
	op.renewing = true
	op.k.s.renew.Go(op.k.who, op.renew)
}

// renew asks for the permission. A feed that has waited in line for longer than it may be held gets no answer.
func (op *operation) renew() {
	k := op.k
	before := op.feed.Until()
	var failure *gqlerror.Error
	if late := time.Since(before); late > k.s.o.Limits.HoldFor {
		p := problem.New(problem.AuthorizationUnavailable, "authorization is unavailable, try again").With("retryable", true)
		failure = k.s.o.API.Present(k.ctx, p)
	} else {
		failure = op.ask()
	}
	after := op.feed.Until()
	k.mu.Lock()
	defer k.mu.Unlock()
	op.renewing, op.until = false, after
	switch {
	case failure != nil:
		op.failure = failure
	case after.After(before):
		op.renewAt = renewalOf(after)
	default: // an answer that was not new
		op.renewAt = after
	}
	k.arm(op.renewAt)
	if op.starved || op.failure != nil || op.over.Load() {
		op.starved = false
		op.want()
	}
}

// ask asks for the permission; the feed bounds how long that takes.
func (op *operation) ask() (failure *gqlerror.Error) {
	ctx, api := op.k.ctx, op.k.s.o.API
	defer func() {
		if p := recover(); p != nil {
			failure = api.Present(ctx, api.Recover(ctx, p))
		}
	}()
	if err := op.feed.Renew(ctx); err != nil && ctx.Err() == nil {
		return presented(ctx, api, err)[0]
	}
	return nil
}

// poll asks a feed for its next delivery. last: it was the last, and says why.
func (op *operation) poll(ctx context.Context) (e entry, ok bool) {
	api := op.k.s.o.API
	defer func() {
		if p := recover(); p != nil {
			e, ok = op.failed(api.Present(ctx, api.Recover(ctx, p))), true
		}
	}()
	item, ok, err := op.feed.Poll(ctx)
	switch {
	case err == nil && ok:
		return entry{op: op, payload: item.Payload, waiting: item.Waiting, until: item.Until, state: !item.Until.IsZero()}, true
	case err == nil:
		return entry{}, false
	case errors.Is(err, io.EOF):
		return entry{op: op, last: true}, true
	case ctx.Err() != nil:
		return entry{}, false // the socket ends
	}
	return op.failed(presented(ctx, api, err)[0]), true
}
