package event_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/event/eventtest"
)

// scene is a run with a writer, a log and a hub. Where the hub should miss a hint, hints is switched off.
type scene struct {
	log   *eventtest.Log
	hub   *event.Hub
	w     *event.Writer
	hints atomic.Bool
}

func newScene(t testing.TB, o event.HubOptions) *scene {
	t.Helper()
	s := &scene{log: eventtest.NewLog()}
	o.Log = s.log
	s.hub = event.NewHub(o)
	s.hints.Store(true)
	cfg := config(s.log, 1)
	cfg.Publish = func(c event.Chunk) {
		if s.hints.Load() {
			s.hub.Publish(c)
		}
	}
	w, err := event.OpenWriter(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.w = w
	return s
}

func (s *scene) say(t testing.TB, events ...event.Event) {
	t.Helper()
	if _, err := s.w.Append(t.Context(), batch(events...)); err != nil {
		t.Fatal(err)
	}
}

// reader follows a subscription to its end and keeps every sequence.
type reader struct {
	mu   sync.Mutex
	seqs []int64
	err  error
	done chan struct{}
}

func follow(ctx context.Context, sub *event.Subscription, max int) *reader {
	r := &reader{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for {
			d, err := sub.Next(ctx, max)
			r.mu.Lock()
			if err != nil {
				r.err = err
				r.mu.Unlock()
				return
			}
			for _, e := range d.Events {
				r.seqs = append(r.seqs, e.Sequence)
			}
			r.mu.Unlock()
		}
	}()
	return r
}

func (r *reader) seen() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]int64(nil), r.seqs...)
}

// consecutive fails unless seqs is from, from+1, ..., through.
func consecutive(t testing.TB, seqs []int64, from, through int64) {
	t.Helper()
	if int64(len(seqs)) != through-from+1 {
		t.Fatalf("%d events, want %d to %d: %v", len(seqs), from, through, seqs)
	}
	for i, s := range seqs {
		if s != from+int64(i) {
			t.Fatalf("event %d where %d should be", s, from+int64(i))
		}
	}
}

func TestHubFollowsARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{})
		defer s.hub.Close()
		early := follow(t.Context(), s.hub.Subscribe("run_1", 0), 100) // before the run has a log
		synctest.Wait()
		s.say(t, started, opened)
		synctest.Wait()
		consecutive(t, early.seen(), 1, 2)
		joins := follow(t.Context(), s.hub.Subscribe("run_1", 0), 1) // one at a time
		middle := follow(t.Context(), s.hub.Subscribe("run_1", 1), 100)
		beyond := follow(t.Context(), s.hub.Subscribe("run_1", 4), 100) // past the end of a live run: waits
		for range 3 {
			s.say(t, delta("x"))
			synctest.Wait()
		}
		consecutive(t, beyond.seen(), 5, 5)
		s.say(t, finished)
		for from, r := range map[int64]*reader{1: early, 2: middle, 5: beyond} {
			<-r.done
			consecutive(t, r.seen(), from, 7)
			if r.err != io.EOF {
				t.Errorf("reader ends with %v", r.err)
			}
		}
		<-joins.done
		consecutive(t, joins.seen(), 1, 7)
	})
}

func TestHubEndedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{})
		defer s.hub.Close()
		s.say(t, started, opened, delta("x"), finished)
		for _, after := range []int64{5, 6, 1000} {
			sub := s.hub.Subscribe("run_1", after)
			for range 2 {
				if _, err := sub.Next(t.Context(), 10); err != io.EOF {
					t.Errorf("after %d: %v", after, err)
				}
			}
		}
		for _, after := range []int64{-3, 0, 4} {
			sub := s.hub.Subscribe("run_1", after)
			d, err := sub.Next(t.Context(), 10)
			if err != nil || d.Through != 5 || !d.CaughtUp || sub.Cursor() != 5 || len(d.Events) != int(5-max(after, 0)) {
				t.Errorf("after %d: %+v, %v", after, d, err)
			}
			if _, err := sub.Next(t.Context(), 10); err != io.EOF {
				t.Errorf("after the terminal: %v", err)
			}
		}
		if _, err := s.hub.Subscribe("run_1", 0).Next(t.Context(), 0); err == nil {
			t.Error("max 0 was accepted")
		}
	})
}

func TestHubSaysWhenCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{})
		defer s.hub.Close()
		s.say(t, started, opened, delta("a"))
		s.say(t, delta("b"), delta("c"))
		sub := s.hub.Subscribe("run_1", 0)
		for _, want := range []struct {
			max, through int64
			caughtUp     bool
		}{{2, 2, false}, {2, 3, false}, {2, 5, true}} {
			d, err := sub.Next(t.Context(), int(want.max))
			if err != nil || d.Through != want.through || d.CaughtUp != want.caughtUp {
				t.Errorf("got through %d, caught up %v, %v; want %+v", d.Through, d.CaughtUp, err, want)
			}
		}
	})
}

