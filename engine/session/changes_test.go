package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/session"
)

// shelf is a store of bindings as far as Changes reads it.
type shelf struct {
	mu   sync.Mutex
	docs map[string]session.Binding
	fail error
}

func newShelf() *shelf { return &shelf{docs: map[string]session.Binding{}} }

// put stores the next revision of a conversation and returns it.
func (s *shelf) put(subject, id string) session.Binding {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.docs[id]
	b.ID, b.Rev, b.Key = id, b.Rev+1, session.Key{Environment: "test", Subject: subject}
	s.docs[id] = b
	return b
}

func (s *shelf) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *shelf) SessionsOf(_ context.Context, environment, subject, _, before string, limit int) (page []session.Binding, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	for _, b := range s.docs {
		if b.Key.Environment == environment && b.Key.Subject == subject && (before == "" || b.ID < before) {
			page = append(page, b)
		}
	}
	slices.SortFunc(page, func(a, b session.Binding) int { return strings.Compare(b.ID, a.ID) })
	return page[:min(limit, len(page))], nil
}

const poll = 15 * time.Second

func watchChanges(t *testing.T, s *shelf, most int) *session.Changes {
	t.Helper()
	c := session.NewChanges(session.ChangesOptions{Sessions: s, Poll: poll, MaxSessions: most})
	t.Cleanup(c.Close)
	return c
}

func subscribe(t *testing.T, c *session.Changes, subject string) *session.Subscription {
	t.Helper()
	sub, err := c.Subscribe(context.Background(), "test", subject)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sub.Close)
	return sub
}

// next waits for changes.
func next(ctx context.Context, sub *session.Subscription, limit int) ([]string, error) {
	for {
		changed := make(chan struct{}, 1)
		ids, err := sub.Poll(ctx, limit)
		if len(ids) > 0 || err != nil {
			return ids, err
		}
		sub.Notify(func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// told is what a reader gets without waiting longer than d, in pieces of limit.
func told(t *testing.T, sub *session.Subscription, d time.Duration, limit int) (ids []string) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		got, err := next(ctx, sub, limit)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return ids
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 || len(got) > limit {
			t.Fatalf("got %d ids, limit %d", len(got), limit)
		}
		ids = append(ids, got...)
	}
}

func TestChangesAreToldOnceAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		s.put("alice", "a")
		c := watchChanges(t, s, 100)
		sub, other := subscribe(t, c, "alice"), subscribe(t, c, "bob")
		if ids := told(t, sub, 2*poll, 10); len(ids) > 0 {
			t.Errorf("told of %v, which did not change", ids)
		}
		for _, id := range []string{"a", "b", "a", "c", "b", "b"} {
			c.Publish(s.put("alice", id))
		}
		stale := s.docs["a"]
		stale.Rev = 1
		c.Publish(stale)
		if ids := told(t, sub, time.Millisecond, 2); fmt.Sprint(ids) != "[a c b]" {
			t.Errorf("told of %v", ids)
		}
		if ids := told(t, other, 2*poll, 10); len(ids) > 0 {
			t.Errorf("bob is told of %v", ids)
		}
	})
}

// What nobody hinted at is found by the poll, once.
func TestLostHintsAreMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		for i := range 450 { // several pages
			s.put("alice", fmt.Sprintf("s%03d", i))
		}
		c := watchChanges(t, s, 1000)
		sub := subscribe(t, c, "alice")
		for _, id := range []string{"s000", "s449", "new"} {
			s.put("alice", id)
		}
		ids := told(t, sub, 2*poll, 10)
		slices.Sort(ids)
		if fmt.Sprint(ids) != "[new s000 s449]" {
			t.Errorf("told of %v", ids)
		}
		s.refuse(errors.New("disk"))
		late := s.put("alice", "s001")
		if ids := told(t, sub, 2*poll, 10); len(ids) > 0 {
			t.Errorf("told of %v", ids)
		}
		c.Publish(late)
		s.refuse(nil)
		if ids := told(t, sub, 2*poll, 10); fmt.Sprint(ids) != "[s001]" {
			t.Errorf("told of %v", ids)
		}
	})
}

// Who is known to have missed hints does not wait for the poll.
func TestLostLooksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		c := watchChanges(t, s, 1000)
		sub := subscribe(t, c, "alice")
		woken := 0
		defer c.Watch("watched", func() { woken++ })()
		s.put("alice", "s1")
		c.Lost()
		if ids := told(t, sub, poll/2, 10); fmt.Sprint(ids) != "[s1]" || woken != 1 {
			t.Errorf("told of %v, woken %d times", ids, woken)
		}
	})
}

