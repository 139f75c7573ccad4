package ws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/internal/share"
)

// What is to be delivered without a permission is held until there is one, in order, and is dropped when there is none
// any more. Other operations of the socket go on meanwhile.
func TestDeliveriesAreHeld(t *testing.T) {
	const lasts = 2 * time.Second // a permission; within it what was held is written
	w := newWorld(t, nil)
	c := w.ready("alice")
	answer := make(chan error)
	a := w.feed("a")
	a.until = time.Now()
	a.renew = func(ctx context.Context) (time.Time, error) {
		select {
		case err := <-answer:
			return time.Now().Add(lasts), err
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
	a.put(`{"data":1}`, `{"data":2}`)
	c.subscribe("a", "feed a")
	b := w.feed("b")
	c.subscribe("b", "feed b")
	for i := range 3 {
		b.put(fmt.Sprintf(`{"data":%d}`, i))
		c.want(fmt.Sprintf(`{"id":"b","type":"next","payload":{"data":%d}}`, i))
	}
	answer <- nil
	c.want(`{"id":"a","type":"next","payload":{"data":1}}`, `{"id":"a","type":"next","payload":{"data":2}}`)
	// The next renewal, of an idle feed, is refused while there is something to deliver: it is not delivered.
	w.until("an idle feed was not renewed", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.renewed == 2 })
	w.until("the permission lasts too long", func() bool { return !time.Now().Before(a.Until()) })
	a.put(`{"data":3}`)
	answer <- problem.New(problem.Forbidden, "it has ended")
	c.want(`{"id":"a","type":"error","payload":[{"message":"it has ended","extensions":{"code":"FORBIDDEN"}}]}`)
	b.put(`{"data":9}`)
	c.want(`{"id":"b","type":"next","payload":{"data":9}}`)
}

// A permission that ends between Poll and write holds what was polled, and everything behind it.
func TestPolledDeliveriesAreHeld(t *testing.T) {
	w := newWorld(t, nil)
	c := w.ready("alice")
	a := w.feed("a")
	allowed := make(chan struct{})
	a.renew = func(context.Context) (time.Time, error) {
		<-allowed
		return time.Now().Add(time.Hour), nil
	}
	n := 0
	a.until = time.Now().Add(2 * time.Second) // by then the batch is being gathered
	a.source = func() string {                // a.mu is held
		if n++; n == 3 {
			<-time.After(time.Until(a.until)) // a store that is slow: it ends while the batch is gathered
			a.source = nil
			time.AfterFunc(50*time.Millisecond, func() { close(allowed) })
		}
		return fmt.Sprintf(`{"data":%d}`, n)
	}
	c.subscribe("1", "feed a")
	for i := range 3 {
		c.want(fmt.Sprintf(`{"id":"1","type":"next","payload":{"data":%d}}`, i+1))
	}
	select {
	case <-allowed:
	default:
		t.Error("delivered without a permission")
	}
}

// Where so many feeds wait for an answer that some get no turn, those end when they were held for long enough.
func TestHeldForTooLong(t *testing.T) {
	w := newWorld(t, func(l *Limits) { l.HoldFor = patience / 2 })
	w.server.renew = share.NewPlaces[authz.Caller](1, 1)
	c := w.ready("alice")
	asked, slow := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}, make(chan struct{})
	held := func(name string, since time.Time) {
		f := w.feed(name)
		f.until = since
		once := sync.OnceFunc(func() { close(asked[name]) })
		f.renew = func(context.Context) (time.Time, error) {
			once()
			<-slow // an authorization
			return time.Time{}, problem.New(problem.AuthorizationUnavailable, "nobody answered")
		}
		f.put(`{"data":1}`)
		c.subscribe(name, "feed "+name)
	}
	held("a", time.Now())
	<-asked["a"]
	held("b", time.Now().Add(-patience)) // has no turn before a has its answer
	close(slow)
	for range 2 {
		got, err := c.next()
		if err != nil || !strings.Contains(got, `"type":"error"`) || !strings.Contains(got, "AUTHORIZATION_UNAVAILABLE") {
			t.Fatalf("got %s (%v)", got, err)
		}
		if strings.Contains(got, "nobody answered") != strings.HasPrefix(got, `{"id":"a"`) {
			t.Errorf("got %s", got)
		}
	}
	select {
	case <-asked["b"]:
		t.Error("permission was asked for a feed that was held for too long")
	default:
	}
}

// A feed that always has something leaves room for one that has something now and then, and for answers.
func TestFeedsTakeTurns(t *testing.T) {
	w := newWorld(t, nil)
	c := w.ready("alice")
	w.feed("flood").source = func() string { return `{"data":"` + strings.Repeat("x", 2000) + `"}` }
	c.subscribe("flood", "feed flood")
	c.subscribe("a", "feed a")
	c.subscribe("q", "query q")
	w.feed("a").put(`{"data":1}`)
	seen := map[string]int{}
	for seen["a"] == 0 || seen["q"] < 2 {
		got, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		seen[strings.Split(got, `"`)[3]]++
		if seen["flood"] > 100_000 {
			t.Fatal("nothing else comes through")
		}
	}
}