// TestHubSlowReader: a reader that pauses costs the others nothing and itself only batching.
func TestHubSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{RingEvents: 64})
		defer s.hub.Close()
		s.say(t, started, opened)
		slow, fast := s.hub.Subscribe("run_1", 0), follow(t.Context(), s.hub.Subscribe("run_1", 0), 10)
		if _, err := slow.Next(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		for range 500 {
			s.say(t, delta("x"))
			synctest.Wait()
		}
		if got := len(fast.seen()); got != 502 {
			t.Errorf("the fast reader has %d", got)
		}
		time.Sleep(time.Minute) // the ring is long gone
		deliveries := 0
		for slow.Cursor() < 502 {
			from := slow.Cursor()
			d, err := slow.Next(t.Context(), 10_000)
			if err != nil || d.Events[0].Sequence != from+1 || int64(len(d.Events)) != d.Through-from || d.CaughtUp != (d.Through == 502) {
				t.Fatalf("%d events through %d, %v", len(d.Events), d.Through, err)
			}
			deliveries++
		}
		if deliveries > 9 {
			t.Errorf("it took %d deliveries", deliveries)
		}
		s.say(t, finished)
		<-fast.done
		consecutive(t, fast.seen(), 1, 504)
	})
}

func TestHubFreesUnwatchedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{Poll: time.Second})
		defer s.hub.Close()
		s.say(t, started, opened)
		if s.hub.Watched() != 0 {
			t.Error("a run is watched that nobody reads")
		}
		sub := s.hub.Subscribe("run_1", 0)
		if s.hub.Watched() != 0 {
			t.Error("a run is watched before it is read")
		}
		ctx, cancel := context.WithCancel(t.Context())
		r := follow(ctx, sub, 10)
		synctest.Wait()
		time.Sleep(time.Minute) // a waiting reader keeps its run watched
		if s.hub.Watched() != 1 {
			t.Error("a watched run was freed")
		}
		cancel()
		<-r.done
		if !errors.Is(r.err, context.Canceled) {
			t.Errorf("reader ends with %v", r.err)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if s.hub.Watched() != 0 {
			t.Error("an unwatched run was kept")
		}
		reads := s.log.Reads()
		s.say(t, delta("x"))
		time.Sleep(time.Hour)
		if s.log.Reads() != reads {
			t.Error("an unwatched run was polled")
		}
		// One that reads and pauses keeps it watched, too.
		for after := range int64(8) {
			if _, err := s.hub.Subscribe("run_1", after%2).Next(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(900 * time.Millisecond)
			if s.hub.Watched() != 1 {
				t.Fatal("a run was freed between two reads")
			}
		}
		// The same subscription goes on where it was.
		d, err := sub.Next(t.Context(), 10)
		if err != nil || d.Events[0].Sequence != 3 {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

func TestHubDecodesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{})
		defer s.hub.Close()
		s.say(t, started, opened)
		var first []event.Event
		results := make(chan event.Delivery)
		for range 5 {
			go func() {
				d, err := s.hub.Subscribe("run_1", 2).Next(t.Context(), 10)
				if err != nil {
					t.Error(err)
				}
				results <- d
			}()
		}
		synctest.Wait()
		reads := s.log.Reads()
		s.say(t, delta("x"), delta("y"))
		for range 5 {
			d := <-results
			if first == nil {
				first = d.Events
			}
			if len(d.Events) != 2 || &d.Events[0] != &first[0] {
				t.Error("a reader decoded for itself")
			}
		}
		if s.log.Reads() != reads {
			t.Error("readers of the live tail read the log")
		}
	})
}

func TestHubClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{})
		s.say(t, started, opened)
		sub := s.hub.Subscribe("run_1", 2)
		r := follow(t.Context(), sub, 10)
		synctest.Wait()
		s.hub.Close()
		<-r.done
		if !errors.Is(r.err, event.ErrHubClosed) {
			t.Errorf("reader ends with %v", r.err)
		}
		if _, err := sub.Next(t.Context(), 10); !errors.Is(err, event.ErrHubClosed) {
			t.Errorf("read after the end: %v", err)
		}
		s.hub.Publish(s.log.Chunks("run_1")[0])
		s.hub.Close()
	})
}

// TestHubTotalBytes: rings of many runs stay under the hub's bound, and readers then read the log.
func TestHubTotalBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventtest.NewLog()
		hub := event.NewHub(event.HubOptions{Log: log, TotalBytes: 1})
		defer hub.Close()
		cfg := config(log, 1)
		cfg.Publish = hub.Publish
		w := open(t, cfg)
		r := follow(t.Context(), hub.Subscribe("run_1", 0), 10)
		synctest.Wait()
		appended(t, w, batch(started, opened))
		synctest.Wait()
		reads := log.Reads()
		appended(t, w, batch(delta("x"), finished))
		<-r.done
		consecutive(t, r.seen(), 1, 5)
		if log.Reads() == reads {
			t.Error("the ring held what is above its bound")
		}
	})
}
