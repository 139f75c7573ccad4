package event

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Delivery is what one call of Next brings. Events may be shared with other readers: they are read-only.
type Delivery struct {
	Events   []Event // consecutive, at least one
	Through  int64   // sequence of the last of them: the cursor to come back with
	CaughtUp bool    // it reaches the end of the log as known when it was read
}

// MaxDelivery is the most events that one delivery holds.
const MaxDelivery = 2048

// rereads is how often a gap is read again before it is an integrity error.
const rereads = 8

// Subscription is one reader of one run. It is used by one goroutine at a time.
type Subscription struct {
	hub    *Hub
	runID  string
	cursor int64
	ended  bool
}

// Cursor is the sequence of the last event delivered.
func (s *Subscription) Cursor() int64 { return s.cursor }

// Next waits for events after the cursor and returns at most limit of them (and at most MaxDelivery), without gap or
// repeat. io.EOF comes after the terminal was delivered, or when the cursor is at or past the end of an ended run. A
// cursor past the end of a live run waits. ErrIntegrity and ErrHubClosed are wrapped or plain; other errors are
// the context's or the log's, and Next may be called again after them.
func (s *Subscription) Next(ctx context.Context, limit int) (Delivery, error) {
	if s.ended {
		return Delivery{}, io.EOF
	}
	limit = min(limit, MaxDelivery)
	if limit < 1 {
		return Delivery{}, fmt.Errorf("failed to read events of %s: limit %d below 1", s.runID, limit)
	}
	t, err := s.hub.enter(s.runID) // register, then read, then wait
	if err != nil {
		return Delivery{}, err
	}
	defer s.hub.leave(t)
	d, err := s.next(ctx, t, limit)
	if err != nil {
		if s.hub.life.Err() != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
			return Delivery{}, ErrHubClosed
		}
		return Delivery{}, err
	}
	s.cursor = d.Through
	s.ended = d.Events[len(d.Events)-1].Type().Terminal()
	return d, nil
}

func (s *Subscription) next(ctx context.Context, t *topic, limit int) (Delivery, error) {
	if _, _, known := t.state(); !known {
		if err := s.hub.refresh(ctx, t); err != nil {
			return Delivery{}, fmt.Errorf("failed to read tail of %s: %w", s.runID, err)
		}
	}
	for {
		top, ended, changed := t.watch()
		if top > s.cursor {
			return s.read(ctx, t, top, limit)
		}
		if ended {
			s.ended = true
			return Delivery{}, io.EOF
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Delivery{}, context.Cause(ctx)
		case <-s.hub.life.Done():
			return Delivery{}, ErrHubClosed
		}
	}
}

// read returns events after the cursor, which are known to be there: top is above the cursor.
func (s *Subscription) read(ctx context.Context, t *topic, top int64, limit int) (Delivery, error) {
	if chunks := t.after(s.cursor); len(chunks) > 0 {
		return s.fromRing(chunks, top, limit)
	}
	pause := s.hub.o.Reread
	for attempt := 0; ; attempt++ {
		events, err := s.fromLog(ctx, limit)
		if err != nil {
			return Delivery{}, err
		}
		if len(events) > 0 {
			return s.deliver(events, top), nil
		}
		if attempt == rereads {
			return Delivery{}, fmt.Errorf("%w: event %d of %s is missing, the log reaches %d", ErrIntegrity, s.cursor+1, s.runID, top)
		}
		// A replica may lag behind what is durable.
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return Delivery{}, context.Cause(ctx)
		case <-s.hub.life.Done():
			timer.Stop()
			return Delivery{}, ErrHubClosed
		}
		pause *= 2
	}
}

func (s *Subscription) deliver(events []Event, top int64) Delivery {
	through := events[len(events)-1].Sequence
	return Delivery{Events: events, Through: through, CaughtUp: through >= top}
}

// fromRing shares the decoded events of the ring; one chunk is shared as it is, several are joined.
func (s *Subscription) fromRing(chunks []*held, top int64, limit int) (Delivery, error) {
	var out []Event
	for _, k := range chunks {
		events, err := k.decoded()
		if err != nil {
			return Delivery{}, fmt.Errorf("%w: %w", ErrIntegrity, err)
		}
		if skip := s.cursor + 1 - k.chunk.First; skip > 0 {
			events = events[skip:]
		}
		events = events[:min(len(events), limit-len(out))]
		if out == nil {
			out = events[:len(events):len(events)] // an append copies
		} else {
			out = append(out, events...)
		}
		if len(out) == limit {
			break
		}
	}
	return s.deliver(out, top), nil
}

// fromLog reads at most limit events that follow the cursor without a gap; none when the log does not show the next.
func (s *Subscription) fromLog(ctx context.Context, limit int) ([]Event, error) {
	chunks, err := s.hub.o.Log.Read(ctx, s.runID, s.cursor, limit)
	if err != nil {
		return nil, fmt.Errorf("failed to read events of %s after %d: %w", s.runID, s.cursor, err)
	}
	var out []Event
	next := s.cursor + 1
	for _, c := range chunks {
		if c.Last < next {
			continue
		}
		if c.First > next {
			break // a gap: what is before it is delivered, the rest is read again
		}
		if err := c.Verify(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrIntegrity, err)
		}
		events, err := c.Events()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrIntegrity, err)
		}
		events = events[next-c.First:]
		out = append(out, events[:min(len(events), limit-len(out))]...)
		if len(out) == limit {
			break
		}
		next = c.Last + 1
	}
	return out, nil
}
