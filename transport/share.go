package transport

import (
	"context"
	"sync"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
)

var (
	errRequests = problem.New(problem.RateLimited, "too many requests of one caller at once").With("retryAfter", 1)
	errHeld     = problem.New(problem.Capacity, "too much is being sent at once").With("retryAfter", 1)
	errPlaces   = problem.New(problem.Capacity, "too many operations are being executed").With("retryAfter", 1)
	// errUnread has the code of an operation that was cut off: one that changes something has done so.
	errUnread = problem.New(problem.Timeout, "too many answers wait to be read; a mutation has taken effect")
)

// claim is what one request has of what callers share.
type claim struct {
	server *Server
	who    authz.Caller
	done   func() // gives the request's place back
	leave  func() // gives the place back where it is executed
	bytes  int    // of what it sent
}

// admitRequest counts one more request of the caller; nobody is a caller, too. It is counted until release.
func (s *Server) admitRequest(ctx context.Context) (*claim, *problem.Error) {
	who, _ := authz.CallerFrom(ctx)
	if !s.requests.Take(who, 1) {
		return nil, errRequests
	}
	return &claim{server: s, who: who, done: sync.OnceFunc(func() { s.requests.Give(who, 1) }), leave: func() {}}, nil
}

// hold counts n more bytes that the request has sent; false: there are too many.
func (c *claim) hold(n int) bool {
	if !c.server.held.Take(c.who, n) {
		return false
	}
	c.bytes += n
	return true
}

// enter waits for a place where an operation is executed, as long as that might take.
func (c *claim) enter(ctx context.Context) *problem.Error {
	ctx, cancel := context.WithTimeout(ctx, c.server.limits.OperationTimeout)
	defer cancel()
	leave, err := c.server.places.Enter(ctx, c.who)
	if err != nil {
		return errPlaces
	}
	c.leave = leave
	return nil
}

// release gives back what is left of the claim. It may be called again.
func (c *claim) release() {
	c.leave()
	c.server.held.Give(c.who, c.bytes)
	c.bytes = 0
	c.done()
}

// owe counts an answer that is about to be written; written must be called behind that. False: too much waits already.
func (c *claim) owe(n int) (written func(), ok bool) {
	if !c.server.unread.Take(c.who, n) {
		return nil, false
	}
	return func() { c.server.unread.Give(c.who, n) }, true
}
