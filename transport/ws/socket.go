package ws

import (
	"container/list"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/gorilla/websocket"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// phase is how far a socket is in its life. It only goes up.
type phase int

const (
	phaseOpen     phase = iota // connection_init has not come
	phaseGreeting              // it is being judged
	phaseReady                 // operations may come
	phaseClosing               // a close frame is to be sent, behind what is queued
	phaseClosed                // it has been sent: nothing more may be
	phaseDead                  // the connection is gone
)

// Bounds of a socket.
const (
	maxQueued    = 64 << 10        // bytes of frames that wait for the writer; whoever has more waits
	maxPong      = 4 << 10         // bytes of a ping's payload that its answer repeats
	heldMessages = 4               // messages of the longest kind, in bytes, whose operations are not over
	linger       = time.Second     // for the other side's close frame
	lingering    = int64(16 << 20) // bytes that are read on to let a close frame arrive
)

// Reasons of close frames.
const (
	reasonRestart = "the engine is shutting down"
	reasonMuch    = "too much is being sent at once"
	reasonUnread  = "too many answers wait to be read"
)

var (
	errExpired = problem.New(problem.Unauthenticated, "the token has expired")
	errClosed  = problem.New(problem.Capacity, "the connection has ended")
)

// socket is one connection. What each delivery looks at stands first: of thousands of sockets that have a turn one after
// the other no cache holds more than that.
type socket struct {
	s *Server

	mu      sync.Mutex
	phase   phase
	ticked  bool
	writing bool // it is in the crew's line, or is being written
	pinged  bool
	refs    int             // reader, writer, greeting and operations
	ready   []*operation    // feeds that want the writer, in order
	lone    [1]*operation   // room for ready, where one is all
	queue   [][]byte        // frames
	queued  int             // bytes in queue
	ctx     context.Context // of operations; ends with the socket

	// Of the writer.
	raw     syscall.RawConn // of net, where it is TCP
	writeBy time.Time       // the deadline that is set
	lost    bool            // nothing can be written any more

	// Of mu as well.
	draining bool
	room     sync.Cond // there is room in queue, or no more sense in waiting for it
	code     int       // of the close frame, from phaseClosing on
	reason   string
	known    *Identity    // from the upgrade request
	who      authz.Caller // zero before the acknowledgement
	expires  time.Time
	initBy   time.Time
	pingAt   time.Time
	due      time.Time             // when timer fires; zero: not set
	ops      map[string]*operation // by id; an id is free when its operation is not here any more
	working  int                   // operations that are not let go yet
	held     int                   // bytes of the messages that they hold
	finite   int                   // of them those that end by themselves, as far as is known
	owed     int                   // bytes of answers that are not written yet
	owing    int                   // of them those in queue
	release  func()                // of the connection's place; of whoever is about to replace it, then of the last

	stranger *list.Element // of the server's mu: among those whose client is not known yet

	exec   graphql.GraphExecutor
	conn   *websocket.Conn
	net    net.Conn
	timer  *time.Timer
	heard  atomic.Bool // something came since the last ping
	cancel context.CancelCauseFunc
}

func newSocket(s *Server, conn *websocket.Conn, exec graphql.GraphExecutor, known *Identity, release func()) *socket {
	k := &socket{s: s, exec: exec, conn: conn, net: conn.NetConn(), release: release, known: known, refs: 1}
	k.room.L = &k.mu
	if tcp, ok := k.net.(*net.TCPConn); ok {
		k.raw, _ = tcp.SyscallConn() // an error is that of a connection which is closed already
	}
	k.ctx, k.cancel = context.WithCancelCause(context.Background())
	now := time.Now()
	k.initBy, k.pingAt = now.Add(s.o.Limits.InitTimeout), now.Add(s.o.Limits.PingInterval)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.arm(earliest(k.initBy, k.pingAt))
	return k
}

// earliest is the earlier of two moments, of which one may be zero.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// arm makes the timer fire at that moment, if not before. mu is held.
func (k *socket) arm(at time.Time) {
	if at.IsZero() || k.phase == phaseDead || !k.due.IsZero() && !at.Before(k.due) {
		return
	}
	k.due = at
	if k.timer == nil {
		k.timer = time.AfterFunc(time.Until(at), k.tick)
		return
	}
	k.timer.Reset(time.Until(at))
}

// tick is called by the timer.
func (k *socket) tick() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.phase == phaseDead {
		return
	}
	k.due, k.ticked = time.Time{}, true
	if k.writing && !k.expired(time.Now()) { // which must not wait for a writer that waits for the client
		k.arm(k.expires)
	}
	k.rouse()
}

// expired closes a socket whose token has expired. mu is held.
func (k *socket) expired(now time.Time) bool {
	if k.expires.IsZero() || now.Before(k.expires) {
		return false
	}
	k.failing(CloseForbidden, errExpired.Message, errExpired)
	return true
}

