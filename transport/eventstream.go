package transport

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/resolvers"
)

const (
	// burst is how many bytes of messages are collected before they are written, where there is more to come.
	burst = 64 << 10
	// renewAhead is how long before a permission runs out it is asked for again, at most, so that a busy stream need not
	// pause.
	renewAhead = time.Second
)

// heartbeat is a comment, which keeps the connection from looking idle.
const heartbeat = ":\n\n"

// eventStream writes server-sent events to one client (HTML, section 9.2): as much at once as there is, each write
// within a deadline. It is used by one goroutine.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	buf     []byte // complete messages that are not written yet
	begun   bool
}

func (s *Server) eventStream(w http.ResponseWriter) *eventStream {
	return &eventStream{w: w, control: http.NewResponseController(w), timeout: s.limits.WriteTimeout}
}

// open sends the headers, so that the client knows that its stream is there. Further calls do nothing.
func (e *eventStream) open() error {
	if e.begun {
		return nil
	}
	e.begun = true
	// The request has been read; the listener's deadline for that would end the stream (net/http goes on reading, to see
	// the client leave).
	if err := e.control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	h := e.w.Header()
	h.Set("Content-Type", mediaStream)
	h.Set("X-Accel-Buffering", "no") // nginx would collect messages
	e.w.WriteHeader(http.StatusOK)
	return e.write([]byte(heartbeat))
}

// message adds a message. The id is left out where it is empty; data must have no line end.
func (e *eventStream) message(id, name string, data []byte) {
	if id != "" {
		e.buf = append(append(append(e.buf, "id: "...), id...), '\n')
	}
	e.buf = append(append(append(e.buf, "event: "...), name...), "\ndata: "...)
	e.buf = append(append(e.buf, data...), "\n\n"...)
}

// complete adds the message that ends an operation (graphql-sse, distinct connections mode).
func (e *eventStream) complete() { e.buf = append(e.buf, "event: complete\ndata: \n\n"...) }

// flush writes what was collected.
func (e *eventStream) flush() error {
	if len(e.buf) == 0 {
		return nil
	}
	err := e.write(e.buf)
	if e.buf = e.buf[:0]; cap(e.buf) > 2*burst {
		e.buf = nil
	}
	return err
}

func (e *eventStream) write(p []byte) error {
	if err := e.open(); err != nil {
		return err
	}
	// Whoever does not read is cut off, and comes back with its cursor.
	if err := e.control.SetWriteDeadline(time.Now().Add(e.timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := e.w.Write(p); err != nil {
		return err
	}
	return e.control.Flush()
}

// errGone: the client cannot be reached any more, or reads too slowly.
var errGone = errors.New("event stream: the client is gone")

// drainEach is how much time a drain gives itself for each stream, within Limits.DrainSpread: clients that come back all
// at once are a load of their own.
const drainEach = 2 * time.Millisecond

// streamContext is a context of the request that ends with the server, too, at a moment of its own.
func (s *Server) streamContext(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(s.life, func() {
		spread := min(time.Duration(s.streams.count())*drainEach, s.limits.DrainSpread)
		select {
		case <-time.After(rand.N(spread + 1)): //nolint:gosec // spreads load
		case <-ctx.Done():
		}
		cancel(context.Cause(s.life))
	})
	return ctx, func() { stop(); cancel(nil) }
}

// admitStream counts a stream of the caller; see quota.
func (s *Server) admitStream(ctx context.Context) (release func(), p *problem.Error) {
	who, _ := authz.CallerFrom(ctx) // nobody is bounded by the total
	return s.streams.take(who)
}

// follow writes what a feed has, until it has ended: io.EOF behind its last delivery, its error, errGone, or why ctx
// ended. put adds one delivery to the stream. Nothing is written later than the permission lasts. One goroutine beside it
// asks for that anew, so that neither heartbeats nor what is still permitted wait for the answer.
func (s *Server) follow(ctx context.Context, out *eventStream, feed resolvers.Feed, put func(resolvers.Item)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	wake := make(chan struct{}, 1)
	feed.Notify(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	renewal := make(chan error, 1)
	renewing := false
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel(nil)
	if err := out.open(); err != nil {
		return errGone
	}
	quiet := time.NewTimer(s.limits.PingInterval)
	defer quiet.Stop()
	expiry := time.NewTimer(0) // is set before each wait
	defer expiry.Stop()

	var end error       // of the feed; what came before it is still to be written
	dry := false        // nothing is to be polled before wake says so
	var until time.Time // of a state that is to be written; see resolvers.StateFeed
	ahead := min(renewAhead, time.Until(feed.Until())/5)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for end == nil && !dry && len(out.buf) < burst && until.IsZero() {
			item, ok, err := feed.Poll(ctx)
			switch {
			case err != nil && ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil:
				end = err
			case ok:
				put(item)
				dry, until = item.Waiting, item.Until
			default:
				dry = true
			}
		}
		if state, ok := feed.(resolvers.StateFeed); ok && !until.IsZero() && !time.Now().Before(until) {
			state.Again() // it is shown anew, as it is by then
			out.buf, until, dry = out.buf[:0], time.Time{}, false
			continue
		}
		left := time.Until(feed.Until())
		if left <= ahead && !renewing && (end == nil || len(out.buf) > 0) {
			renewing = true
			asking.Go(func() { renewal <- feed.Renew(ctx) })
		}
		switch {
		case len(out.buf) > 0 && left > 0:
			if err := out.flush(); err != nil {
				return errGone
			}
			until = time.Time{}
			quiet.Reset(s.limits.PingInterval)
			continue
		case len(out.buf) == 0 && end != nil:
			return end
		case len(out.buf) == 0 && !dry:
			continue
		}
		if !renewing {
			expiry.Reset(left - ahead)
		}
		select {
		case <-wake:
			dry = false
		case err := <-renewal:
			renewing = false
			switch {
			case err == nil:
				ahead = min(renewAhead, time.Until(feed.Until())/5)
			case ctx.Err() != nil:
				return context.Cause(ctx)
			default:
				out.buf = out.buf[:0] // not permitted any more
				return err
			}
		case <-expiry.C:
		case <-quiet.C:
			if err := out.write([]byte(heartbeat)); err != nil {
				return errGone
			}
			quiet.Reset(s.limits.PingInterval)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// isEOF reports whether a feed has ended as it should.
func isEOF(err error) bool { return errors.Is(err, io.EOF) }
