package resolvers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/graph/model"
)

const sessionFeed = "sessionEvents"

// changesAtOnce is how many changed sessions are taken and read at a time.
const changesAtOnce = 32

// SessionEvents follows the runs of a session, present and future.
func (s subscriptions) SessionEvents(ctx context.Context, sessionID string, after *string) (<-chan *model.SessionEventBatch, error) {
	cursor, err := s.sessionCursor(ctx, sessionID, after)
	if err != nil {
		return nil, err
	}
	l, err := s.grant(ctx, authz.CanView, authz.Session(sessionID))
	if err != nil {
		return nil, err
	}
	reader := s.Feed.Subscribe(sessionID, cursor)
	return stream(ctx, l, func(ctx context.Context) (*model.SessionEventBatch, error) {
		d, err := reader.Next(ctx, s.Limits.BatchEvents)
		if err != nil {
			return nil, err
		}
		events, err := eventModels(d.Events)
		return &model.SessionEventBatch{
			RunID: d.RunID, Ord: d.Ord, Epoch: d.Epoch, Events: events, CaughtUp: d.CaughtUp,
			Through: encodeSessionCursor(sessionID, d.Through, s.LogEpoch),
		}, err
	}, nil), nil
}

// sessionCursor reads a cursor of the session's feed. One that names a run which the session never had would wait for
// ever, and is refused; one of another history of the logs has expired, and the client begins anew. A cursor of an earlier
// version of the engine names none.
func (r *Root) sessionCursor(ctx context.Context, sessionID string, after *string) (c run.SessionCursor, err error) {
	parts, err := decodeCursor(sessionFeed, after, 4)
	if err != nil {
		if parts, err = decodeCursor(sessionFeed, after, 3); err == nil {
			parts = append(parts, r.LogEpoch)
		}
	}
	if err != nil || parts == nil {
		return c, err
	}
	if c.Ord, err = decodeNumber(parts[1]); err != nil {
		return c, err
	}
	if c.Sequence, err = decodeNumber(parts[2]); err != nil {
		return c, err
	}
	if parts[0] == sessionID && parts[3] != r.LogEpoch {
		return c, problem.New(problem.CursorExpired, "the cursor is of another history of the session").With("logEpoch", r.LogEpoch)
	}
	b, err := r.loaders(ctx).session.Load(ctx, sessionID)
	if err != nil {
		return c, fmt.Errorf("failed to read session %s: %w", sessionID, err)
	}
	if parts[0] != sessionID || c.Ord >= b.NextOrd {
		return c, problem.Field("after", "is not a cursor of this session")
	}
	return c, nil
}

// SessionChanged shows one of the viewer's sessions; see StateFeed.
func (subscriptions) SessionChanged(ctx context.Context) (<-chan *model.Session, error) {
	return shown[*model.Session](ctx)
}

// sessionWatch watches the sessions of a subject.
type sessionWatch struct {
	*Root
	sub *session.Subscription
	ids []string
}

func watchSessions(ctx context.Context, r *Root, who authz.Caller) (stateWatch, error) {
	sub, err := r.Changes.Subscribe(ctx, who.Environment, who.Subject)
	if err != nil {
		return nil, fmt.Errorf("failed to follow the sessions of %s: %w", who.Subject, err)
	}
	return &sessionWatch{Root: r, sub: sub}, nil
}

func (w *sessionWatch) poll(ctx context.Context) (id string, ok bool, err error) {
	if len(w.ids) == 0 {
		if w.ids, err = w.sub.Poll(ctx, changesAtOnce); err != nil || len(w.ids) == 0 {
			return "", false, err
		}
	}
	id, w.ids = w.ids[0], w.ids[1:]
	return id, true, nil
}

// read reads a session; false where it is gone or not for the viewer any more.
func (w *sessionWatch) read(ctx context.Context, id string) (v any, until time.Time, ok bool, err error) {
	l, err := w.grant(ctx, authz.CanView, authz.Session(id))
	if problem.Is(err, problem.Forbidden) {
		return nil, until, false, nil
	}
	if err != nil {
		return nil, until, false, err
	}
	b, err := w.Sessions.Session(ctx, id)
	if errors.Is(err, session.ErrNotFound) {
		return nil, until, false, nil
	}
	if err != nil {
		return nil, until, false, fmt.Errorf("failed to read session %s: %w", id, err)
	}
	m, err := sessionModel(b)
	return m, l.until, err == nil, err
}

func (w *sessionWatch) notify(f func()) { w.sub.Notify(f) }
func (w *sessionWatch) close()          { w.sub.Close() }
