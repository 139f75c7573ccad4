package resolvers

import (
	"context"
	"errors"
	"fmt"

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

// SessionChanged follows the viewer's sessions.
func (s subscriptions) SessionChanged(ctx context.Context) (<-chan *model.Session, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	l, err := s.grant(ctx, authz.CanList, authz.Platform())
	if err != nil {
		return nil, err
	}
	sub, err := s.Changes.Subscribe(ctx, who.Environment, who.Subject)
	if err != nil {
		return nil, fmt.Errorf("failed to follow the sessions of %s: %w", who.Subject, err)
	}
	var ids []string
	return stream(ctx, l, func(ctx context.Context) (*model.Session, error) {
		for {
			if len(ids) == 0 {
				if ids, err = sub.Next(ctx, changesAtOnce); err != nil {
					return nil, err
				}
			}
			shown, err := s.changedSession(ctx, ids[0])
			if err != nil {
				return nil, err // the id is kept: what is tried again begins with it
			}
			if ids = ids[1:]; shown != nil {
				return shown, nil
			}
		}
	}, sub.Close), nil
}

// changedSession reads a session as it is now; nil where it is gone or not for the viewer any more.
func (s subscriptions) changedSession(ctx context.Context, id string) (*model.Session, error) {
	ok, err := s.Guard.Allowed(ctx, authz.CanView, []authz.Object{authz.Session(id)})
	if err != nil {
		return nil, err
	}
	if !ok[0] {
		return nil, nil
	}
	b, err := s.Sessions.Session(ctx, id)
	if errors.Is(err, session.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read session %s: %w", id, err)
	}
	return sessionModel(b)
}
