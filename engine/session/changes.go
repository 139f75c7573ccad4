package session

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// ErrChangesClosed: the Changes was closed; another replica may serve the rest.
var ErrChangesClosed = errors.New("session changes: closed")

// changesPage is how many bindings one read of a subject's conversations takes.
const changesPage = 200

// Lister reads the conversations of a subject; see Store.
type Lister interface {
	SessionsOf(ctx context.Context, environment, subject, agentID, before string, limit int) ([]Binding, error)
}

// ChangesOptions configure a Changes. Sessions is required; zero fields mean the defaults.
type ChangesOptions struct {
	Sessions Lister
	Poll     time.Duration // how often the conversations of a watched subject are read, whatever hints came: 15 s
	// MaxSessions bounds what is remembered of one watched subject's conversations: 10,000. Of a subject with more, the
	// poll looks at that many; a reader that falls behind more changes than that gets all of them to read again.
	MaxSessions int
	Logger      *slog.Logger
}

// Changes tells readers which conversations have changed. It hands out ids only: what a conversation is, the store
// knows. A reader holds a cursor and no queue; changes of one conversation that it has not taken are one. Hints may be
// lost or late: each watched subject is also polled, and who watches one conversation has to poll it.
type Changes struct {
	o     ChangesOptions
	life  context.Context
	close context.CancelFunc
	work  sync.WaitGroup // pollers

	mu      sync.Mutex
	watches map[string]map[*func()]struct{} // by session
	owners  map[owner]*roll
}

// owner is whom a conversation belongs to.
type owner struct{ environment, subject string }

// roll is what is known of a watched subject's conversations.
type roll struct {
	owner   owner
	ready   chan struct{} // closed when the first reading has ended
	failed  error         // why it failed; set before ready is closed
	stop    context.CancelFunc
	readers map[*Subscription]struct{}

	revs    map[string]int64         // highest revision seen of each conversation, at most MaxSessions
	changes *list.List               // of change, by rising version; one for each conversation that has changed
	at      map[string]*list.Element // its element, by conversation
	version int64                    // of the last change
	lost    int64                    // version of the newest change that was forgotten
	again   chan struct{}            // the next poll is to be at once
}

type change struct {
	session string
	version int64
}

// NewChanges makes a Changes. Close ends its goroutines, one a watched subject.
func NewChanges(o ChangesOptions) *Changes {
	o.Poll = cmp.Or(max(o.Poll, 0), 15*time.Second)
	o.MaxSessions = cmp.Or(max(o.MaxSessions, 0), 10_000)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	life, cancel := context.WithCancel(context.Background())
	return &Changes{o: o, life: life, close: cancel, watches: map[string]map[*func()]struct{}{}, owners: map[owner]*roll{}}
}

// Close ends every subscription with ErrChangesClosed and waits for the goroutines.
func (c *Changes) Close() {
	c.mu.Lock() // no poller begins after this
	c.close()
	for _, r := range c.owners {
		r.tell()
	}
	c.mu.Unlock()
	c.work.Wait()
}

// Publish hints that the store holds this revision of the conversation. It never blocks, and keeps nothing of what
// nobody watches.
func (c *Changes) Publish(b Binding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for f := range c.watches[b.ID] {
		(*f)()
	}
	if r := c.owners[owner{b.Key.Environment, b.Key.Subject}]; r != nil {
		r.note(b, c.o.MaxSessions, true)
	}
}

// Lost says that hints were lost: whatever is watched is looked at anew, without waiting for the poll. It never blocks.
func (c *Changes) Lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, watching := range c.watches {
		for f := range watching {
			(*f)()
		}
	}
	for _, r := range c.owners {
		select {
		case r.again <- struct{}{}:
		default:
		}
	}
}

// Watching says whether anybody would learn of a change.
func (c *Changes) Watching() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watches) > 0 || len(c.owners) > 0
}

// Watch calls f after each change of the conversation that is published from now on. f must not block, nor call the
// Changes. Register, then read the conversation, then wait, and also poll. release ends it; a call may still be under way.
func (c *Changes) Watch(sessionID string, f func()) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches[sessionID] == nil {
		c.watches[sessionID] = map[*func()]struct{}{}
	}
	c.watches[sessionID][&f] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watches[sessionID], &f)
		if len(c.watches[sessionID]) == 0 {
			delete(c.watches, sessionID)
		}
	}
}

// note takes a revision in; report says that it counts as a change where it is news.
func (r *roll) note(b Binding, most int, report bool) {
	known, seen := r.revs[b.ID]
	if b.Rev <= known {
		return
	}
	if seen || len(r.revs) < most {
		r.revs[b.ID] = b.Rev
	}
	if !report {
		return
	}
	r.version++
	if e := r.at[b.ID]; e != nil {
		e.Value = change{b.ID, r.version}
		r.changes.MoveToBack(e)
	} else {
		r.at[b.ID] = r.changes.PushBack(change{b.ID, r.version})
	}
	for r.changes.Len() > most {
		oldest, _ := r.changes.Remove(r.changes.Front()).(change)
		delete(r.at, oldest.session)
		r.lost = oldest.version
	}
	r.tell()
}

// tell says to readers that there is something to poll. For holders of the lock.
func (r *roll) tell() {
	for s := range r.readers {
		if s.called != nil {
			s.called()
		}
	}
}

// Subscription is one reader of a subject's changes. It is used by one goroutine at a time.
type Subscription struct {
	c      *Changes
	roll   *roll
	cursor int64  // version of the last change taken
	called func() // of Notify

	reading bool // everything is given again, because changes were forgotten
	before  string
	resume  int64 // the cursor after that
}

