package event_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/event/eventtest"
)

// polled is a reader that polls when it is notified, and only then.
type polled struct {
	t     testing.TB
	sub   *event.Subscription
	limit int
	seqs  []int64
	sizes []int
	ended bool
	woken chan struct{}
}

func newPolled(t testing.TB, sub *event.Subscription, limit int) *polled {
	return &polled{t: t, sub: sub, limit: limit, woken: make(chan struct{}, 1)}
}

// drain polls until nothing is there.
func (p *polled) drain() {
	p.t.Helper()
	for !p.ended {
		d, ok, err := p.sub.Poll(context.Background(), p.limit)
		switch {
		case errors.Is(err, io.EOF):
			p.ended = true
		case err != nil:
			p.t.Fatal(err)
		case ok:
			p.sizes = append(p.sizes, len(d.Events))
			for _, e := range d.Events {
				p.seqs = append(p.seqs, e.Sequence)
			}
		}
		if !p.ended && (!ok || d.Waiting) {
			p.sub.Notify(func() {
				select {
				case p.woken <- struct{}{}:
				default:
				}
			})
			return
		}
	}
}

// notified reports whether the reader was woken since it was asked last.
func (p *polled) notified() bool {
	synctest.Wait()
	select {
	case <-p.woken:
		return true
	default:
		return false
	}
}

// hooked is a log whose answers are held up: what was read is what there was before the hook.
type hooked struct {
	*eventtest.Log
	mu     sync.Mutex
	onTail func()
	onRead func()
}

func (l *hooked) take(hook *func()) {
	l.mu.Lock()
	f := *hook
	*hook = nil
	l.mu.Unlock()
	if f != nil {
		f()
	}
}

func (l *hooked) Tail(ctx context.Context, runID string) (event.Chunk, error) {
	c, err := l.Log.Tail(ctx, runID)
	l.take(&l.onTail)
	return c, err
}

func (l *hooked) Read(ctx context.Context, runID string, after int64, most int) ([]event.Chunk, error) {
	cs, err := l.Log.Read(ctx, runID, after, most)
	l.take(&l.onRead)
	return cs, err
}

// TestLostWakeUp: whatever comes between a poll that found nothing and the wait is told at once.
func TestLostWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{Poll: time.Hour})
		defer s.hub.Close()
		s.say(t, started, opened)
		sub := s.hub.Subscribe("run_1", 2)
		if _, ok, err := sub.Poll(t.Context(), 10); ok || err != nil {
			t.Fatalf("%v, %v", ok, err)
		}
		s.say(t, delta("between"))
		calls := 0
		sub.Notify(func() { calls++ })
		if calls != 1 {
			t.Fatalf("%d calls", calls)
		}
		s.say(t, delta("not waited for"))
		if calls != 1 {
			t.Errorf("called %d times for one poll that found nothing", calls)
		}
		d, ok, err := sub.Poll(t.Context(), 10)
		if !ok || err != nil || d.Events[0].Sequence != 3 {
			t.Fatalf("%+v, %v, %v", d, ok, err)
		}
		sub.Close()
	})
}

