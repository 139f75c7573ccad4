package run

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/session"
)

// soon is the first pause before another look for a run that has been given an order, but whose document does not say
// so yet, and how long a look is shared.
const soon = 5 * time.Millisecond

// room is where those wait for the next run of a session who have everything of the runs before.
type room struct {
	session string
	begun   time.Time
	release func()
	looking chan struct{} // held by the reader that looks; one place

	mu      sync.Mutex
	readers map[*SessionReader]struct{}
	changes int64 // of the session, that were told
	last    *glance
}

// glance is what the store said: the binding, and the first run with the order next or a later one, if there is any.
type glance struct {
	next    int64
	at      time.Time
	changes int64
	binding session.Binding
	found   *Run
}

// enter puts the reader into the room of its session: what changes from now on wakes it.
func (r *SessionReader) enter() {
	if r.room != nil {
		return
	}
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.rooms[r.session]
	if m == nil {
		m = &room{session: r.session, begun: time.Now(), looking: make(chan struct{}, 1), readers: map[*SessionReader]struct{}{}}
		m.release = f.o.Changes.Watch(r.session, m.hint)
		f.rooms[r.session] = m
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readers[r] = struct{}{}
	r.room = m
}

// leave takes it out.
func (r *SessionReader) leave() {
	if r.timer != nil {
		r.timer.Stop()
	}
	m := r.room
	if m == nil {
		return
	}
	r.room = nil
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	m.mu.Lock()
	delete(m.readers, r)
	empty := len(m.readers) == 0
	m.mu.Unlock()
	if empty {
		delete(r.feed.rooms, m.session)
		m.release()
	}
}

// hint says that the session has changed.
func (m *room) hint() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	for r := range m.readers {
		r.hinted.Store(true)
		r.wake()
	}
}

// look reads the store, or shares what another reader has just read.
func (m *room) look(ctx context.Context, f *SessionFeed, next int64) (*glance, error) {
	select {
	case m.looking <- struct{}{}:
		defer func() { <-m.looking }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	m.mu.Lock()
	last, changes := m.last, m.changes
	m.mu.Unlock()
	now := time.Now()
	if last != nil && last.next == next && last.changes == changes && now.Sub(last.at) < soon {
		return last, nil
	}
	b, err := f.o.Sessions.Session(ctx, m.session)
	if err != nil {
		return nil, fmt.Errorf("failed to read session %s: %w", m.session, err)
	}
	found, err := f.o.Runs.SessionRuns(ctx, m.session, 0, next-1, 1)
	if err != nil {
		return nil, fmt.Errorf("failed to list runs of session %s: %w", m.session, err)
	}
	g := &glance{next: next, at: now, changes: changes, binding: b}
	if len(found) > 0 {
		g.found = &found[0]
	}
	m.mu.Lock()
	m.last = g
	m.mu.Unlock()
	return g, nil
}

// untilPoll is the time to the room's next poll, which is the same for all who wait, so that they share the look.
func (m *room) untilPoll(poll time.Duration) time.Duration { return poll - time.Since(m.begun)%poll }

// hole says whether nothing will come between the reader's place and the later run found.
func (r *SessionReader) hole(g *glance, now time.Time) bool {
	if a := g.binding.Active; a != nil && a.Ord >= r.next && a.Ord < g.found.Ord {
		return false
	}
	old := g.found.StartedAt != nil && now.Sub(*g.found.StartedAt) > r.feed.o.HoleAge
	return old || !r.missing.IsZero() && now.Sub(r.missing) >= r.feed.o.HoleWait
}
