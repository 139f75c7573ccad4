package rig

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const proxyDial = 5 * time.Second

// proxy stands on one address between clients and whatever serves them now. It breaks connections as networks do.
type proxy struct {
	l net.Listener

	mu     sync.Mutex
	target string            // host:port; empty: nobody serves
	conns  map[net.Conn]bool // both ends
	held   chan struct{}     // not nil: nothing passes until it is closed
	shut   bool              // who comes is turned away
	done   sync.WaitGroup
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{l: l, target: target, conns: map[net.Conn]bool{}}
	p.done.Go(p.accept)
	return p, nil
}

func (p *proxy) url() string { return "http://" + p.l.Addr().String() }

// serve says who serves from now on; connections that exist stay with whom they had.
func (p *proxy) serve(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func (p *proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.carry(c) })
	}
}

func (p *proxy) carry(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	target, shut := p.target, p.shut
	p.mu.Unlock()
	if target == "" || shut {
		reset(client)
		return
	}
	server, err := net.DialTimeout("tcp", target, proxyDial)
	if err != nil {
		reset(client)
		return
	}
	defer server.Close()
	if !p.add(client, server) {
		return
	}
	defer p.remove(client, server)
	var both sync.WaitGroup
	both.Go(func() { p.pass(server, client) })
	both.Go(func() { p.pass(client, server) })
	both.Wait()
}

// pass copies until one side ends, and then ends the other.
func (p *proxy) pass(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.await()
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				reset(to)
			}
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
}

// await waits while nothing may pass.
func (p *proxy) await() {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != nil {
		<-held
	}
}

func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return false
	}
	for _, c := range conns {
		p.conns[c] = true
	}
	return true
}

func (p *proxy) remove(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

// cut resets every connection and returns how many there were.
func (p *proxy) cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
	return len(p.conns) / 2
}

// hold lets nothing pass for so long; it comes late, but whole.
func (p *proxy) hold(d time.Duration) {
	p.mu.Lock()
	if p.held != nil {
		p.mu.Unlock()
		return
	}
	held := make(chan struct{})
	p.held = held
	p.mu.Unlock()
	time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.held = nil
		close(held)
	})
}

// refuse turns everybody away for so long.
func (p *proxy) refuse(d time.Duration) {
	p.mu.Lock()
	p.shut = true
	p.mu.Unlock()
	p.cut()
	time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.shut = false
	})
}

func (p *proxy) close() {
	_ = p.l.Close()
	p.cut()
	p.mu.Lock()
	p.conns = nil
	p.mu.Unlock()
	p.done.Wait()
}

// reset drops a connection without a goodbye, as a broken network does.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
