package run

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
)

// SessionReader is one reader of one session. It is used by one goroutine at a time; only Notify's function is called from
// others.
type SessionReader struct {
	feed    *SessionFeed
	session string

	next     int64 // order of the run to read, or of the first that follows
	sequence int64 // last event delivered of the run with that order
	ord      int64 // of the run that is read
	epoch    int64
	events   *event.Subscription // of run; nil while the next one is to be found
	fresh    bool                // it began without a cursor, and nothing has been delivered yet

	// While it waits for the next run.
	room    *room
	timer   *time.Timer
	pause   time.Duration
	missing time.Time // since when a later run is there than the one that is next
	hinted  atomic.Bool

	bell event.Bell
}

// SessionSpan is a SessionDelivery that is not yet decoded.
type SessionSpan struct {
	event.Span // CaughtUp is of the session

	Ord, Epoch int64
}

// Cursor is the place behind the span.
func (s SessionSpan) Cursor() SessionCursor { return SessionCursor{Ord: s.Ord, Sequence: s.Through} }

// Next waits for events behind the cursor and returns at most limit of them, of one run, without gap or repeat, strictly
// in the order of the runs. A reader that began without a cursor steps over what has expired before its first event. Its
// errors are those of event.Subscription but io.EOF, session.ErrNotFound, the context's
// and the stores'; it may be called again after the last two. Between two calls the reader holds nothing. It puts itself
// into the place of Notify's function.
func (r *SessionReader) Next(ctx context.Context, limit int) (SessionDelivery, error) {
	defer r.Close()
	woken := make(chan struct{}, 1)
	for {
		s, ok, err := r.PollSpan(ctx, limit)
		if err != nil {
			return SessionDelivery{}, err
		}
		if ok {
			return s.deliver()
		}
		r.Notify(func() {
			select {
			case woken <- struct{}{}:
			default:
			}
		})
		select {
		case <-woken:
		case <-ctx.Done():
			return SessionDelivery{}, context.Cause(ctx)
		}
	}
}

func (s SessionSpan) deliver() (SessionDelivery, error) {
	events, err := s.Events()
	if err != nil {
		return SessionDelivery{}, err
	}
	return SessionDelivery{RunID: s.RunID, Ord: s.Ord, Epoch: s.Epoch, Events: events, Through: s.Cursor(), CaughtUp: s.CaughtUp}, nil
}

// PollSpan returns what Next would, without waiting for it and without decoding it; it may read the stores. It is false
// where there is nothing yet: then the reader is notified, until the next PollSpan or Close, and so it is behind a span that
// says Waiting.
func (r *SessionReader) PollSpan(ctx context.Context, limit int) (SessionSpan, bool, error) {
	r.bell.Quiet()
	for {
		if r.events == nil {
			if found, err := r.find(ctx); !found || err != nil {
				return SessionSpan{}, false, err
			}
		}
		span, ok, err := r.events.PollSpan(ctx, limit)
		if errors.Is(err, io.EOF) {
			r.pass()
			continue
		}
		var gone *event.ExpiredError
		if r.fresh && errors.As(err, &gone) { // who has nothing gets what is kept
			r.events.Close()
			r.sequence = gone.Through
			r.events = r.feed.o.Hub.Subscribe(gone.RunID, gone.Through)
			r.events.Notify(r.wake)
			continue
		}
		if (errors.Is(err, event.ErrIntegrity) || errors.Is(err, event.ErrCorrupt)) && r.givenUp(ctx) {
			r.pass() // nobody will ever read on there
			continue
		}
		if !ok || err != nil {
			return SessionSpan{}, false, err
		}
		r.sequence, r.fresh = span.Through, false
		out := SessionSpan{Span: span, Ord: r.ord, Epoch: r.epoch}
		if span.Terminal {
			r.pass()
			if span.CaughtUp {
				// A look that fails here must not lose the events: then the reader is not caught up, which the next one mends.
				r.enter()
				g, err := r.room.look(ctx, r.feed, r.next)
				out.CaughtUp = err == nil && g.found == nil
			}
		}
		return out, true, nil
	}
}

// pass goes on behind the run, which has ended.
func (r *SessionReader) pass() {
	r.events.Close()
	r.next, r.sequence, r.events = r.ord+1, 0, nil
	r.pause, r.missing = soon, time.Time{}
}

// givenUp says whether the run that is read was given up, because its log is damaged.
func (r *SessionReader) givenUp(ctx context.Context) bool {
	found, err := r.feed.o.Runs.SessionRuns(ctx, r.session, 0, r.ord-1, 1)
	return err == nil && len(found) > 0 && found[0].Ord == r.ord && found[0].Halted != nil && found[0].Status.Ended()
}

// find looks for the run that is next, and says whether it is there. An order is given in the binding first, and then
// written into the run's document; one that was given to a run that was refused all the same stays a hole. So a later run
// is not shown before it is clear that the one between will not come: its order is not the active one's, and it has been
// waited for.
func (r *SessionReader) find(ctx context.Context) (bool, error) {
	r.enter() // register, then read, then wait
	if r.hinted.Swap(false) || r.pause == 0 {
		r.pause = soon
	}
	g, err := r.room.look(ctx, r.feed, r.next)
	if err != nil {
		return false, err
	}
	now := r.feed.o.Now()
	switch {
	case g.found == nil:
		r.missing = time.Time{}
	case g.found.Ord == r.next, r.hole(g, now):
		r.leave()
		r.follow(*g.found)
		return true, nil
	case r.missing.IsZero():
		r.missing = now
	}
	wait := r.room.untilPoll(r.feed.o.Poll)
	if g.binding.NextOrd > r.next { // its order is given: it comes soon, or is a hole
		wait, r.pause = min(r.pause, wait), min(2*r.pause, r.feed.o.Poll)
	} else {
		r.pause = soon
	}
	if r.timer == nil {
		r.timer = time.AfterFunc(wait, r.wake)
	} else {
		r.timer.Reset(wait)
	}
	return false, nil
}

// follow begins to read the run.
func (r *SessionReader) follow(found Run) {
	if found.Ord != r.next {
		r.next, r.sequence = found.Ord, 0
	}
	r.ord, r.epoch = found.Ord, found.Epoch
	r.events = r.feed.o.Hub.Subscribe(found.ID, r.sequence)
	r.events.Notify(r.wake)
}

// Notify sets f, which is called, from any goroutine, when a PollSpan that found nothing, or whose span says Waiting, may
// find something now; it must not block, nor call the reader. It is level-triggered: where that has happened since the PollSpan, f is called at once.
func (r *SessionReader) Notify(f func()) {
	r.bell.Notify(f)
}

func (r *SessionReader) wake() { r.bell.Ring() }

// Close ends the wait that a PollSpan has begun, and drops Notify's function, which may still be in a call. The reader may
// be polled again.
func (r *SessionReader) Close() {
	r.leave()
	if r.events != nil {
		r.events.Close()
		r.events.Notify(r.wake) // for the next poll
	}
	r.bell.Take()
}
