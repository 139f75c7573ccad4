package transport

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// connections bounds how many connections are open at once. One more than that takes the place of the one that has done
// nothing for longest: has sent no request yet, or no whole header of one, or none since the last. So who opens many and
// sends nothing keeps nobody out. It is safe for concurrent use.
type connections struct {
	most  int
	aside func() int // connections that are counted elsewhere: WebSockets

	mu   sync.Mutex
	of   map[net.Conn]*connection
	idle list.List // of *connection, those without a request in work, by how long
}

type connection struct {
	of   *connections
	conn net.Conn
	at   *list.Element // in idle; nil where a request is in work
}

type connectionKey struct{}

func newConnections(most int, aside func() int) *connections {
	return &connections{most: most, aside: aside, of: map[net.Conn]*connection{}}
}

// watch makes the listener's server tell of its connections.
func (cs *connections) watch(server *http.Server) {
	server.ConnState = cs.changed
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		cs.mu.Lock()
		defer cs.mu.Unlock()
		return context.WithValue(ctx, connectionKey{}, cs.of[conn])
	}
}

// changed is http.Server.ConnState.
func (cs *connections) changed(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if longest := cs.add(conn); longest != nil {
			_ = longest.Close()
		}
	case http.StateIdle:
		cs.mu.Lock()
		defer cs.mu.Unlock()
		if c := cs.of[conn]; c != nil && c.at != nil {
			cs.idle.MoveToBack(c.at)
		}
	case http.StateClosed, http.StateHijacked:
		cs.mu.Lock()
		defer cs.mu.Unlock()
		if c := cs.of[conn]; c != nil {
			delete(cs.of, conn)
			if c.at != nil {
				cs.idle.Remove(c.at)
				c.at = nil
			}
		}
	}
}

// add counts one more, and says which has to go for it; nil: none.
func (cs *connections) add(conn net.Conn) net.Conn {
	aside := cs.aside()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := &connection{of: cs, conn: conn}
	cs.of[conn] = c
	c.at = cs.idle.PushBack(c)
	if len(cs.of)+aside <= cs.most {
		return nil
	}
	longest, _ := cs.idle.Remove(cs.idle.Front()).(*connection)
	longest.at = nil
	return longest.conn
}

// count is how many are open.
func (cs *connections) count() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.of)
}

// work says that a request of the connection is in work, until done.
func work(ctx context.Context) (done func()) {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	if c == nil {
		return func() {}
	}
	c.set(true)
	return func() { c.set(false) }
}

func (c *connection) set(working bool) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	switch {
	case working && c.at != nil:
		c.of.idle.Remove(c.at)
		c.at = nil
	case !working && c.at == nil && c.of.of[c.conn] == c:
		c.at = c.of.idle.PushBack(c)
	}
}
