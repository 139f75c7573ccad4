package swarm

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Stalled is one subscriber that reads nothing once it has subscribed.
type Stalled struct{ conn *conn }

// OpenStalled opens one socket with its subscriptions. ReceiveBuffer is best small: what it holds counts as read.
func OpenStalled(_ context.Context, o Options) (*Stalled, error) {
	if o.Path == "" {
		o.Path = "/graphql"
	}
	addr, err := netip.ParseAddrPort(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("failed to read the address of the server: %w", err)
	}
	c, err := (&Swarm{o: o}).dial(addr, 0)
	if err != nil {
		return nil, err
	}
	return &Stalled{c}, nil
}

// Gone returns nil when the server has given the connection up, or the context's error.
func (s *Stalled) Gone(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		// What was sent before lies in the buffer unread, so only a reset or a half-closed connection shows.
		ready := []unix.PollFd{{Fd: int32(s.conn.fd), Events: unix.POLLRDHUP}}
		if n, err := unix.Poll(ready, 0); n > 0 || (err != nil && err != unix.EINTR) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close resets the socket.
func (s *Stalled) Close() { s.conn.close() }
