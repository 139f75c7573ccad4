package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/session"
)

// SessionCursor is a place in the runs of a session: everything up to event Sequence of the run with order Ord has been
// delivered, and everything of the runs before. The zero value is the beginning.
type SessionCursor struct{ Ord, Sequence int64 }

// SessionDelivery is consecutive events of one run of a session. Events may be shared with other readers: they are
// read-only.
type SessionDelivery struct {
	RunID    string
	Ord      int64 // the run's place in the session
	Epoch    int64 // the run's
	Events   []event.Event
	Through  SessionCursor // of the last of them
	CaughtUp bool          // nothing more was there when they were read
}

// SessionRuns lists runs in their order; see Store.
type SessionRuns interface {
	SessionRuns(ctx context.Context, sessionID string, epoch, afterOrd int64, limit int) ([]Run, error)
}

// SessionBindings reads bindings; see session.Store.
type SessionBindings interface {
	Session(ctx context.Context, id string) (session.Binding, error)
}

// SessionWatcher hints that a session has changed; see session.Changes.
type SessionWatcher interface {
	Watch(sessionID string) (changed <-chan struct{}, release func())
}

// SessionFeedOptions configure a SessionFeed. Runs, Sessions, Hub and Changes are required; zero fields mean the
// defaults.
type SessionFeedOptions struct {
	Runs     SessionRuns
	Sessions SessionBindings
	Hub      *event.Hub
	Changes  SessionWatcher
	Poll     time.Duration // how often a session is read while nothing of it is at work, whatever hints came: 2 s
	HoleWait time.Duration // how long a run is waited for that has an order, while a later one is there: 5 s
	HoleAge  time.Duration // how long ago that later one began, for the run not to be waited for at all: 30 s
	Now      func() time.Time
}

// SessionFeed lets any number of readers follow the runs of sessions, across epochs. A reader holds a cursor and no
// queue.
type SessionFeed struct{ o SessionFeedOptions }

// NewSessionFeed makes a feed.
func NewSessionFeed(o SessionFeedOptions) *SessionFeed {
	o.Poll = cmp.Or(max(o.Poll, 0), 2*time.Second)
	o.HoleWait = cmp.Or(max(o.HoleWait, 0), 5*time.Second)
	o.HoleAge = cmp.Or(max(o.HoleAge, 0), 30*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &SessionFeed{o: o}
}

// Subscribe makes a reader of what follows the cursor. It holds nothing until Next is called, so it needs no closing.
func (f *SessionFeed) Subscribe(sessionID string, after SessionCursor) *SessionReader {
	r := &SessionReader{feed: f, session: sessionID, next: max(after.Ord, 1)}
	if after.Ord > 0 {
		r.sequence = max(after.Sequence, 0)
	}
	return r
}

// SessionReader is one reader of one session. It is used by one goroutine at a time.
type SessionReader struct {
	feed    *SessionFeed
	session string

	next     int64 // order of the run to read, or of the first that follows
	sequence int64 // last event delivered of the run with that order
	run      Run
	events   *event.Subscription // of run; nil while the next one is to be found
}

// Next waits for events behind the cursor and returns at most limit of them, of one run, without gap or repeat, strictly
// in the order of the runs. Its errors are those of event.Subscription but io.EOF, session.ErrNotFound, the context's
// and the stores'; it may be called again after the last two.
func (r *SessionReader) Next(ctx context.Context, limit int) (SessionDelivery, error) {
	for {
		if r.events == nil {
			if err := r.find(ctx); err != nil {
				return SessionDelivery{}, err
			}
		}
		d, err := r.events.Next(ctx, limit)
		if errors.Is(err, io.EOF) {
			r.next, r.sequence, r.events = r.run.Ord+1, 0, nil
			continue
		}
		if err != nil {
			return SessionDelivery{}, err
		}
		r.sequence = d.Through
		out := SessionDelivery{
			RunID: r.run.ID, Ord: r.run.Ord, Epoch: r.run.Epoch, Events: d.Events,
			Through: SessionCursor{Ord: r.run.Ord, Sequence: d.Through}, CaughtUp: d.CaughtUp,
		}
		if out.CaughtUp && d.Events[len(d.Events)-1].Type().Terminal() {
			// A read that fails here must not lose the events: then the reader is not caught up, which the next call mends.
			later, err := r.from(ctx, r.run.Ord+1)
			out.CaughtUp = err == nil && later == nil
		}
		return out, nil
	}
}

// from is the first run with that order or a later one; nil where there is none.
func (r *SessionReader) from(ctx context.Context, ord int64) (*Run, error) {
	found, err := r.feed.o.Runs.SessionRuns(ctx, r.session, 0, ord-1, 1)
	if err != nil {
		return nil, fmt.Errorf("failed to list runs of session %s: %w", r.session, err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return &found[0], nil
}

// soon is the first pause before another look for a run that has been given an order, but whose document does not say
// so yet.
const soon = 5 * time.Millisecond

// find waits for the run that is next. An order is given in the binding first, and then written into the run's
// document; one that was given to a run that was refused all the same stays a hole. So a later run is not shown before
// it is clear that the one between will not come: its order is not the active one's, and it has been waited for.
func (r *SessionReader) find(ctx context.Context) error {
	changed, release := r.feed.o.Changes.Watch(r.session) // register, then read, then wait
	defer release()
	var missing time.Time // since when a later run is there
	pause := soon
	for {
		b, err := r.feed.o.Sessions.Session(ctx, r.session)
		if err != nil {
			return fmt.Errorf("failed to read session %s: %w", r.session, err)
		}
		found, err := r.from(ctx, r.next)
		if err != nil {
			return err
		}
		now := r.feed.o.Now()
		switch {
		case found == nil:
			missing = time.Time{}
		case found.Ord == r.next, r.hole(b, *found, missing, now):
			r.follow(*found)
			return nil
		case missing.IsZero():
			missing = now
		}
		wait := r.feed.o.Poll
		if b.NextOrd > r.next { // its order is given: it comes soon, or is a hole
			wait, pause = pause, min(2*pause, wait)
		} else {
			pause = soon
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
			pause = soon
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		timer.Stop()
	}
}

// hole says whether nothing will come between the reader's place and the later run found.
func (r *SessionReader) hole(b session.Binding, found Run, missing, now time.Time) bool {
	if b.Active != nil && b.Active.Ord >= r.next && b.Active.Ord < found.Ord {
		return false
	}
	old := found.StartedAt != nil && now.Sub(*found.StartedAt) > r.feed.o.HoleAge
	return old || !missing.IsZero() && now.Sub(missing) >= r.feed.o.HoleWait
}

// follow begins to read the run.
func (r *SessionReader) follow(found Run) {
	if found.Ord != r.next {
		r.next, r.sequence = found.Ord, 0
	}
	r.run, r.events = found, r.feed.o.Hub.Subscribe(found.ID, r.sequence)
}
