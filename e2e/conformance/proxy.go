package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// proxy is a TCP proxy in front of an engine whose connections can be cut in the middle of a message.
type proxy struct {
	listener net.Listener
	links    sync.WaitGroup

	mu     sync.Mutex
	target string // host:port
	conns  map[*link]bool
}

// link is one connection with the one behind it.
type link struct {
	client, server *net.TCPConn
	cut            chan struct{} // closed when what comes next from the engine is to be cut off
	once           sync.Once
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, conns: map[*link]bool{}}
	p.links.Go(p.accept)
	return p, nil
}

// url is where clients go.
func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

// move has further connections go to another engine.
func (p *proxy) move(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// close ends every connection and waits for what serves them.
func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	for l := range p.conns {
		l.end(false)
	}
	p.mu.Unlock()
	p.links.Wait()
}

func (p *proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		server, err := net.DialTimeout("tcp", target, 10*time.Second)
		if err != nil {
			conn.Close()
			continue
		}
		l := &link{client: conn.(*net.TCPConn), server: server.(*net.TCPConn), cut: make(chan struct{})}
		p.mu.Lock()
		p.conns[l] = true
		p.mu.Unlock()
		p.links.Go(func() {
			defer l.end(false)
			_, _ = io.Copy(l.server, l.client) // however it ends, it has ended
		})
		p.links.Go(func() {
			defer func() {
				p.mu.Lock()
				delete(p.conns, l)
				p.mu.Unlock()
			}()
			l.down()
		})
	}
}

// down carries what the engine says, until it is to be cut: then the client gets a part of what comes next, and the
// connection is gone.
func (l *link) down() {
	buf := make([]byte, 32<<10)
	for {
		n, err := l.server.Read(buf)
		select {
		case <-l.cut:
			if n > 0 {
				_, _ = l.client.Write(buf[:rand.IntN(n)])
			}
			l.end(rand.IntN(2) == 0)
			return
		default:
		}
		if n > 0 {
			if _, err := l.client.Write(buf[:n]); err != nil {
				l.end(false)
				return
			}
		}
		if err != nil {
			l.end(false)
			return
		}
	}
}

// end closes both sides, the client's with a reset if that is wanted.
func (l *link) end(reset bool) {
	l.once.Do(func() {
		if reset {
			_ = l.client.SetLinger(0)
		}
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// errNothingToCut: no connection was open.
var errNothingToCut = errors.New("no connection to cut")

// cutAll has every connection cut in what the engine says next on it.
func (p *proxy) cutAll(ctx context.Context) error {
	for {
		p.mu.Lock()
		n := 0
		for l := range p.conns {
			select {
			case <-l.cut:
			default:
				close(l.cut)
				n++
			}
		}
		p.mu.Unlock()
		if n > 0 {
			return nil
		}
		select { // the client is on its way back
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return errNothingToCut
		}
	}
}