// rouse makes sure that it is looked at what there is to do: whoever writes to the socket looks again when it has written.
// mu is held.
func (k *socket) rouse() {
	if k.writing {
		return
	}
	k.writing = true
	k.refs++
	k.s.crew.submit(k)
}

// maintain does what is due: the ends of init and token, the ping, and the renewal of feeds. mu is held.
func (k *socket) maintain(now time.Time) {
	if k.phase >= phaseClosing {
		return
	}
	next := k.pingAt
	switch {
	case k.phase == phaseOpen && !now.Before(k.initBy):
		k.failing(CloseInitTimeout, "Connection initialisation timeout", errClosed)
		return
	case k.phase == phaseOpen:
		next = earliest(next, k.initBy)
	case k.expired(now):
		return
	default:
		next = earliest(next, k.expires)
	}
	if !now.Before(k.pingAt) {
		if k.pinged && !k.heard.Load() {
			_ = k.conn.Close() // gone without a word: the reader ends the socket
			return
		}
		k.heard.Store(false)
		k.pinged, k.pingAt = true, now.Add(k.s.o.Limits.PingInterval)
		k.enqueue(appendSole(nil, typePing, nil))
		next = earliest(k.pingAt, k.expires)
	}
	for _, op := range k.ops {
		if op.feed == nil {
			continue
		}
		if !now.Before(op.renewAt) {
			op.askAgain()
			continue
		}
		next = earliest(next, op.renewAt)
	}
	k.arm(next)
}

// send hands a frame to the writer. It waits for room; a socket that takes no more drops the frame.
func (k *socket) send(frame []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.full() {
		k.room.Wait()
	}
	k.put(frame)
}

// full reports whether there is no room, and will be. mu is held.
func (k *socket) full() bool { return k.queued > maxQueued && k.phase < phaseClosing }

// put hands a frame to the writer, whether or not there is room; false: the socket takes no more. mu is held.
func (k *socket) put(frame []byte) bool {
	if k.phase >= phaseClosing {
		return false
	}
	k.enqueue(frame)
	k.rouse()
	return true
}

// enqueue is put without waking. mu is held.
func (k *socket) enqueue(frame []byte) {
	k.queue = append(k.queue, frame)
	k.queued += len(frame)
}

// owe counts an answer that is about to wait for the client. Where it is too much beside what waits already, the socket
// is closed: whoever asks has to read. False: nothing more is sent. mu is held.
func (k *socket) owe(n int) bool {
	if k.phase >= phaseClosing {
		return false
	}
	if k.owed > 0 && k.owed+n > k.s.o.Limits.MaxAnswers || !k.s.o.Answers.Take(k.who, n) {
		k.failing(CloseTryAgain, reasonUnread, errClosed)
		return false
	}
	k.owed += n
	return true
}

// paid says that answers of so many bytes wait no more. mu is held.
func (k *socket) paid(n int) {
	k.owed -= n
	k.s.o.Answers.Give(k.who, n)
}

// putAnswer is put for an answer that is owed, which it is until it was written or dropped. mu is held.
func (k *socket) putAnswer(frame []byte) bool {
	if !k.put(frame) {
		k.paid(len(frame))
		return false
	}
	k.owing += len(frame)
	return true
}

// wrote says that the answers of a batch were written, or will not be.
func (k *socket) wrote(b *batch) {
	if b.owed == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.paid(b.owed)
	b.owed = 0
}

// fail closes the socket with a code of the protocol, unless it is being closed already.
func (k *socket) fail(code int, reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failing(code, reason, errClosed)
}

// failing is fail; mu is held. The cause is what operations see that are cut off.
func (k *socket) failing(code int, reason string, cause error) {
	if k.phase >= phaseClosing {
		return
	}
	k.phase, k.code, k.reason = phaseClosing, code, reason
	_ = k.net.SetWriteDeadline(time.Now().Add(2 * linger)) // for a write that is stuck
	k.cancel(cause)
	k.room.Broadcast()
	k.rouse()
}

// finish ends the socket; the reader calls it when nothing more can be read.
func (k *socket) finish() {
	k.cancel(errClosed)
	k.mu.Lock()
	k.phase = phaseDead
	if k.timer != nil {
		k.timer.Stop()
	}
	for id, op := range k.ops {
		delete(k.ops, id)
		op.stop()
	}
	k.queue, k.queued = nil, 0
	k.paid(k.owing)
	k.owing = 0
	k.room.Broadcast()
	if k.writing || len(k.ready) > 0 {
		k.rouse() // it lets feeds go
	}
	release := k.release
	k.release = nil
	k.mu.Unlock()
	_ = k.conn.Close()
	if release != nil {
		release()
	}
	k.done()
}

// done lets go of one part of the socket; with the last the socket is forgotten.
func (k *socket) done() {
	k.mu.Lock()
	k.refs--
	last := k.refs == 0
	k.mu.Unlock()
	if last {
		k.s.forget(k)
	}
}
