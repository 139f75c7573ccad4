package resolvers

import (
	"context"
	"strconv"

	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/resolvers/encode"
)

// sessionSource gives the events of a session's runs.
type sessionSource struct {
	frames  *frames
	form    *form
	session string
	epoch   string // of the logs
	reader  *run.SessionReader
	limit   int
	broken  error // as of runSource
}

// sessionSource opens one behind the argument's cursor, or behind after where that is not empty.
func (r *Root) sessionSource(ctx context.Context, args feedArgs, form *form, after string) (source, error) {
	given := args.cursor
	if after != "" {
		given = &after
	}
	cursor, err := r.sessionCursor(ctx, args.id, given)
	if err != nil {
		return nil, err
	}
	return &sessionSource{
		frames: r.frames, form: form, session: args.id, epoch: r.LogEpoch, reader: r.Feed.Subscribe(args.id, cursor), limit: r.Limits.BatchEvents,
	}, nil
}

func (s *sessionSource) poll(ctx context.Context) (Item, bool, error) {
	if s.broken != nil {
		return Item{}, false, s.broken
	}
	span, ok, err := s.reader.PollSpan(ctx, s.limit)
	if !ok || err != nil {
		return Item{}, false, err
	}
	s.broken = errUnwritten
	f, err := s.frames.get(spanKey(span.Span, span.CaughtUp, s.form), func() (Item, error) {
		cursor := encodeSessionCursor(s.session, span.Cursor(), s.epoch)
		payload, err := encodeSpan(span.Span, s.form, encode.Batch{
			CaughtUp: span.CaughtUp, Ord: span.Ord, Epoch: span.Epoch, Cursor: cursor,
		})
		return Item{Payload: payload, Cursor: cursor}, err
	})
	if s.broken = err; err != nil {
		return Item{}, false, err
	}
	return Item{Payload: f.item.Payload, Cursor: f.item.Cursor, Waiting: span.Waiting}, true, nil
}

func (s *sessionSource) notify(f func()) { s.reader.Notify(f) }
func (s *sessionSource) close()          { s.reader.Close() }

// encodeSessionCursor also names the history of the logs that the cursor counts in.
func encodeSessionCursor(sessionID string, c run.SessionCursor, epoch string) string {
	return encodeCursor(sessionFeed, sessionID, strconv.FormatInt(c.Ord, 10), strconv.FormatInt(c.Sequence, 10), epoch)
}
