package ws

import (
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/vektah/gqlparser/v2/gqlerror"
)

// Bounds of one write. Each feed gives one delivery in turn, so none waits for longer than a round of the others.
const (
	batchBytes   = 64 << 10 // no more is gathered beyond
	batchEntries = 64
	sharedBytes  = 16 << 10 // a longer payload is written from where it is, not copied
)

// entry is one thing to be written: a frame, or what a feed gave.
type entry struct {
	op      *operation
	payload []byte    // of next; without op a whole frame
	until   time.Time // a delivery is permitted until then, at least; of a state: at most
	waiting bool      // its feed tells when there is more
	state   bool      // it is of use only until then; see resolvers.StateFeed
	last    bool      // the operation's last: complete, or the failure
	failure *gqlerror.Error
}

func (op *operation) failed(err *gqlerror.Error) entry {
	return entry{op: op, last: true, failure: err}
}

// batch is what goes into one write, and what a goroutine needs for it.
type batch struct {
	entries []entry
	size    int
	owed    int // bytes of answers among them
	buf     []byte
	cuts    []cut
	parts   net.Buffers

	crew  *crew
	alone bool      // the goroutine is a socket's own, and may wait
	now   time.Time // when it last looked at a clock

	attempt func(fd uintptr) bool // of write, made once
	written int                   // bytes of buf that the connection has taken
	failure error
}

func newBatch(c *crew) *batch {
	b := &batch{crew: c}
	b.attempt = b.try
	return b
}

// cut is a payload that is written from where it is, behind buf[:at].
type cut struct {
	at      int
	payload []byte
}

func (b *batch) add(e entry) {
	b.entries = append(b.entries, e)
	b.size += len(e.payload)
}

func (b *batch) reset() {
	clear(b.entries)
	clear(b.cuts)
	b.entries, b.cuts, b.size = b.entries[:0], b.cuts[:0], 0
	if b.buf = b.buf[:0]; cap(b.buf) > 2*batchBytes {
		b.buf = nil
	}
}

// write writes what there is to be written to the socket. The goroutine is the crew's, and it reports whether it still is:
// where something has to be waited for, it has become the socket's own.
func (k *socket) write(b *batch) (crew bool) {
	for {
		k.collect(b)
		k.gather(b)
		if len(b.entries) > 0 && !k.lost {
			k.lost = !k.flush(b)
		}
		k.wrote(b)
		b.reset()
		switch {
		case !k.pending():
			return !b.alone
		case !b.alone: // others have their turn
			k.s.crew.submit(k)
			return true
		}
	}
}

// pending reports whether there is something left to do. If not, nobody writes to the socket until it is roused.
func (k *socket) pending() bool {
	k.mu.Lock()
	if len(k.queue) > 0 || len(k.ready) > 0 || k.ticked || k.phase == phaseClosing {
		k.mu.Unlock()
		return true
	}
	k.writing = false
	k.refs--
	last := k.refs == 0
	k.mu.Unlock()
	if last {
		k.s.forget(k)
	}
	return false
}

// leaveCrew makes the goroutine the socket's own, before it does what may have to wait.
func (b *batch) leaveCrew() {
	if !b.alone {
		b.alone = true
		b.crew.leave()
	}
}

// collect does what is due and takes the frames that wait. Behind them comes the close frame, where there is to be one.
func (k *socket) collect(b *batch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ticked {
		k.ticked = false
		b.now = time.Now()
		k.maintain(b.now)
	}
	if len(k.queue) > 0 && k.phase <= phaseClosing {
		for i, frame := range k.queue {
			b.add(entry{payload: frame})
			k.queue[i] = nil
		}
	}
	if k.queued > 0 {
		if k.queue = k.queue[:0]; cap(k.queue) > 8 {
			k.queue = nil
		}
		k.queued = 0
		k.room.Broadcast()
	}
	b.owed, k.owing = k.owing, 0
	if k.phase == phaseClosing {
		k.phase = phaseClosed
		b.add(entry{payload: appendClose(nil, k.code, k.reason), last: true})
	}
}

// gather polls the feeds that are ready, in turn. Whether they are permitted still is looked at with the clock's last reading
// here: flush takes another one before anything is written.
func (k *socket) gather(b *batch) {
	for b.size < batchBytes && len(b.entries) < batchEntries {
		op, until, failure := k.nextReady()
		switch {
		case op == nil:
			return
		case failure != nil:
			op.held = nil
			b.add(op.failed(failure))
			continue
		case !b.now.Before(until):
			op.starve()
			continue
		case op.held != nil:
			for _, e := range op.held {
				b.add(e)
			}
			op.held = nil
		}
		if !op.follows { // it may have to read the log
			b.leaveCrew()
		}
		e, ok := op.poll(k.ctx)
		op.follows = (!ok || e.waiting) && !op.state
		if !ok {
			continue
		}
		if e.until.IsZero() || until.Before(e.until) {
			e.until = until
		}
		b.add(e)
		if !e.last && !e.waiting {
			k.mu.Lock()
			op.want()
			k.mu.Unlock()
		}
	}
}

