package replicas

import (
	"bytes"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harness-engine/harness-engine/engine/replica"
)

// Bounds of hints. A hint that finds no room is one that says: look everywhere.
const (
	maxDatagram  = 8 << 10
	maxHintID    = 128
	maxWaiting   = 8192
	sendDeadline = 5 * time.Millisecond // for a peer whose queue is full
)

// outbox holds the hints that are to be sent; equal ones are one.
type outbox struct {
	some atomic.Bool // there are peers
	wake chan struct{}

	mu      sync.Mutex
	peers   map[string]bool // by socket; true: it has missed hints, and is owed one to look everywhere
	waiting map[replica.Hint]struct{}
}

func (o *outbox) init() {
	o.wake = make(chan struct{}, 1)
	o.waiting = map[replica.Hint]struct{}{}
}

// setPeers takes a look in. One that is new has missed what was told before it was seen.
func (o *outbox) setPeers(sockets []string) {
	peers, owed := make(map[string]bool, len(sockets)), false
	o.mu.Lock()
	for _, socket := range sockets {
		missed, known := o.peers[socket]
		peers[socket] = missed || !known
		owed = owed || peers[socket]
	}
	o.peers = peers
	o.some.Store(len(peers) > 0)
	o.mu.Unlock()
	if owed {
		o.rouse()
	}
}

// missed keeps in mind that a peer did not get hints; it is tried again with the next hint or look.
func (o *outbox) missed(socket string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, there := o.peers[socket]; there {
		o.peers[socket] = true
	}
}

func (o *outbox) rouse() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Tell sends a hint to the other engines. It never blocks, and costs nothing while there are none.
func (m *Member) Tell(h replica.Hint) {
	o := &m.outbox
	if !o.some.Load() || len(h.ID) > maxHintID {
		return
	}
	o.mu.Lock()
	if len(o.waiting) >= maxWaiting {
		clear(o.waiting)
		h = replica.Hint{Kind: replica.Everything}
	}
	o.waiting[h] = struct{}{}
	o.mu.Unlock()
	o.rouse()
}

// take gives what is to be sent, and to whom, as peers has it.
func (o *outbox) take() (peers map[string]bool, hints map[replica.Hint]struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	hints, o.waiting = o.waiting, map[replica.Hint]struct{}{}
	peers = maps.Clone(o.peers)
	for socket := range o.peers {
		o.peers[socket] = false
	}
	return peers, hints
}

// send writes what waits, as few datagrams as it takes. What gathers meanwhile goes together. A peer that a datagram did
// not reach is told to look everywhere instead.
func (m *Member) send() {
	everything := appendHint(nil, replica.Hint{Kind: replica.Everything})
	var last []byte
	for {
		select {
		case <-m.stop:
			return
		case <-m.outbox.wake:
		}
		peers, hints := m.outbox.take()
		last = last[:0]
		flush := func() {
			for socket, missed := range peers {
				if !missed && !m.write(socket, last) {
					peers[socket] = true
				}
			}
			last = last[:0]
		}
		for h := range hints {
			if len(last)+len(h.Kind)+len(h.ID)+2 > maxDatagram {
				flush()
			}
			last = appendHint(last, h)
		}
		if len(last) > 0 {
			flush()
		}
		for socket, missed := range peers {
			if missed && !m.write(socket, everything) {
				m.outbox.missed(socket)
			}
		}
	}
}

// write sends a datagram; false: the peer has not got it.
func (m *Member) write(socket string, b []byte) bool {
	_ = m.conn.SetWriteDeadline(time.Now().Add(sendDeadline))
	_, err := m.conn.WriteToUnix(b, &net.UnixAddr{Name: socket, Net: "unixgram"})
	return err == nil
}

// listen hands over what other engines say. Only processes of this user can reach the socket.
func (m *Member) listen() {
	buf := make([]byte, maxDatagram+1)
	for {
		n, err := m.conn.Read(buf)
		if err != nil {
			select {
			case <-m.stop:
				return
			case <-time.After(sendDeadline): // a broken socket must not spin
			}
			continue
		}
		for _, h := range parseHints(buf[:n]) {
			m.o.OnHint(h)
		}
	}
}

// appendHint writes a hint as a line: kind, space, id.
func appendHint(b []byte, h replica.Hint) []byte {
	b = append(b, h.Kind...)
	b = append(b, ' ')
	b = append(b, h.ID...)
	return append(b, '\n')
}

// parseHints reads the lines of a datagram; what is no hint is passed over.
func parseHints(b []byte) (hints []replica.Hint) {
	if len(b) > maxDatagram {
		return nil
	}
	for line := range bytes.Lines(b) {
		kind, id, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		h := replica.Hint{Kind: replica.Kind(kind), ID: id}
		switch h.Kind {
		case replica.LogGrew, replica.BindingChanged, replica.CancelAsked:
			if ok && id != "" && len(id) <= maxHintID {
				hints = append(hints, h)
			}
		case replica.Everything:
			hints = append(hints, replica.Hint{Kind: replica.Everything})
		}
	}
	return hints
}
