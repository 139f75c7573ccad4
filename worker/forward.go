package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// Times of the way to the broker.
const (
	defaultFacadeWait = 30 * time.Second // for a broker that accepts connections: its engine may be restarting, or be taken over
	facadeRetry       = 50 * time.Millisecond
	defaultProbeTime  = 5 * time.Second // for the broker of an engine that was taken over to answer anything
)

// errNotSent: nothing of the call has left the worker.
var errNotSent = errors.New("no broker accepts connections")

// call is one model call on its way.
type call struct {
	turn   context.Context // that it belongs to
	socket string          // of the broker that it was sent to; empty until then
	cut    func()
}

// forwarder sends calls to the broker. Connecting is apart from sending: before the connection stands nothing has been sent,
// so there, and only there, waiting and trying again is safe. What was sent is never sent again: a broker that goes
// away before the first byte of its answer may have passed the call on.
type forwarder struct {
	facade *facade
	http   *http.Transport
}

type connKey struct{}

func newForwarder(f *facade) *forwarder {
	return &forwarder{facade: f, http: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, ok := ctx.Value(connKey{}).(net.Conn)
			if !ok {
				return nil, errors.New("failed to call broker: no connection")
			}
			return conn, nil
		},
		// One connection a call: a call that was sent over an old connection could be sent again by the transport when that
		// turns out to be dead.
		DisableKeepAlives:  true,
		DisableCompression: true,
	}}
}

// RoundTrip implements http.RoundTripper.
func (f *forwarder) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return nil, fmt.Errorf("%w: no call", errNotSent)
	}
	conn, err := f.connect(ctx, c)
	if err != nil {
		return nil, err
	}
	g, _, ok := f.facade.current() // an engine that took over has brought another capability meanwhile
	if !ok || g.turn != c.turn {   // with the capability of another run it would count as that one's
		_ = conn.Close()
		return nil, fmt.Errorf("%w: the run is over", errNotSent)
	}
	r = r.Clone(context.WithValue(ctx, connKey{}, conn))
	r.Header.Set("Authorization", "Bearer "+g.capability)
	resp, err := f.http.RoundTrip(r)
	if err != nil {
		_ = conn.Close()
	}
	return resp, err
}

// connect waits for a broker, wherever it listens by then.
func (f *forwarder) connect(ctx context.Context, c *call) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, f.facade.wait)
	defer cancel()
	var d net.Dialer
	for {
		socket := f.facade.brokerNow()
		conn, err := d.DialContext(ctx, "unix", socket)
		if err == nil {
			f.facade.on(c, socket)
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errNotSent, err)
		case <-time.After(facadeRetry):
		}
	}
}

func (f *facade) brokerNow() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broker
}

// on notes where a call is sent.
func (f *facade) on(c *call, socket string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.socket = socket
	f.sent[c] = struct{}{}
	if socket != f.broker { // the engine was taken over just now
		f.watch(socket)
	}
}

// over notes a call's end.
func (f *facade) over(c *call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sent, c)
}

// setBroker says where the broker listens; empty is nowhere. Calls that were sent to another go on there, as long as that
// one lives: its engine may be ending in order. One that is stopped would hold them for ever.
func (f *facade) setBroker(socket string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broker = socket
	for c := range f.sent {
		if c.socket != socket {
			f.watch(c.socket)
		}
	}
}

// watch cuts the calls on a broker that does not answer any more. The caller holds f.mu.
func (f *facade) watch(socket string) {
	if _, is := f.probed[socket]; is || f.life.Err() != nil {
		return
	}
	f.probed[socket] = struct{}{}
	f.probes.Add(1)
	go func() {
		defer f.probes.Done()
		for refused := 0; f.anySent(socket); {
			answer := f.probe(socket)
			if answer == brokerRefuses { // it ends its calls by itself: its engine is ending, or dead
				refused++
			} else {
				refused = 0
			}
			if answer == brokerSilent || refused == maxRefused || f.life.Err() != nil {
				break
			}
			select {
			case <-time.After(f.probePause):
			case <-f.life.Done():
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.probed, socket)
		if socket == f.broker {
			return // it is the one again, and looked after by its engine
		}
		for c := range f.sent {
			if c.socket == socket {
				f.log.Warn("model call cut: the engine that passed it on does not answer any more")
				c.cut()
			}
		}
	}()
}

func (f *facade) anySent(socket string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.sent {
		if c.socket == socket {
			return true
		}
	}
	return false
}

// brokerState is what a broker makes of a probe.
type brokerState int

const (
	brokerAnswers brokerState = iota
	brokerRefuses             // it accepts no connection
	brokerSilent              // it says nothing
)

// maxRefused is how many probes in a row may be refused before calls that still go on are cut.
const maxRefused = 6

// probe asks a broker for nothing, to see whether it says anything at all: one that is stopped still accepts connections, by
// way of the kernel.
func (f *facade) probe(socket string) brokerState {
	ctx, cancel := context.WithTimeout(f.life, f.probeTime)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return brokerRefuses
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	if _, err := conn.Write([]byte("OPTIONS /alive HTTP/1.1\r\nHost: broker\r\nConnection: close\r\n\r\n")); err != nil {
		return brokerRefuses
	}
	if n, err := conn.Read(make([]byte, 1)); n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return brokerSilent
	}
	return brokerAnswers
}
