package enginetest

import (
	"context"
	"errors"
	"io"

	"github.com/harness-engine/harness-engine/internal/client"
)

// stream is one subscription on a socket of its own; T is what the data of a result decodes to.
type stream[T any] struct {
	socket *Socket
	op     *Operation
}

func subscribe[T any](ctx context.Context, c *Client, query string, vars Variables) (*stream[T], error) {
	s, err := c.Dial(ctx)
	if err != nil {
		return nil, err
	}
	op, err := s.Subscribe(query, vars)
	if err != nil {
		s.Close()
		return nil, err
	}
	return &stream[T]{socket: s, op: op}, nil
}

func (s *stream[T]) next(ctx context.Context) (data T, err error) {
	_, err = s.op.Next(ctx, &data)
	return data, err
}

// Cut drops the connection without a goodbye.
func (s *stream[T]) Cut() { s.socket.Cut() }

// Close ends the subscription and the connection.
func (s *stream[T]) Close() { s.socket.Close() }

const sessionEventsQuery = `subscription($session: ID!, $after: SessionCursor) {
  sessionEvents(sessionId: $session, after: $after) { runId ord epoch through caughtUp events { ...EventFields } }
}` + client.EventFields

// SessionBatch is what a subscriber of a session gets at once: consecutive events of one run.
type SessionBatch struct {
	RunID    string  `json:"runId"`
	Ord      int64   `json:"ord"`
	Epoch    int64   `json:"epoch"`
	Events   []Event `json:"events"`
	Through  string  `json:"through"`
	CaughtUp bool    `json:"caughtUp"`
}

type sessionEventsData struct {
	SessionEvents SessionBatch `json:"sessionEvents"`
}

// SessionWatch is a subscription to the events of a session.
type SessionWatch struct{ *stream[sessionEventsData] }

// WatchSession subscribes to a session's events behind a cursor; the empty one is everything.
func (c *Client) WatchSession(ctx context.Context, sessionID, after string) (SessionWatch, error) {
	vars := Variables{"session": sessionID}
	if after != "" {
		vars["after"] = after
	}
	s, err := subscribe[sessionEventsData](ctx, c, sessionEventsQuery, vars)
	return SessionWatch{s}, err
}

// Next returns the next batch.
func (w SessionWatch) Next(ctx context.Context) (SessionBatch, error) {
	d, err := w.next(ctx)
	return d.SessionEvents, err
}

// ErrCompleted: the server completed a subscription that does not complete by itself.
var ErrCompleted = errors.New("subscription completed")

// Until reads until done says so of all batches so far.
func (w SessionWatch) Until(ctx context.Context, done func(batches []SessionBatch) bool) ([]SessionBatch, error) {
	var batches []SessionBatch
	for !done(batches) {
		b, err := w.Next(ctx)
		if errors.Is(err, io.EOF) {
			err = ErrCompleted
		}
		if err != nil {
			return batches, err
		}
		batches = append(batches, b)
	}
	return batches, nil
}

// Joined are the events of batches, in the order in which they came.
func Joined(batches []SessionBatch) []Event {
	var events []Event
	for _, b := range batches {
		events = append(events, b.Events...)
	}
	return events
}

type sessionChangedData struct {
	SessionChanged Talk `json:"sessionChanged"`
}

// ChangeWatch is a subscription to the changes of the caller's sessions.
type ChangeWatch struct{ *stream[sessionChangedData] }

// WatchChanges subscribes to the changes of the caller's sessions.
func (c *Client) WatchChanges(ctx context.Context) (ChangeWatch, error) {
	s, err := subscribe[sessionChangedData](ctx, c, `subscription { sessionChanged { ...TalkFields } }`+talkFields, nil)
	return ChangeWatch{s}, err
}

// Next returns the next session that changed.
func (w ChangeWatch) Next(ctx context.Context) (Talk, error) {
	d, err := w.next(ctx)
	return d.SessionChanged, err
}