// TestWaitingBehindADelivery: a delivery that is all there is arms the notification, as a poll that finds nothing does. One
// behind which there is more, or the end, does not say so.
func TestWaitingBehindADelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{Poll: time.Hour})
		defer s.hub.Close()
		s.say(t, started, opened)
		sub := s.hub.Subscribe("run_1", 2)
		if _, ok, err := sub.Poll(t.Context(), 10); ok || err != nil {
			t.Fatalf("%v, %v", ok, err)
		}
		calls := 0
		sub.Notify(func() { calls++ })
		poll := func(through int64, waiting bool) {
			t.Helper()
			d, ok, err := sub.Poll(t.Context(), 10)
			if !ok || err != nil || d.Through != through || d.Waiting != waiting {
				t.Fatalf("%+v, %v, %v", d, ok, err)
			}
		}
		for i := range 3 { // one poll a delivery
			s.say(t, delta("x"))
			if calls != i+1 {
				t.Fatalf("called %d times for %d chunks", calls, i+1)
			}
			poll(int64(i+3), true)
		}
		sub.Notify(nil)
		s.say(t, delta("between"))
		sub.Notify(func() { calls++ })
		if calls != 4 {
			t.Fatalf("%d calls", calls)
		}
		s.say(t, batch(delta("y"), delta("z")).Events...)
		poll(8, true) // 6 to 8 end at a multiple of 8
		s.say(t, delta("x"), delta("x"), delta("x"), delta("x"), delta("x"), delta("x"))
		d, ok, err := sub.Poll(t.Context(), 5)
		if !ok || err != nil || d.Through != 13 || d.Waiting {
			t.Fatalf("%+v, %v, %v", d, ok, err)
		}
		calls = 0
		s.say(t, finished)
		if calls != 0 {
			t.Error("woken behind a delivery that did not wait")
		}
		poll(16, false)
		if _, _, err := sub.Poll(t.Context(), 10); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		sub.Close()
	})
}

// TestNextHoldsNothing: the topic of a reader that does not come again is given up, wherever it was left.
func TestNextHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{})
		defer s.hub.Close()
		s.say(t, started)
		sub := s.hub.Subscribe("run_1", 1)
		time.AfterFunc(time.Second, func() { s.say(t, opened) })
		if d, err := sub.Next(t.Context(), 10); err != nil || d.Through != 2 || d.Waiting {
			t.Fatalf("%+v, %v", d, err)
		}
		s.say(t, delta("x")) // before Next
		if d, err := sub.Next(t.Context(), 10); err != nil || d.Through != 3 || d.Waiting {
			t.Fatalf("%+v, %v", d, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := s.hub.Watched(); n != 0 {
			t.Errorf("%d runs are watched", n)
		}
	})
}

// TestJoinBetweenReadAndLive: what is published while a new reader learns the end, or reads the log, neither is lost nor
// comes twice, and the reader is not put to sleep by the older answer.
func TestJoinBetweenReadAndLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &hooked{Log: eventtest.NewLog()}
		hub := event.NewHub(event.HubOptions{Log: log, Poll: time.Hour})
		defer hub.Close()
		cfg := config(log, 1)
		cfg.Publish = hub.Publish
		w := open(t, cfg)
		appended(t, w, batch(started, opened))
		appended(t, w, batch(delta("a")))
		log.onTail = func() { appended(t, w, batch(delta("during the tail"))) }
		log.onRead = func() { appended(t, w, batch(delta("during the read"))) }
		p := newPolled(t, hub.Subscribe("run_1", 0), 10)
		p.drain()
		consecutive(t, p.seqs, 1, 5)
		appended(t, w, batch(delta("live"), finished))
		if !p.notified() {
			t.Fatal("not woken")
		}
		p.drain()
		consecutive(t, p.seqs, 1, 8)
		if !p.ended {
			t.Error("not at the end")
		}
	})
}

// TestHintOutOfOrder: a later chunk that is told first is not shown before the earlier one, which comes from the log; the
// late hint changes nothing.
func TestHintOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventtest.NewLog()
		hub := event.NewHub(event.HubOptions{Log: log, Poll: time.Hour})
		defer hub.Close()
		var told []event.Chunk
		cfg := config(log, 1)
		cfg.Publish = func(c event.Chunk) { told = append(told, c) }
		w := open(t, cfg)
		appended(t, w, batch(started, opened))
		p := newPolled(t, hub.Subscribe("run_1", 0), 10)
		p.drain()
		appended(t, w, batch(delta("a")))
		appended(t, w, batch(delta("b")))
		appended(t, w, batch(delta("c")))
		hub.Publish(told[3])
		if !p.notified() {
			t.Fatal("not woken")
		}
		p.drain()
		consecutive(t, p.seqs, 1, 5)
		hub.Publish(told[1])
		hub.Publish(told[2])
		hub.Publish(told[3])
		if p.notified() {
			p.drain()
		}
		consecutive(t, p.seqs, 1, 5)
		p.sub.Close()
	})
}

