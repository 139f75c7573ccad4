package run

import (
	"cmp"
	"context"
	"sync"
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
	Watch(sessionID string, f func()) (release func())
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

// SessionFeed lets any number of readers follow the runs of sessions, across epochs. A reader holds a cursor and no queue,
// and has no goroutine.
type SessionFeed struct {
	o SessionFeedOptions

	mu    sync.Mutex
	rooms map[string]*room // by session; of those for whose next run somebody waits
}

// NewSessionFeed makes a feed.
func NewSessionFeed(o SessionFeedOptions) *SessionFeed {
	o.Poll = cmp.Or(max(o.Poll, 0), 2*time.Second)
	o.HoleWait = cmp.Or(max(o.HoleWait, 0), 5*time.Second)
	o.HoleAge = cmp.Or(max(o.HoleAge, 0), 30*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &SessionFeed{o: o, rooms: map[string]*room{}}
}

// Subscribe makes a reader of what follows the cursor. It holds nothing until it is polled; see SessionReader.Close.
func (f *SessionFeed) Subscribe(sessionID string, after SessionCursor) *SessionReader {
	r := &SessionReader{feed: f, session: sessionID, next: max(after.Ord, 1), fresh: after == SessionCursor{}}
	if after.Ord > 0 {
		r.sequence = max(after.Sequence, 0)
	}
	return r
}
