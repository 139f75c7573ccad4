package ws

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// follower is a client whose socket follows a feed: it has had its first delivery, and all that there was.
func (w *world) follower(name string) (*client, *fakeFeed, *socket) {
	w.t.Helper()
	w.server.mu.Lock()
	before := make(map[*socket]bool, len(w.server.sockets))
	for k := range w.server.sockets {
		before[k] = true
	}
	w.server.mu.Unlock()
	c, f := w.ready("alice"), w.feed(name)
	f.put("0")
	c.subscribe("1", "feed "+name)
	c.want(`{"id":"1","type":"next","payload":0}`)
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for k := range w.server.sockets {
		if !before[k] {
			return c, f, k
		}
	}
	w.t.Fatal("no socket")
	return nil, nil, nil
}

// clog has deliveries of 10 KB follow one another until the client, which reads nothing, takes no more.
func (w *world) clog(c *client, f *fakeFeed, k *socket) {
	w.t.Helper()
	_ = c.conn.NetConn().(*net.TCPConn).SetReadBuffer(4 << 10)
	_ = k.net.(*net.TCPConn).SetWriteBuffer(4 << 10)
	for n, written := 1, true; written; n++ {
		f.put(fmt.Sprintf(`"%d %s"`, n, strings.Repeat("x", 10_000)))
		w.until("the delivery is not written", func() bool {
			alone := w.server.crew.members() == 0 // whoever still writes has left the crew, to wait
			k.mu.Lock()
			defer k.mu.Unlock()
			written = !k.writing
			return written || alone
		})
	}
}

func (c *crew) members() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// A feed that waits for a store, against expectation, keeps its own socket waiting and no other, whatever their number.
func TestTheCrewGoesOnWithoutAStore(t *testing.T) {
	w := newWorld(t, nil)
	release, held := make(chan struct{}), make(chan struct{})
	slow := 3 * w.server.crew.size
	for i := range slow {
		c, f, _ := w.follower(fmt.Sprint("slow", i))
		f.mu.Lock()
		f.source = func() string { // f.mu is held
			held <- struct{}{}
			<-release
			f.source = nil
			return "1"
		}
		f.wake()
		f.mu.Unlock()
		defer c.want(`{"id":"1","type":"next","payload":1}`)
	}
	defer close(release)
	for range slow {
		<-held
	}
	c, f, _ := w.follower("live")
	for i := range 3 {
		f.put(fmt.Sprint(i))
		c.want(fmt.Sprintf(`{"id":"1","type":"next","payload":%d}`, i))
	}
}

// Whoever waits for a client that reads nothing is none of the crew, which has no goroutine when there is nothing to do.
func TestTheCrewWaitsForNoReader(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 2 * w.server.crew.size {
		c, f, k := w.follower(fmt.Sprint("stalled", i))
		w.clog(c, f, k)
		defer c.conn.Close()
		_ = c.conn.NetConn().(*net.TCPConn).SetLinger(0)
	}
	c, f, _ := w.follower("live")
	for i := range 3 {
		f.put(fmt.Sprint(i))
		c.want(fmt.Sprintf(`{"id":"1","type":"next","payload":%d}`, i))
	}
	w.until("the crew has members", func() bool { return w.server.crew.members() == 0 })
}

// Frames stay whole, in order, where the answer to a close frame, which gorilla writes, comes while half of one is written.
func TestAHalfWrittenFrameIsFinished(t *testing.T) {
	w := newWorld(t, nil)
	c, f, k := w.follower("a")
	w.clog(c, f, k)
	bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	if err := c.conn.WriteControl(websocket.CloseMessage, bye, time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	w.until("the close frame is not answered", func() bool {
		stacks := make([]byte, 4<<20)
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*socket).answerClose")
	})
	for i := 1; ; i++ {
		got, err := c.next()
		if err != nil {
			return // the last frame may be cut off: the client has a second to read on
		}
		if want := fmt.Sprintf(`{"id":"1","type":"next","payload":"%d %s"}`, i, strings.Repeat("x", 10_000)); got != want {
			t.Fatalf("delivery %d is %.60q, %d bytes", i, got, len(got))
		}
	}
}

// Sockets of which each is woken by others, again and again, are written to the end, each in its order.
func TestEverySocketHasItsTurn(t *testing.T) {
	w := newWorld(t, nil)
	const sockets, deliveries = 64, 50
	clients, feeds := make([]*client, sockets), make([]*fakeFeed, sockets)
	for i := range clients {
		clients[i], feeds[i], _ = w.follower(fmt.Sprint(i))
	}
	for part := range 4 {
		go func() {
			for n := range deliveries {
				for i := part; i < sockets; i += 4 {
					feeds[i].put(fmt.Sprint(n))
				}
			}
		}()
	}
	for _, c := range clients {
		for n := range deliveries {
			c.want(fmt.Sprintf(`{"id":"1","type":"next","payload":%d}`, n))
		}
	}
	w.until("the crew has members", func() bool { return w.server.crew.members() == 0 })
}
