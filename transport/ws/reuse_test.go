package ws

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// gate stops what the server writes, while it is shut.
type gate struct {
	way     atomic.Pointer[chan struct{}]
	waiting atomic.Int32 // writes
}

func (g *gate) shut() {
	way := make(chan struct{})
	g.way.Store(&way)
}

func (g *gate) open() {
	if way := g.way.Swap(nil); way != nil {
		close(*way)
	}
}

type gatedListener struct {
	net.Listener
	gate *gate
}

func (l gatedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return gatedConn{conn, l.gate}, err
}

type gatedConn struct {
	net.Conn
	gate *gate
}

func (c gatedConn) Write(p []byte) (int, error) {
	if way := c.gate.way.Load(); way != nil {
		c.gate.waiting.Add(1)
		<-*way
		c.gate.waiting.Add(-1)
	}
	return c.Conn.Write(p)
}

// stalled is a socket whose client takes nothing while the gate is shut: its writer waits, its queue is full, and so the
// operations wait that have something to say.
func stalled(t *testing.T) (w *world, c *client, k *socket, g *gate) {
	t.Helper()
	g = &gate{}
	w = newWorldOn(t, func(l *Limits) { l.MaxOps = 50 }, func(l net.Listener) net.Listener { return gatedListener{l, g} })
	t.Cleanup(g.open)
	c = w.ready("alice")
	g.shut()
	for i := range 4 {
		c.subscribe(fmt.Sprint("stall", i), "large") // each more than the queue takes
	}
	w.server.mu.Lock()
	for k = range w.server.sockets {
	}
	w.server.mu.Unlock()
	w.until("the writer does not wait behind a full queue", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return g.waiting.Load() == 1 && k.queued > maxQueued
	})
	return w, c, k, g
}

// settled waits until all operations so far wait for room, but one that it begins for that.
func (w *world) settled(c *client, k *socket) {
	w.t.Helper()
	c.subscribe("marker", "hold marker")
	w.until("the operations do not wait for room", func() bool {
		stacks := make([]byte, 1<<20)
		waiting := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "sync.(*Cond).Wait")
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.ops["marker"] != nil && k.queued > maxQueued && waiting > 0 && waiting == k.working-1
	})
}

// What an operation has to say, and finds no room for, is dropped when the client ends it: its id may be another's when
// there is room, which would be taken to have said it.
func TestAWordThatWaits(t *testing.T) {
	for name, document := range map[string]string{"the last": "query old", "another": "count 9"} {
		t.Run(name, func(t *testing.T) {
			w, c, k, g := stalled(t)
			c.subscribe("1", document)
			w.settled(c, k)
			c.send(`{"id":"1","type":"complete"}`)
			w.feed("new").put(`{"data":"new"}`)
			c.subscribe("1", "feed new")
			w.until("the new operation is not begun", func() bool {
				f := w.feed("new")
				f.mu.Lock()
				defer f.mu.Unlock()
				return f.opened == 1
			})
			g.open()
			var got []string
			for len(got) < 2 {
				m, err := c.next()
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(m, `"id":"stall`) {
					continue
				}
				if got = append(got, m); len(got) == 1 {
					c.send(`{"type":"ping"}`)
				}
			}
			if got[0] != `{"id":"1","type":"next","payload":{"data":"new"}}` || got[1] != `{"type":"pong"}` {
				t.Fatalf("got %.200q", got)
			}
		})
	}
}

// An id is taken until its last word is on its way: before that the client does not know that the operation is over.
func TestAnIDIsTakenUntilTheLastWord(t *testing.T) {
	w, c, k, _ := stalled(t)
	c.subscribe("1", "query old")
	w.settled(c, k)
	c.subscribe("1", "query new")
	w.until("the id is free for another", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.code == CloseDuplicateID
	})
}

// A token that expires ends the socket in time, however little the client reads.
func TestATokenExpiresBehindAWriterThatWaits(t *testing.T) {
	w, c, k, _ := stalled(t)
	w.settled(c, k)
	k.mu.Lock()
	k.expires = time.Now().Add(100 * time.Millisecond)
	k.arm(time.Now()) // something else is due before
	k.mu.Unlock()
	closing := func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.phase >= phaseClosing
	}
	for end := time.Now().Add(patience / 4); !closing(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the token has expired, and operations may begin")
		}
	}
}