// TestMissingHint: without any hint the poll wakes the reader, no later than it says.
func TestMissingHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{Poll: 2 * time.Second})
		defer s.hub.Close()
		s.say(t, started, opened)
		p := newPolled(t, s.hub.Subscribe("run_1", 0), 10)
		p.drain()
		s.hints.Store(false)
		s.say(t, delta("unheard"))
		if p.notified() {
			t.Fatal("woken by nothing")
		}
		time.Sleep(2 * time.Second)
		if !p.notified() {
			t.Fatal("not woken by the poll")
		}
		p.drain()
		consecutive(t, p.seqs, 1, 3)
		// On another replica each hint is a wake without the chunk.
		s.say(t, delta("elsewhere"))
		s.hub.Wake("run_1")
		if !p.notified() {
			t.Fatal("not woken by the hint")
		}
		p.drain()
		consecutive(t, p.seqs, 1, 4)
		p.sub.Close()
	})
}

// TestReadersNeedNoGoroutine: thousands that wait have none, and cost little.
func TestReadersNeedNoGoroutine(t *testing.T) {
	s := newScene(t, event.HubOptions{})
	defer s.hub.Close()
	s.say(t, started, opened)
	const readers = 10_000
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var woken sync.WaitGroup
	subs := make([]*event.Subscription, readers)
	before, goroutines := heap(), runtime.NumGoroutine()
	for i := range subs {
		subs[i] = s.hub.Subscribe("run_1", 2)
		if _, ok, err := subs[i].Poll(t.Context(), 10); ok || err != nil {
			t.Fatal(ok, err)
		}
		subs[i].Notify(woken.Done)
	}
	each := (heap() - before) / readers
	t.Logf("%d bytes for each reader that waits", each)
	if each > 512 {
		t.Errorf("%d bytes for each reader", each)
	}
	if n := runtime.NumGoroutine() - goroutines; n > 2 {
		t.Errorf("%d goroutines more", n)
	}
	woken.Add(readers)
	s.say(t, delta("x"))
	woken.Wait()
	for _, sub := range subs {
		if d, ok, err := sub.Poll(t.Context(), 10); !ok || err != nil || d.Through != 3 {
			t.Fatalf("%+v, %v, %v", d, ok, err)
		}
		sub.Close()
	}
}

// TestDeliveriesConverge: however a run was written, and wherever readers begin, each gets every event once and in order,
// in deliveries that most of them share.
func TestDeliveriesConverge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, event.HubOptions{RingEvents: rapid.SampledFrom([]int{1, 64, 2048}).Draw(rt, "ring")})
			defer s.hub.Close()
			s.say(t, started, opened)
			for total := 0; total < 600; {
				n := rapid.SampledFrom([]int{1, 1, 1, 2, 7, 100}).Draw(rt, "n")
				events := make([]event.Event, n)
				for i := range events {
					events[i] = delta("x")
				}
				s.say(t, events...)
				total += n
			}
			s.say(t, finished)
			end := s.w.Tail()
			pairs := map[string]bool{}
			deliveries := 0
			var starts []int64
			for _, c := range s.log.Chunks("run_1") {
				starts = append(starts, c.First-1)
			}
			for range 20 {
				after := rapid.SampledFrom(starts).Draw(rt, "after")
				p := newPolled(t, s.hub.Subscribe("run_1", after), 256)
				p.drain()
				consecutive(t, p.seqs, after+1, end)
				at := after
				for _, n := range p.sizes {
					pairs[fmt.Sprint(at, n)] = true
					at += int64(n)
				}
				deliveries += len(p.sizes)
				if len(p.sizes) > 20 {
					t.Errorf("%d deliveries after %d of %d", len(p.sizes), after, end)
				}
			}
			if deliveries > 100 && len(pairs) > deliveries/2 {
				t.Errorf("%d different ones among %d deliveries", len(pairs), deliveries)
			}
		})
	})
}

