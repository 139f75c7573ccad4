package resolvers

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/resolvers/encode"
)

var errUnwritten = errors.New("resolvers: a delivery was not encoded")

// runSource gives the events of one run.
type runSource struct {
	frames *frames
	form   *form
	sub    *event.Subscription
	limit  int
	broken error // what it gave up at: the reader stands behind a delivery that was not made
}

func (s *runSource) poll(ctx context.Context) (Item, bool, error) {
	if s.broken != nil {
		return Item{}, false, s.broken
	}
	span, ok, err := s.sub.PollSpan(ctx, s.limit)
	if !ok || err != nil {
		return Item{}, false, err
	}
	s.broken = errUnwritten // by a panic
	f, err := s.frames.get(spanKey(span, span.CaughtUp, s.form), func() (Item, error) {
		payload, err := encodeSpan(span, s.form, encode.Batch{CaughtUp: span.CaughtUp})
		return Item{Payload: payload, Cursor: strconv.FormatInt(span.Through, 10)}, err
	})
	if s.broken = err; err != nil {
		return Item{}, false, err
	}
	return Item{Payload: f.item.Payload, Cursor: f.item.Cursor, Waiting: span.Waiting}, true, nil
}

func (s *runSource) notify(f func()) { s.sub.Notify(f) }
func (s *runSource) close()          { s.sub.Close() }

func spanKey(span event.Span, caughtUp bool, form *form) frameKey {
	return frameKey{
		runID: span.RunID, first: span.First, through: span.Through,
		caughtUp: caughtUp && form.saysCaughtUp(), form: form,
	}
}

// scratch holds the buffers that deliveries are encoded in; what is kept of them is a copy of their size.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

const maxScratch = 1 << 20 // bytes of a buffer that is used again

// encodeSpan writes the span's events into a batch of this form.
func encodeSpan(span event.Span, form *form, b encode.Batch) ([]byte, error) {
	events, err := span.Events()
	if err != nil {
		return nil, err
	}
	b.RunID, b.Events, b.Through = span.RunID, events, span.Through
	buf, _ := scratch.Get().(*[]byte)
	out, err := form.write((*buf)[:0], &b)
	if err != nil {
		return nil, err
	}
	payload := make([]byte, len(out))
	copy(payload, out)
	if cap(out) <= maxScratch {
		*buf = out[:0]
		scratch.Put(buf)
	}
	return payload, nil
}
