package ws

import (
	"context"
	"math/rand/v2"
	"time"
)

// drainEach is how much time a drain gives itself for each socket, within Limits.DrainSpread: clients that come back
// all at once are a load of their own.
const drainEach = 2 * time.Millisecond

// Drain moves the clients on: each socket is closed with 1012, at a moment of its own within Limits.DrainSpread, when the
// queries and mutations on it have ended, or after Limits.DrainTimeout. It does not wait; see Wait.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return
	}
	s.draining = true
	spread := min(time.Duration(len(s.sockets))*drainEach, s.o.Limits.DrainSpread)
	for k := range s.sockets {
		time.AfterFunc(rand.N(spread+1), k.drain) //nolint:gosec // spreads load
		time.AfterFunc(s.o.Limits.DrainTimeout, func() { k.fail(CloseRestart, reasonRestart) })
	}
	s.checkEmpty()
}

// Wait waits until a drain has closed all sockets. When ctx ends before, they are cut off, and its error is returned.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-s.empty:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.sockets {
		_ = k.conn.Close()
	}
	return context.Cause(ctx)
}

// drain takes no more operations, and closes the socket when those that end by themselves have ended.
func (k *socket) drain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.draining = true
	k.drained()
}

// drained closes the socket when it drains and nothing holds it any more. mu is held.
func (k *socket) drained() {
	if k.draining && k.finite == 0 {
		k.failing(CloseRestart, reasonRestart, errClosed)
	}
}