// Subscribe makes a reader of what changes from now on. Close ends it.
func (c *Changes) Subscribe(ctx context.Context, environment, subject string) (*Subscription, error) {
	who := owner{environment, subject}
	c.mu.Lock()
	if c.life.Err() != nil {
		c.mu.Unlock()
		return nil, ErrChangesClosed
	}
	r := c.owners[who]
	if r == nil {
		life, stop := context.WithCancel(c.life)
		r = &roll{owner: who, ready: make(chan struct{}), stop: stop, readers: map[*Subscription]struct{}{}, revs: map[string]int64{}, changes: list.New(),
			at: map[string]*list.Element{}, again: make(chan struct{}, 1)}
		c.owners[who] = r
		c.work.Go(func() { c.follow(life, r) })
	}
	s := &Subscription{c: c, roll: r, cursor: r.version}
	r.readers[s] = struct{}{}
	c.mu.Unlock()
	select {
	case <-r.ready:
		if r.failed != nil {
			s.Close()
			return nil, r.failed
		}
		return s, nil
	case <-ctx.Done():
		s.Close()
		return nil, context.Cause(ctx)
	}
}

// Close ends the subscription. It may be called again.
func (s *Subscription) Close() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.roll == nil {
		return
	}
	if delete(s.roll.readers, s); len(s.roll.readers) == 0 {
		s.c.forget(s.roll)
	}
	s.roll = nil
}

// forget ends the watch of a subject. For holders of the lock.
func (c *Changes) forget(r *roll) {
	if c.owners[r.owner] == r {
		delete(c.owners, r.owner)
	}
	r.stop()
}

// Notify sets f, which is called when a Poll that found nothing may find something now, or the Changes was closed. f must
// not block, nor call the Changes. It is level-triggered: what came since that Poll calls f at once.
func (s *Subscription) Notify(f func()) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.called = f
	if s.roll == nil || s.c.life.Err() != nil || s.reading || s.cursor < s.roll.version {
		f()
	}
}

// Poll returns the ids of at most limit conversations that have changed since they were returned last; none where none
// has. Where changes were forgotten it returns all of the subject's. It does not wait for changes, but it may read the
// store. Its errors are ErrChangesClosed, the context's or the store's; after the latter it may be called again.
func (s *Subscription) Poll(ctx context.Context, limit int) ([]string, error) {
	s.c.mu.Lock()
	if s.roll == nil || s.c.life.Err() != nil {
		s.c.mu.Unlock()
		return nil, ErrChangesClosed
	}
	if !s.reading && s.cursor < s.roll.lost {
		s.reading, s.before, s.resume = true, "", s.roll.version
	}
	ids := s.take(limit)
	s.c.mu.Unlock()
	if !s.reading {
		return ids, nil
	}
	if ids, err := s.readOn(ctx, limit); len(ids) > 0 || err != nil {
		return ids, err
	}
	return s.Poll(ctx, limit) // what has changed since everything was given again
}

// take moves the cursor over at most limit changes. For holders of the lock.
func (s *Subscription) take(limit int) (ids []string) {
	if s.reading || s.cursor == s.roll.version {
		return nil
	}
	first := s.roll.changes.Back()
	for e := first; e != nil; e = e.Prev() {
		if v, _ := e.Value.(change); v.version <= s.cursor {
			break
		}
		first = e
	}
	for e := first; e != nil && len(ids) < limit; e = e.Next() {
		v, _ := e.Value.(change)
		ids, s.cursor = append(ids, v.session), v.version
	}
	return ids
}

// readOn gives the next of all conversations; none when that was the last.
func (s *Subscription) readOn(ctx context.Context, limit int) ([]string, error) {
	page, err := s.c.o.Sessions.SessionsOf(ctx, s.roll.owner.environment, s.roll.owner.subject, "", s.before, min(limit, changesPage))
	if err != nil {
		return nil, fmt.Errorf("failed to list sessions of %s: %w", s.roll.owner.subject, err)
	}
	if len(page) == 0 {
		s.reading, s.cursor = false, s.resume
		return nil, nil
	}
	ids := make([]string, len(page))
	for i, b := range page {
		ids[i] = b.ID
	}
	s.before = ids[len(ids)-1]
	return ids, nil
}

// follow reads what there is, and then again and again: every hint may be lost.
func (c *Changes) follow(ctx context.Context, r *roll) {
	err := c.read(ctx, r, false)
	if err != nil {
		r.failed = err
		if c.life.Err() != nil {
			r.failed = ErrChangesClosed
		}
		c.mu.Lock()
		c.forget(r) // the next subscriber tries again
		c.mu.Unlock()
	}
	close(r.ready)
	if err != nil {
		return
	}
	tick := time.NewTicker(c.o.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.again:
		}
		if err := c.read(ctx, r, true); err != nil && ctx.Err() == nil {
			c.o.Logger.Warn("poll of a watched subject's sessions failed", "subject", r.owner.subject, "error", err)
		}
	}
}

// read notes the subject's conversations, up to the bound.
func (c *Changes) read(ctx context.Context, r *roll, report bool) error {
	before := ""
	for n := 0; n < c.o.MaxSessions; n += changesPage {
		page, err := c.o.Sessions.SessionsOf(ctx, r.owner.environment, r.owner.subject, "", before, changesPage)
		if err != nil {
			return fmt.Errorf("failed to list sessions of %s: %w", r.owner.subject, err)
		}
		c.mu.Lock()
		for _, b := range page {
			// One for whose revision there was no room would be news at every poll.
			r.note(b, c.o.MaxSessions, report && (len(r.revs) < c.o.MaxSessions || r.revs[b.ID] != 0))
		}
		c.mu.Unlock()
		if len(page) < changesPage {
			return nil
		}
		before = page[len(page)-1].ID
	}
	return nil
}