// TestReadersShareReads: those who replay the same read the log about once.
func TestReadersShareReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{RingEvents: 1})
		defer s.hub.Close()
		s.say(t, started, opened)
		for range 3000 {
			s.say(t, delta("x"))
		}
		before := s.log.Reads()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				sub := s.hub.Subscribe("run_1", 0)
				for sub.Cursor() < 3002 {
					if _, err := sub.Next(t.Context(), 256); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if n := s.log.Reads() - before; n > 30 {
			t.Errorf("%d reads", n)
		}
	})
}

// TestPollAfterTheHubIsClosed: who waits is woken, and learns it.
func TestPollAfterTheHubIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{})
		s.say(t, started, opened)
		p := newPolled(t, s.hub.Subscribe("run_1", 0), 10)
		p.drain()
		s.hub.Close()
		if !p.notified() {
			t.Fatal("not woken")
		}
		if _, _, err := p.sub.Poll(t.Context(), 10); !errors.Is(err, event.ErrHubClosed) {
			t.Errorf("error %v", err)
		}
	})
}

// TestExpiredPasses: a reader from before what retention took is told so, live or not.
func TestExpiredPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &expiring{Log: eventtest.NewLog()}
		hub := event.NewHub(event.HubOptions{Log: log})
		defer hub.Close()
		w := open(t, config(log, 1))
		appended(t, w, batch(started, opened))
		appended(t, w, batch(delta("x"), finished))
		log.through = 2
		var gone *event.ExpiredError
		if _, _, err := hub.Subscribe("run_1", 0).Poll(t.Context(), 10); !errors.As(err, &gone) || gone.Through != 2 {
			t.Errorf("before it: %v", err)
		}
		if d, err := hub.Subscribe("run_1", 2).Next(t.Context(), 10); err != nil || d.Events[0].Sequence != 3 {
			t.Errorf("behind it: %+v, %v", d, err)
		}
	})
}

type expiring struct {
	*eventtest.Log
	through int64
}

func (l *expiring) Read(ctx context.Context, runID string, after int64, most int) ([]event.Chunk, error) {
	if after < l.through {
		return nil, event.Expired(runID, l.through)
	}
	return l.Log.Read(ctx, runID, after, most)
}

// TestAHungReadHoldsUpNobody: as long as one run's tail cannot be read, the others are polled, and their hints heard.
func TestAHungReadHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &hooked{Log: eventtest.NewLog()}
		hub := event.NewHub(event.HubOptions{Log: log})
		defer hub.Close()
		writers := map[string]*event.Writer{}
		readers := map[string]*polled{}
		for _, run := range []string{"run_1", "run_2"} {
			cfg := config(log, 1)
			cfg.RunID = run
			writers[run] = open(t, cfg)
			appended(t, writers[run], batch(started, opened))
			readers[run] = newPolled(t, hub.Subscribe(run, 0), 10)
			readers[run].drain()
		}
		release := make(chan struct{})
		log.mu.Lock()
		log.onTail = func() { <-release }
		log.mu.Unlock()
		hub.Wake("run_1")
		synctest.Wait()
		appended(t, writers["run_2"], batch(delta("x")))
		hub.Wake("run_2")
		if !readers["run_2"].notified() {
			t.Error("the hint was not heard")
		}
		readers["run_2"].drain()
		appended(t, writers["run_2"], batch(delta("y")))
		time.Sleep(2 * time.Second)
		if !readers["run_2"].notified() {
			t.Error("not polled")
		}
		readers["run_2"].drain()
		consecutive(t, readers["run_2"].seqs, 1, 4)
		// What was hinted while the read hung is read after it.
		appended(t, writers["run_1"], batch(delta("x")))
		hub.Wake("run_1")
		close(release)
		if !readers["run_1"].notified() {
			t.Error("the hint was forgotten")
		}
		readers["run_1"].drain()
		consecutive(t, readers["run_1"].seqs, 1, 3)
		for _, r := range readers {
			r.sub.Close()
		}
	})
}
