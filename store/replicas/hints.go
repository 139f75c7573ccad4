package replicas

import (
	"bytes"
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
	peers   []string
	waiting map[replica.Hint]struct{}
}

func (o *outbox) init() {
	o.wake = make(chan struct{}, 1)
	o.waiting = map[replica.Hint]struct{}{}
}

func (o *outbox) setPeers(peers []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.peers = peers
	o.some.Store(len(peers) > 0)
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
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) take() (peers []string, hints map[replica.Hint]struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	hints, o.waiting = o.waiting, map[replica.Hint]struct{}{}
	return o.peers, hints
}

// send writes what waits, as few datagrams as it takes. What gathers meanwhile goes together.
func (m *Member) send() {
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
			for _, peer := range peers {
				_ = m.conn.SetWriteDeadline(time.Now().Add(sendDeadline))
				_, _ = m.conn.WriteToUnix(last, &net.UnixAddr{Name: peer, Net: "unixgram"}) // a hint may be lost
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
	}
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