// A reader behind more changes than are remembered gets everything to read again, and then what changes.
func TestAReaderThatIsFarBehindReadsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		c := watchChanges(t, s, 4)
		slow, fast := subscribe(t, c, "alice"), subscribe(t, c, "alice")
		for i := range 9 {
			c.Publish(s.put("alice", fmt.Sprintf("s%d", i)))
			if ids := told(t, fast, time.Millisecond, 3); fmt.Sprint(ids) != fmt.Sprintf("[s%d]", i) {
				t.Errorf("the fast reader is told of %v", ids)
			}
		}
		ids := told(t, slow, time.Millisecond, 2)
		slices.Sort(ids)
		if fmt.Sprint(ids) != "[s0 s1 s2 s3 s4 s5 s6 s7 s8]" {
			t.Errorf("the slow reader is told of %v", ids)
		}
		c.Publish(s.put("alice", "s3"))
		if ids := told(t, slow, time.Millisecond, 2); fmt.Sprint(ids) != "[s3]" {
			t.Errorf("then of %v", ids)
		}
		if ids := told(t, slow, 4*poll, 2); len(ids) > 0 {
			t.Errorf("and of %v, which did not change", ids)
		}
	})
}

func TestASubscriptionNeedsAFirstReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		s.refuse(errors.New("disk"))
		c := watchChanges(t, s, 100)
		if _, err := c.Subscribe(context.Background(), "test", "alice"); err == nil || !strings.Contains(err.Error(), "disk") {
			t.Errorf("subscribed: %v", err)
		}
		s.refuse(nil)
		sub := subscribe(t, c, "alice")
		c.Publish(s.put("alice", "a"))
		if ids := told(t, sub, time.Millisecond, 1); fmt.Sprint(ids) != "[a]" {
			t.Errorf("told of %v", ids)
		}
	})
}

func TestCloseEndsReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := session.NewChanges(session.ChangesOptions{Sessions: newShelf()})
		sub := subscribe(t, c, "alice")
		ended := make(chan error)
		go func() {
			_, err := next(context.Background(), sub, 1)
			ended <- err
		}()
		synctest.Wait()
		c.Close()
		if err := <-ended; !errors.Is(err, session.ErrChangesClosed) {
			t.Errorf("ended with %v", err)
		}
		if _, err := c.Subscribe(context.Background(), "test", "alice"); !errors.Is(err, session.ErrChangesClosed) {
			t.Errorf("subscribed: %v", err)
		}
		sub.Close()
		sub.Close()
		if _, err := next(context.Background(), sub, 1); !errors.Is(err, session.ErrChangesClosed) {
			t.Errorf("read on: %v", err)
		}
	})
}

func TestWatchWakesOfOneSession(t *testing.T) {
	c := session.NewChanges(session.ChangesOptions{Sessions: newShelf()})
	defer c.Close()
	woken := map[string]int{}
	release := c.Watch("a", func() { woken["a"]++ })
	second := c.Watch("a", func() { woken["a too"]++ })
	defer c.Watch("b", func() { woken["b"]++ })()
	for range 3 {
		c.Publish(session.Binding{ID: "a"})
	}
	release()
	release()
	c.Publish(session.Binding{ID: "a"})
	second()
	c.Publish(session.Binding{ID: "a"})
	if len(woken) != 2 || woken["a"] != 3 || woken["a too"] != 4 {
		t.Errorf("woken %v", woken)
	}
}

// Whatever hints are lost, and however slowly readers read: in the end everybody was told of each conversation after its
// last change since they subscribed.
func TestEveryChangeIsToldInTheEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf()
			c := session.NewChanges(session.ChangesOptions{Sessions: s, Poll: poll, MaxSessions: rapid.IntRange(6, 12).Draw(rt, "most")})
			defer c.Close()
			type reader struct {
				sub  *session.Subscription
				owed map[string]bool // changed since it was told
			}
			var readers []*reader
			take := func(r *reader, d time.Duration) {
				ids := told(t, r.sub, d, 2)
				for _, id := range ids {
					delete(r.owed, id)
				}
			}
			for range rapid.IntRange(5, 60).Draw(rt, "steps") {
				switch kind := rapid.SampledFrom([]string{"hinted", "hinted", "lost", "subscribe", "read", "pause"}).Draw(rt, "kind"); kind {
				case "hinted", "lost":
					b := s.put("alice", fmt.Sprintf("s%d", rapid.IntRange(0, 5).Draw(rt, "session")))
					for _, r := range readers {
						r.owed[b.ID] = true
					}
					if kind == "hinted" {
						c.Publish(b)
					}
				case "subscribe":
					sub, err := c.Subscribe(context.Background(), "test", "alice")
					if err != nil {
						t.Fatal(err)
					}
					defer sub.Close()
					readers = append(readers, &reader{sub: sub, owed: map[string]bool{}})
				case "read":
					if len(readers) > 0 {
						take(readers[rapid.IntRange(0, len(readers)-1).Draw(rt, "reader")], time.Millisecond)
					}
				case "pause":
					time.Sleep(poll) // the bubble's clock
				}
			}
			for i, r := range readers {
				if take(r, 2*poll); len(r.owed) > 0 {
					t.Errorf("reader %d was not told of %v", i, r.owed)
				}
			}
		})
	})
}
