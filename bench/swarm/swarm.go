// Package swarm is thousands of subscribers in one process that cost little: raw sockets with graphql-transport-ws on
// them, read by a few goroutines with epoll, and scanned for what a benchmark counts instead of being decoded. Each
// subscriber checks that its events come one after the other, so that a server that loses or doubles is no fast server.
// It runs on Linux.
package swarm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Options say where the subscribers connect and what they ask for.
type Options struct {
	Addr    string // host:port, an IP address
	Path    string // default /graphql
	Token   string // goes into connection_init; may be empty
	Query   string // of every subscription
	Sockets int
	Loops   int // goroutines that read; default 2
	Dialers int // sockets that are opened at once; default 64
	// Variables are those of the subscriptions of one socket, one JSON object each: as many as there are to be.
	Variables func(socket int) []string
	// ReceiveBuffer is the size of each socket's receive buffer in bytes; 0 leaves it to the kernel.
	ReceiveBuffer int
}

// Swarm is the open sockets. Counters go on rising until it is closed.
type Swarm struct {
	o     Options
	loops []*loop
	group sync.WaitGroup

	events    atomic.Int64 // of all subscribers
	frames    atomic.Int64 // messages of the server that held events
	bytes     atomic.Int64 // read from all sockets
	messages  atomic.Int64 // text.finished events
	ended     atomic.Int64 // terminal events
	completed atomic.Int64 // operations that the server completed
	gone      atomic.Int64 // sockets that the server closed
	sampling  atomic.Bool

	mu   sync.Mutex
	err  error
	next int // loop of the next socket

	closing sync.Once
}

// Count is a reading of a swarm's counters.
type Count struct {
	Events, Frames, Bytes int64
	Messages              int64 // text.finished events
	Ended                 int64 // terminal events
	Completed             int64 // operations that the server completed
	Gone                  int64 // sockets that the server closed
}

