package resolvers

import (
	"context"
	"errors"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/graph/model"
)

const sessionList = "sessions"

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
	return sessionModel(b), nil
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
		return allowedOnly(ctx, q.Guard, authz.CanView, bs, func(b session.Binding) authz.Object { return authz.Session(b.ID) })
	})
	if err != nil {
		return nil, err
	}
	conn := &model.SessionConnection{Edges: make([]model.SessionEdge, len(page))}
	for i, b := range page {
		conn.Edges[i] = model.SessionEdge{Cursor: encodeCursor(sessionList, b.ID), Node: *sessionModel(b)}
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
	return sessionModel(b), nil
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
	return s.runEdge(ctx, obj.ActiveRunID)
}

// sessionEdge reads a session that may be gone.
func (r *Root) sessionEdge(ctx context.Context, id string) (*model.Session, error) {
	s, err := r.sessionByID(ctx, id)
	if problem.Is(err, problem.NotFound) {
		return nil, nil
	}
	return s, err
}

func sessionModel(b session.Binding) *model.Session {
	s := &model.Session{
		ID: b.ID, ConversationID: b.Key.ConversationID, AgentID: b.Key.AgentID,
		AgentVersion: optional(b.AgentVersion), HarnessID: optional(b.Harness),
		Epoch: b.Epoch, CreatedAt: b.CreatedAt, UpdatedAt: b.UpdatedAt,
	}
	if b.Active != nil {
		s.ActiveRunID = &b.Active.Run
	}
	return s
}

// connectionInfo is pageInfo for a page's edges.
func connectionInfo[E any](edges []E, cursor func(E) string, hasNext, hasPrevious bool) model.PageInfo {
	cursors := make([]string, len(edges))
	for i, e := range edges {
		cursors[i] = cursor(e)
	}
	return pageInfo(cursors, hasNext, hasPrevious)
}
