package transport_test

import (
	"net"
	"sync"
)

// gate stops what the server writes to one client, as if that did not read.
type gate struct {
	mu      sync.Mutex
	changed sync.Cond
	shut    map[string]bool // by the client's address
	waiting int             // writes
}

// close stops the client's connection.
func (g *gate) close(client net.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut[client.String()] = true
}

// open lets everything go on.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.shut)
	g.changed.Broadcast()
}

// stops reports whether a write waits.
func (g *gate) stops() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting > 0
}

func (g *gate) pass(client net.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.shut[client.String()] {
		g.waiting++
		g.changed.Wait()
		g.waiting--
	}
}

// gated is a listener whose connections pass the gate with each write.
type gated struct {
	net.Listener
	gate *gate
}

func (l gated) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return gatedConn{conn, l.gate}, nil
}

type gatedConn struct {
	net.Conn
	gate *gate
}

func (c gatedConn) Write(p []byte) (int, error) {
	c.gate.pass(c.RemoteAddr())
	return c.Conn.Write(p)
}
