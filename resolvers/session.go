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

const sessionList = "sessions"

// maxAtOnce is how many runs of a session can be under way at once: the active one and those that wait.
const maxAtOnce = 1 + session.MaxQueue

// Session reads one session.
func (q queries) Session(ctx context.Context, id string) (*model.Session, error) {
	return q.sessionByID(ctx, id)
}

func (r *Root) sessionByID(ctx context.Context, id string) (*model.Session, error) {
	b, err := r.loaders(ctx).session.Load(ctx, id)
	if errors.Is(err, session.ErrNotFound) {
		return nil, problem.NotFoundf("session")
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read session %s: %w", id, err)
	}
	return sessionModel(b)
}

// Sessions pages the viewer's sessions by owner and shows those that the viewer may see.
func (q queries) Sessions(ctx context.Context, agentID *string, first int64, after *string) (*model.SessionConnection, error) {
	size, err := checkFirst(first, maxFirst)
	if err != nil {
		return nil, err
	}
	agent, err := checkOptionalID("agentId", agentID)
	if err != nil {
		return nil, err
	}
	place, err := decodeCursor(sessionList, after, 1)
	if err != nil {
		return nil, err
	}
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	var start *session.Binding
	if place != nil {
		start = &session.Binding{ID: place[0]}
	}
	page, last, more, err := collect(size, start, func(after *session.Binding, limit int) ([]session.Binding, error) {
		before := ""
		if after != nil {
			before = after.ID
		}
		bs, err := q.Root.Sessions.SessionsOf(ctx, who.Environment, who.Subject, agent, before, limit)
		if err != nil {
			return nil, fmt.Errorf("failed to list sessions of %s: %w", who.Subject, err)
		}
		return bs, nil
	}, func(bs []session.Binding) ([]session.Binding, error) {
		return allowedOnly(ctx, q.Root, authz.CanView, bs, func(b session.Binding) authz.Object { return authz.Session(b.ID) })
	})
	if err != nil {
		return nil, err
	}
	conn := &model.SessionConnection{Edges: make([]model.SessionEdge, 0, len(page))}
	for _, b := range page {
		shown, err := sessionModel(b)
		if err != nil {
			q.leftOut(ctx, "session", b.ID, err)
			continue
		}
		conn.Edges = append(conn.Edges, model.SessionEdge{Cursor: encodeCursor(sessionList, b.ID), Node: *shown})
	}
	conn.PageInfo = connectionInfo(conn.Edges, func(e model.SessionEdge) string { return e.Cursor }, more, after != nil)
	if more && last != nil {
		conn.PageInfo.EndCursor = optional(encodeCursor(sessionList, last.ID))
	}
	return conn, nil
}

// ClearSession starts a new epoch.
func (m mutations) ClearSession(ctx context.Context, sessionID string) (*model.Session, error) {
	b, err := m.Control.Clear(ctx, sessionID)
	if err != nil {
		return nil, fmt.Errorf("failed to clear session %s: %w", sessionID, err)
	}
	return sessionModel(b)
}

// Agent is null when the agent is gone.
func (s sessions) Agent(ctx context.Context, obj *model.Session) (*model.Agent, error) {
	return s.agentEdge(ctx, obj.AgentID)
}

// Harness is null when it is not registered.
func (s sessions) Harness(_ context.Context, obj *model.Session) (*model.Harness, error) {
	return s.harnessEdge(obj.HarnessID), nil
}

// ActiveRun is null when there is none.
func (s sessions) ActiveRun(ctx context.Context, obj *model.Session) (*model.Run, error) {
	return s.boundEdge(ctx, obj.ActiveRunID)
}

// Queue leaves out runs that are gone.
func (s sessions) Queue(ctx context.Context, obj *model.Session) ([]model.Run, error) {
	queue := make([]model.Run, 0, len(obj.QueueIDs))
	for _, id := range obj.QueueIDs {
		r, err := s.boundEdge(ctx, &id)
		if err != nil {
			return nil, err
		}
		if r != nil {
			queue = append(queue, *r)
		}
	}
	return queue, nil
}

// LastActivity is read off the newest run.
func (s sessions) LastActivity(ctx context.Context, obj *model.Session) (*time.Time, error) {
	b, err := s.loaders(ctx).session.Load(ctx, obj.ID)
	if err != nil {
		return nil, fmt.Errorf("failed to read session %s: %w", obj.ID, err)
	}
	newest, err := spend(ctx, func(run.Run) int { return documentBytes }, func() ([]run.Run, error) { // nothing of them is kept
		return s.Root.Runs.Runs(ctx, run.Filter{Environment: b.Key.Environment, Subject: b.Key.Subject, SessionID: b.ID}, run.Position{}, maxAtOnce)
	})
	if err != nil {
		return nil, fmt.Errorf("failed to list runs of session %s: %w", obj.ID, err)
	}
	at := b.CreatedAt
	for _, r := range newest {
		for _, t := range []*time.Time{&r.CreatedAt, r.StartedAt, r.EndedAt} {
			if t != nil && t.After(at) {
				at = *t
			}
		}
	}
	return &at, nil
}

// sessionEdge reads a session that may be gone.
func (r *Root) sessionEdge(ctx context.Context, id string) (*model.Session, error) {
	s, err := r.sessionByID(ctx, id)
	if problem.Is(err, problem.NotFound) {
		return nil, nil
	}
	return s, err
}

func sessionModel(b session.Binding) (*model.Session, error) {
	s := &model.Session{
		ID: b.ID, ConversationID: b.Key.ConversationID, AgentID: b.Key.AgentID,
		AgentVersion: optional(b.AgentVersion), HarnessID: optional(b.Harness),
		Epoch: b.Epoch, Status: sessionStatus(b), CreatedAt: b.CreatedAt, UpdatedAt: b.UpdatedAt,
	}
	if b.Active != nil {
		s.ActiveRunID = &b.Active.Run
	}
	for _, q := range b.Queue {
		s.QueueIDs = append(s.QueueIDs, q.Run)
	}
	pending, err := pendingModel(b.Pending)
	if err != nil {
		return nil, err
	}
	s.PendingInterrupt = pending
	return s, nil
}

func sessionStatus(b session.Binding) model.SessionStatus {
	switch {
	case b.Draining != "":
		return model.SessionStatusClearing
	case b.Active != nil:
		return model.SessionStatusRunning
	case b.Pending != nil:
		return model.SessionStatusInterrupted
	}
	return model.SessionStatusIdle
}

// connectionInfo is pageInfo for a page's edges.
func connectionInfo[E any](edges []E, cursor func(E) string, hasNext, hasPrevious bool) model.PageInfo {
	cursors := make([]string, len(edges))
	for i, e := range edges {
		cursors[i] = cursor(e)
	}
	return pageInfo(cursors, hasNext, hasPrevious)
}