// A reader that has stopped is cut off after the write timeout, holds nobody else up, and loses nothing: its cursor is
// where it stopped.
func TestAStalledReader(t *testing.T) {
	w := newWorld(t, func(l *Limits) { l.WriteTimeout = 300 * time.Millisecond })
	next := 0
	w.feed("flood").source = func() string { // stands for a log: what was polled is gone
		next++
		return fmt.Sprintf(`{"data":%d,"x":"%s"}`, next, strings.Repeat("x", 10_000))
	}
	stalled := w.ready("stalled")
	stalled.subscribe("1", "feed flood")
	other := w.ready("other")
	other.subscribe("1", "feed a")
	for i := range 50 {
		w.feed("a").put(fmt.Sprintf(`{"data":%d}`, i))
		other.want(fmt.Sprintf(`{"id":"1","type":"next","payload":{"data":%d}}`, i))
	}
	w.until("the stalled reader keeps its connection", func() bool { return w.server.Count() == 1 })
	// What reached it is a whole beginning.
	for i := 1; ; i++ {
		got, err := stalled.next()
		if err != nil {
			break
		}
		if want := fmt.Sprintf(`{"id":"1","type":"next","payload":{"data":%d,`, i); !strings.HasPrefix(got, want) {
			t.Fatalf("got %.60s, want %s", got, want)
		}
	}
}

// Answers for which a client makes no room do not occupy those who execute operations.
func TestUnreadAnswers(t *testing.T) {
	w := newWorld(t, func(l *Limits) { l.MaxOps = 50 })
	w.executing(1, 1)
	silent := w.ready("silent")
	for i := range 50 {
		silent.subscribe(fmt.Sprint(i), "large") // 1 MiB each
	}
	c := w.ready("alice")
	for range 5 {
		c.subscribe("1", "query a")
		c.want(`{"id":"1","type":"next","payload":{"data":"a"}}`, `{"id":"1","type":"complete"}`)
	}
}

// An idle socket has one goroutine, whatever it follows; sockets that end without a word leave none.
func TestGoroutineBudget(t *testing.T) {
	w := newWorld(t, nil)
	const sockets = 50
	before := runtime.NumGoroutine()
	clients := make([]*client, sockets)
	for i := range clients {
		clients[i] = w.ready("alice")
		for j := range 4 {
			name := fmt.Sprintf("%d.%d", i, j)
			w.feed(name).put(`{"data":1}`)
			clients[i].subscribe(name, "feed "+name)
			clients[i].want(`{"id":"` + name + `","type":"next","payload":{"data":1}}`)
		}
	}
	// Ticks let writers go; there are two of them until one has been idle from one to the next.
	idle := func() {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		for k := range w.server.sockets {
			k.mu.Lock()
			k.arm(time.Now())
			k.mu.Unlock()
		}
	}
	w.until("an idle socket has more than one goroutine", func() bool {
		idle()
		return runtime.NumGoroutine() <= before+sockets
	})
	for i, c := range clients { // a writer comes back when there is something
		name := fmt.Sprintf("%d.0", i)
		w.feed(name).put(`{"data":2}`)
		c.want(`{"id":"` + name + `","type":"next","payload":{"data":2}}`)
	}
	for _, c := range clients {
		_ = c.conn.NetConn().(*net.TCPConn).SetLinger(0)
		_ = c.conn.Close()
	}
	w.until("goroutines are left", func() bool { return runtime.NumGoroutine() <= before && w.server.Count() == 0 })
}

func TestDrain(t *testing.T) {
	w := newWorld(t, nil)
	idle, busy := w.ready("idle"), w.ready("busy")
	idle.subscribe("1", "feed a")
	w.feed("a").put(`{"data":1}`)
	idle.want(`{"id":"1","type":"next","payload":{"data":1}}`)
	busy.subscribe("1", "hold x")
	busy.send(`{"type":"ping"}`)
	busy.want(`{"type":"pong"}`)
	w.server.Drain()
	idle.wantClose(1012)
	w.until("the busy socket does not drain", func() bool {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		for k := range w.server.sockets {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.draining && len(w.server.sockets) == 1
		}
		return false
	})
	busy.subscribe("2", "query b") // is not begun, so the client may begin it elsewhere
	busy.send(`{"type":"ping"}`)
	busy.want(`{"type":"pong"}`)
	w.release("x")
	busy.want(`{"id":"1","type":"next","payload":{"data":"x"}}`, `{"id":"1","type":"complete"}`)
	busy.wantClose(1012)
	if _, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(w.http.URL, "http"), nil); err == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a new socket: %v", err)
	}
}

// What does not end holds a drain up for a bounded time.
func TestDrainIsBounded(t *testing.T) {
	w := newWorld(t, func(l *Limits) { l.DrainTimeout = 200 * time.Millisecond })
	c := w.ready("alice")
	c.subscribe("1", "hold x")
	c.send(`{"type":"ping"}`)
	c.want(`{"type":"pong"}`)
	w.server.Drain()
	c.wantClose(1012)

	w = newWorld(t, nil)
	c = w.ready("alice")
	c.subscribe("1", "hold x")
	c.send(`{"type":"ping"}`)
	c.want(`{"type":"pong"}`)
	w.server.Drain()
	ctx, cancel := context.WithTimeoutCause(context.Background(), 100*time.Millisecond, errors.New("enough"))
	defer cancel()
	if err := w.server.Wait(ctx); err == nil || err.Error() != "enough" {
		t.Errorf("waiting ended with %v", err)
	}
	c.wantEnd()
}

// Any frames of a client, however broken, end the socket at most.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x81\x85\x00\x00\x00\x00hello"))
	f.Add([]byte("\x81\xfe\x00\x7e\x01\x02\x03\x04"))
	f.Add([]byte("\x89\x80\x00\x00\x00\x00\x88\x82\x00\x00\x00\x00\x03\xe8"))
	f.Add([]byte("\x01\x80\x00\x00\x00\x00\x80\x80\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		w := newWorld(t, func(l *Limits) { l.InitTimeout = 50 * time.Millisecond })
		c := w.dial(Subprotocol)
		_, _ = c.conn.NetConn().Write(raw) // unless it has been closed meanwhile
		_ = c.conn.NetConn().(*net.TCPConn).CloseWrite()
		c.wantEnd()
		w.until("the socket is left", func() bool { return w.server.Count() == 0 })
	})
}