// Open connects, subscribes, and returns when every operation has been sent. The swarm reads until Close.
func Open(ctx context.Context, o Options) (*Swarm, error) {
	o.Path = cmp.Or(o.Path, "/graphql")
	o.Loops = cmp.Or(max(o.Loops, 0), 2)
	o.Dialers = cmp.Or(max(o.Dialers, 0), 64)
	s := &Swarm{o: o}
	for range o.Loops {
		l, err := newLoop(s)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.loops = append(s.loops, l)
		s.group.Go(l.run)
	}
	if err := s.dialAll(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Swarm) dialAll(ctx context.Context) error {
	addr, err := netip.ParseAddrPort(s.o.Addr)
	if err != nil {
		return fmt.Errorf("failed to read the address of the server: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	var taken atomic.Int64
	for range min(s.o.Dialers, s.o.Sockets) {
		group.Go(func() {
			for ctx.Err() == nil {
				i := int(taken.Add(1)) - 1
				if i >= s.o.Sockets {
					return
				}
				c, err := s.dial(addr, i)
				if err == nil {
					err = s.place(c)
				}
				if err != nil {
					cancel(fmt.Errorf("failed to open socket %d of %d: %w", i+1, s.o.Sockets, err))
					return
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// place gives the socket to the loop whose turn it is.
func (s *Swarm) place(c *conn) error {
	s.mu.Lock()
	l := s.loops[s.next%len(s.loops)]
	s.next++
	s.mu.Unlock()
	return l.add(c)
}

// Count reads the counters.
func (s *Swarm) Count() Count {
	return Count{
		Events: s.events.Load(), Frames: s.frames.Load(), Bytes: s.bytes.Load(), Messages: s.messages.Load(),
		Ended: s.ended.Load(), Completed: s.completed.Load(), Gone: s.gone.Load(),
	}
}

// Sample begins or ends the keeping of latencies: from the time stamp of a text.delta, which has whole milliseconds, to
// the moment when its socket was read.
func (s *Swarm) Sample(on bool) { s.sampling.Store(on) }

// Latencies takes all latencies that were kept so far out of the swarm.
func (s *Swarm) Latencies() []time.Duration {
	var all []time.Duration
	for _, l := range s.loops {
		l.mu.Lock()
		all = append(all, l.latencies...)
		l.latencies = nil
		l.mu.Unlock()
	}
	return all
}

// waitPause is the time between two looks at the counters.
const waitPause = time.Millisecond

// Wait returns when the counters are as wanted. A socket that the server closes, a gap, or an error of an operation ends
// it with an error.
func (s *Swarm) Wait(ctx context.Context, wanted func(Count) bool) (Count, error) {
	tick := time.NewTicker(waitPause)
	defer tick.Stop()
	for {
		if c := s.Count(); wanted(c) {
			return c, nil
		}
		s.mu.Lock()
		err := s.err
		s.mu.Unlock()
		if err != nil {
			return s.Count(), err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s.Count(), fmt.Errorf("the subscribers have got %+v: %w", s.Count(), context.Cause(ctx))
		}
	}
}

func (s *Swarm) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// Close resets all sockets, without a goodbye. It may be called again.
func (s *Swarm) Close() { s.closing.Do(s.close) }

func (s *Swarm) close() {
	for _, l := range s.loops {
		l.stop()
	}
	s.group.Wait()
	for _, l := range s.loops {
		l.close()
	}
}

// loop reads its sockets.
type loop struct {
	swarm *Swarm
	epoll int
	wake  int // event descriptor: ends run

	mu        sync.Mutex
	conns     map[int32]*conn
	latencies []time.Duration
}

func newLoop(s *Swarm) (*loop, error) {
	l := &loop{swarm: s, epoll: -1, wake: -1, conns: map[int32]*conn{}}
	var err error
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("failed to make an epoll: %w", err)
	}
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		l.close()
		return nil, fmt.Errorf("failed to make an event descriptor: %w", err)
	}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, l.wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(l.wake)}); err != nil {
		l.close()
		return nil, fmt.Errorf("failed to watch an event descriptor: %w", err)
	}
	return l, nil
}

func (l *loop) add(c *conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[int32(c.fd)] = c
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.fd)}); err != nil {
		return fmt.Errorf("failed to watch a socket: %w", err)
	}
	return nil
}

// readSize is how much is read from a socket at once.
const readSize = 256 << 10

func (l *loop) run() {
	ready := make([]unix.EpollEvent, 512)
	buffer := make([]byte, readSize)
	for {
		n, err := unix.EpollWait(l.epoll, ready, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			l.swarm.fail(fmt.Errorf("failed to wait for sockets: %w", err))
			return
		}
		l.mu.Lock()
		var sum tally
		for _, e := range ready[:n] {
			if int(e.Fd) == l.wake {
				l.mu.Unlock()
				return
			}
			if c := l.conns[e.Fd]; c != nil {
				l.read(c, buffer, &sum)
			}
		}
		l.latencies = append(l.latencies, sum.latencies...)
		l.mu.Unlock()
		l.swarm.add(sum)
	}
}

// read takes what there is at the socket.
func (l *loop) read(c *conn, buffer []byte, sum *tally) {
	n, err := unix.Read(c.fd, buffer)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return
	case err != nil || n == 0:
		l.forget(c)
		sum.gone++
		l.swarm.fail(fmt.Errorf("the server closed a socket (%w): %s", errors.Join(err, errGone), c.last))
		return
	}
	sum.bytes += int64(n)
	sum.now, sum.sampling = time.Now(), l.swarm.sampling.Load()
	if err := c.take(buffer[:n], sum); err != nil {
		l.forget(c)
		l.swarm.fail(err)
	}
}

var errGone = errors.New("connection ended")

func (l *loop) forget(c *conn) {
	delete(l.conns, int32(c.fd))
	c.close()
}

func (l *loop) stop() {
	if l.wake >= 0 {
		_, _ = unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // a full counter wakes as well
	}
}

func (l *loop) close() {
	for _, c := range l.conns {
		c.close()
	}
	l.conns = nil
	for _, fd := range []int{l.epoll, l.wake} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// tally is what one turn of a loop adds to the counters.
type tally struct {
	now       time.Time
	sampling  bool
	latencies []time.Duration

	events, frames, bytes, messages, ended, completed, gone int64
}

func (s *Swarm) add(t tally) {
	s.bytes.Add(t.bytes)
	s.frames.Add(t.frames)
	s.completed.Add(t.completed)
	s.gone.Add(t.gone)
	s.events.Add(t.events)
	s.messages.Add(t.messages) // behind events: who waits for messages reads all events before them
	s.ended.Add(t.ended)
}