// nextReady is the feed whose turn it is; those that are over are let go.
func (k *socket) nextReady() (op *operation, until time.Time, failure *gqlerror.Error) {
	for {
		k.mu.Lock()
		if len(k.ready) == 0 {
			if cap(k.ready) > 8 {
				k.ready = nil
			}
			k.mu.Unlock()
			return nil, until, nil
		}
		op = k.ready[0]
		k.ready[0] = nil
		if k.ready = k.ready[1:]; len(k.ready) == 0 {
			k.ready, k.lone[0] = nil, nil
		}
		op.queued = false
		over, renewing, failure, leaving := op.over.Load(), op.renewing, op.failure, k.phase >= phaseClosing
		until = op.until
		k.mu.Unlock()
		switch {
		case over && !renewing: // else it comes again
			op.feed.Close()
			op.held = nil
			op.let()
		case !over && !leaving:
			return op, until, failure
		}
	}
}

// flush writes the batch; false: the connection is lost. What a feed gave is written while it is permitted; where it is
// no more it is held, and so is what follows it.
func (k *socket) flush(b *batch) bool {
	closing := false
	now := time.Now()
	b.now = now
	for _, e := range b.entries {
		op := e.op
		switch {
		case op == nil:
			closing = closing || e.last
			b.append(e.payload)
		case op.over.Load(): // by the client; it is let go at its turn
		case e.failure != nil:
			b.buf = append(b.buf, errorFrame(op.rawID, gqlerror.List{e.failure})...)
			op.dismiss()
		case e.state && !now.Before(e.until): // it is shown anew, as it is by then
			op.again()
		case op.held != nil || !now.Before(e.until) && !now.Before(op.feed.Until()):
			op.held = append(op.held, e)
			op.starve()
		case e.last:
			b.buf = appendComplete(b.buf, op.rawID)
			op.dismiss()
		default:
			b.buf = appendPrefix(b.buf, op.rawID, typeNext, len(e.payload))
			b.append(e.payload)
			b.buf = append(b.buf, afterPayload...)
		}
	}
	if len(b.buf) == 0 && len(b.cuts) == 0 {
		return true
	}
	// The deadline is moved on now and then, not for each write, which has the whole timeout in any case.
	if limit := k.s.o.Limits.WriteTimeout; closing || k.writeBy.Sub(now) < limit {
		k.writeBy = now.Add(limit + limit/8)
		_ = k.net.SetWriteDeadline(k.writeBy)
	}
	err := k.writeOut(b)
	switch {
	case err != nil:
		_ = k.conn.Close() // the reader ends the socket
		return false
	case closing: // the other side has a moment to answer
		_ = k.net.SetReadDeadline(time.Now().Add(linger))
	}
	return true
}

// dismiss ends a feed whose last word is about to be written. It is let go at its next turn.
func (op *operation) dismiss() {
	if op.end() {
		op.k.mu.Lock()
		op.want()
		op.k.mu.Unlock()
	}
}

// append adds bytes that are complete, a frame or a payload.
func (b *batch) append(p []byte) {
	if len(p) > sharedBytes {
		b.cuts = append(b.cuts, cut{len(b.buf), p})
		return
	}
	b.buf = append(b.buf, p...)
}

// writeOut writes the batch. What the connection does not take at once is waited for on a goroutine of the socket's own.
func (k *socket) writeOut(b *batch) error {
	if k.raw == nil || len(b.cuts) > 0 {
		b.leaveCrew()
		return b.writeTo(k.net)
	}
	// The connection's own lock is held until all is written, so that no control frame of gorilla's can come between.
	b.written, b.failure = 0, nil
	if err := k.raw.Write(b.attempt); err != nil {
		return err
	}
	return b.failure
}

// try writes what the connection takes; false: it takes no more for now.
func (b *batch) try(fd uintptr) bool {
	for b.written < len(b.buf) {
		n, err := attempt(fd, b.buf[b.written:])
		switch {
		case err == nil:
			b.written += n
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			b.leaveCrew()
			return false
		default:
			b.failure = err
			return true
		}
	}
	return true
}

// writeTo writes everything with one call, so that no control frame of gorilla's can come between.
func (b *batch) writeTo(conn net.Conn) error {
	if len(b.cuts) == 0 {
		_, err := conn.Write(b.buf)
		return err
	}
	b.parts = b.parts[:0]
	from := 0
	for _, c := range b.cuts {
		if c.at > from {
			b.parts = append(b.parts, b.buf[from:c.at])
			from = c.at
		}
		b.parts = append(b.parts, c.payload)
	}
	if from < len(b.buf) {
		b.parts = append(b.parts, b.buf[from:])
	}
	whole := b.parts
	defer clear(whole)
	if _, ok := conn.(*net.TCPConn); !ok { // no writev
		var joined []byte
		for _, p := range whole {
			joined = append(joined, p...)
		}
		_, err := conn.Write(joined)
		return err
	}
	parts := whole // WriteTo consumes it
	_, err := parts.WriteTo(conn)
	return err
}
