package client

import (
	"context"
	"errors"
	"io"
	"time"
)

const watchQuery = `subscription($run: ID!, $after: Int!) {
  runEvents(runId: $run, after: $after) { through caughtUp events { ...EventFields } }
}` + eventFields

// Watch is one subscription to a run's events on a socket of its own. It ends with its connection; Feed does not.
type Watch struct {
	socket *Socket
	op     *Operation
	last   int64
}

// Batch is what a subscriber got at once.
type Batch struct {
	Events   []Event   `json:"events"`
	Through  int64     `json:"through"`
	CaughtUp bool      `json:"caughtUp"`
	At       time.Time `json:"-"` // when its frame arrived
}

// Watch subscribes to a run's events after a sequence.
func (c *Client) Watch(ctx context.Context, runID string, after int64) (*Watch, error) {
	s, err := c.Dial(ctx)
	if err != nil {
		return nil, err
	}
	op, err := s.Subscribe(watchQuery, Variables{"run": runID, "after": after})
	if err != nil {
		s.Close()
		return nil, err
	}
	return &Watch{socket: s, op: op, last: after}, nil
}

// Next returns the next batch. io.EOF when the server completed the subscription.
func (w *Watch) Next(ctx context.Context) (Batch, error) {
	var data struct {
		RunEvents Batch `json:"runEvents"`
	}
	at, err := w.op.Next(ctx, &data)
	if err != nil {
		return Batch{}, err
	}
	data.RunEvents.At = at
	w.last = data.RunEvents.Through
	return data.RunEvents, nil
}

// Through is the last sequence delivered: where another subscription goes on.
func (w *Watch) Through() int64 { return w.last }

// Until reads until done says so, or the server completes the subscription; completed reports which.
func (w *Watch) Until(ctx context.Context, done func(events []Event) bool) (events []Event, completed bool, err error) {
	for !done(events) {
		b, err := w.Next(ctx)
		if errors.Is(err, io.EOF) {
			return events, true, nil
		}
		if err != nil {
			return events, false, err
		}
		events = append(events, b.Events...)
	}
	return events, false, nil
}

// Rest reads until the server completes the subscription.
func (w *Watch) Rest(ctx context.Context) ([]Event, error) {
	events, _, err := w.Until(ctx, func([]Event) bool { return false })
	return events, err
}

// Cut drops the connection without a goodbye.
func (w *Watch) Cut() { w.socket.Cut() }

// Close ends the subscription and the connection.
func (w *Watch) Close() { w.socket.Close() }
