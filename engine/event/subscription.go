package event

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Delivery is what one call of Next or Poll brings. Events may be shared with other readers: they are read-only.
type Delivery struct {
	Events   []Event // consecutive, at least one
	Through  int64   // sequence of the last of them: the cursor to come back with
	CaughtUp bool    // it reaches the end of the log as known when it was read
	Waiting  bool    // of Poll: see Span
}

// MaxDelivery is the most events that one delivery holds.
const MaxDelivery = 2048

// rereads is how often a gap is read again before it is an integrity error.
const rereads = 8

// Subscription is one reader of one run. It is used by one goroutine at a time; only Notify's function is called from
// others. It has no goroutine.
type Subscription struct {
	hub    *Hub
	runID  string
	cursor int64
	ended  bool
	topic  *topic
	gap    *gap // what is missing in the log, as long as it is

	round uint64 // of the topic's waiting readers, where it is one of them; guarded by topic.mu
	slot  int    // its place among them

	bell Bell
}

// gap is a place where the log does not show what is known to be there. A replica may lag behind what is durable.
type gap struct {
	reads int
	pause time.Duration
	until time.Time // when it is read again
	timer *time.Timer
}

// Cursor is the sequence of the last event delivered.
func (s *Subscription) Cursor() int64 { return s.cursor }

// Next waits for events after the cursor and returns at most limit of them (and at most MaxDelivery), without gap or
// repeat. io.EOF comes after the terminal was delivered, or when the cursor is at or past the end of an ended run. A
// cursor past the end of a live run waits. ErrIntegrity, ErrHubClosed and *ExpiredError are wrapped or plain; other
// errors are the context's or the log's, and Next may be called again after them. Between two calls the subscription
// holds nothing. It puts itself into the place of Notify's function.
func (s *Subscription) Next(ctx context.Context, limit int) (Delivery, error) {
	var woken chan struct{}
	for {
		d, ok, err := s.Poll(ctx, limit)
		if d.Waiting && woken == nil {
			s.topic.leave(s)
		}
		if d.Waiting = false; ok || err != nil {
			return d, err
		}
		if woken == nil {
			woken = make(chan struct{}, 1)
			defer s.Close()
			s.Notify(func() {
				select {
				case woken <- struct{}{}:
				default:
				}
			})
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return Delivery{}, context.Cause(ctx)
		}
	}
}

// Poll returns what is after the cursor now, as Next does, without waiting for events; it may read the log. ok is false
// where there is nothing yet: then the subscription counts as a reader, and is notified, until the next Poll or Close. So
// it is behind a delivery that says Waiting: who has followed so far needs one Poll for each delivery, not another one that
// finds nothing.
//
// A delivery ends where a chunk ends, as far as limit lets it; which of several chunks it ends with depends on the chunks
// alone, so that readers who once were at different places soon get the same deliveries.
func (s *Subscription) Poll(ctx context.Context, limit int) (d Delivery, ok bool, err error) {
	span, ok, err := s.PollSpan(ctx, limit)
	if !ok || err != nil {
		return Delivery{}, false, err
	}
	events, err := span.Events()
	if err != nil {
		s.cursor, s.ended = span.First-1, false
		return Delivery{}, false, err
	}
	return Delivery{Events: events, Through: span.Through, CaughtUp: span.CaughtUp, Waiting: span.Waiting}, true, nil
}

// PollSpan is Poll without decoding: most readers find that another one has decoded, and encoded, the same span.
func (s *Subscription) PollSpan(ctx context.Context, limit int) (Span, bool, error) {
	if s.ended {
		return Span{}, false, io.EOF
	}
	limit = min(limit, MaxDelivery)
	if limit < 1 {
		return Span{}, false, fmt.Errorf("failed to read events of %s: limit %d below 1", s.runID, limit)
	}
	s.bell.Quiet()
	span, ok, err := s.poll(ctx, limit)
	if err != nil {
		if s.hub.life.Err() != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
			err = ErrHubClosed
		}
		return Span{}, false, err
	}
	if ok {
		s.cursor, s.ended = span.Through, span.Terminal
		s.mend()
	}
	return span, ok, nil
}

func (s *Subscription) poll(ctx context.Context, limit int) (Span, bool, error) {
	for {
		if s.topic == nil {
			t, err := s.hub.enter(s.runID)
			if err != nil {
				return Span{}, false, err
			}
			s.topic, s.round = t, 0
		}
		l := s.topic.read(s, limit)
		switch {
		case l.gone:
			s.topic = nil
		case !l.known:
			if err := s.hub.learn(ctx, s.topic); err != nil {
				return Span{}, false, err
			}
		case l.ended:
			s.ended = true
			return Span{}, false, io.EOF
		case !l.found:
			return Span{}, false, nil
		case len(l.span) > 0:
			out := s.span(l.span, l.through, l.top)
			out.Waiting = l.waits
			return out, true, nil
		default:
			return s.replay(ctx, l.top, limit)
		}
	}
}

// replay reads the log for events after the cursor, which are known to be there: top is above the cursor.
func (s *Subscription) replay(ctx context.Context, top int64, limit int) (Span, bool, error) {
	if ctx.Err() != nil {
		return Span{}, false, context.Cause(ctx)
	}
	if s.gap != nil && time.Now().Before(s.gap.until) {
		s.topic.await(s)
		return Span{}, false, nil
	}
	p, err := s.hub.page(ctx, s.topic, s.cursor)
	if err != nil {
		return Span{}, false, err
	}
	if p.through <= s.cursor {
		return Span{}, false, s.missing(top)
	}
	chunks := p.chunks
	for chunks[0].chunk.Last <= s.cursor {
		chunks = chunks[1:]
	}
	if p.through < top {
		s.hub.readAhead(s.topic, p.through)
	}
	parts, through := span(chunks, s.cursor, limit)
	return s.span(parts, through, top), true, nil
}

// missing has the gap read again after a pause, or gives up.
func (s *Subscription) missing(top int64) error {
	if s.gap == nil {
		s.gap = &gap{pause: s.hub.o.Reread}
	}
	g := s.gap
	if g.reads == rereads {
		s.mend()
		return fmt.Errorf("%w: event %d of %s is missing, the log reaches %d", ErrIntegrity, s.cursor+1, s.runID, top)
	}
	g.reads++
	g.until = time.Now().Add(g.pause)
	if g.timer != nil {
		g.timer.Stop()
	}
	g.timer = time.AfterFunc(g.pause, s.wake)
	g.pause *= 2
	s.topic.await(s) // it is still a reader
	return nil
}

func (s *Subscription) mend() {
	if s.gap != nil && s.gap.timer != nil {
		s.gap.timer.Stop()
	}
	s.gap = nil
}

// Notify sets f, which is called, from any goroutine, when a Poll that found nothing, or whose delivery says Waiting, may
// find something now; it must not block, nor call the subscription. It is level-triggered: where that has happened since
// the Poll, f is called at once. A call may also come for nothing.
func (s *Subscription) Notify(f func()) {
	s.bell.Notify(f)
}

func (s *Subscription) wake() { s.bell.Ring() }

// Close ends the wait that a Poll has begun, and drops Notify's function, which may still be in a call. The subscription
// may be polled again.
func (s *Subscription) Close() {
	s.mend()
	if s.topic != nil {
		s.topic.leave(s)
		s.topic = nil
	}
	s.bell.Take()
}
