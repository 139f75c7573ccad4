package sqlite

import (
	"context"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/store"
)

const (
	insertSession = "INSERT INTO sessions (rev, environment, subject, agent, version, busy, body, id) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
	updateSession = "UPDATE sessions SET rev = ?, environment = ?, subject = ?, agent = ?, version = ?, busy = ?, body = ? WHERE id = ? AND rev = ?"
	hasSession    = "SELECT 1 FROM sessions WHERE id = ?"
	getSession    = "SELECT body FROM sessions WHERE id = ?"
	busySessions  = `SELECT id, COALESCE(body ->> '$.active.run', ''), COALESCE(body ->> '$.active.owner', ''),
		COALESCE(body ->> '$.draining', ''), COALESCE(body ->> '$.pending.interrupt', ''), COALESCE(body ->> '$.queue[0].urgent', 0)
		FROM sessions WHERE busy = 1 AND id > ? ORDER BY id LIMIT ?`

	// The condition is the one of the index sessions_pinned.
	pinnedSessions = "SELECT COUNT(*) FROM (SELECT 1 FROM sessions WHERE environment = ? AND agent = ? AND version <> 0 LIMIT ?)"

	sessionsOfOwner = "SELECT id, 0, body FROM sessions WHERE environment = ? AND subject = ? AND id < ? ORDER BY id DESC LIMIT ?"
	sessionsOfAgent = "SELECT id, 0, body FROM sessions WHERE environment = ? AND subject = ? AND agent = ? AND id < ? ORDER BY id DESC LIMIT ?"
)

// afterAll sorts after every identifier: it is one byte above what UTF-8 can hold.
const afterAll = "\xff"

func checkSession(b session.Binding) error {
	return store.CheckKeys([2]string{"id", b.ID}, [2]string{"key.environment", b.Key.Environment},
		[2]string{"key.subject", b.Key.Subject}, [2]string{"key.agentId", b.Key.AgentID})
}

// sessionColumns are the arguments of insertSession and the first of updateSession.
func sessionColumns(b session.Binding, body []byte) []any {
	_, busy := b.Busy()
	return []any{b.Rev, b.Key.Environment, b.Key.Subject, b.Key.AgentID, b.AgentVersion, busy, string(body), b.ID}
}

// InsertSession implements session.Store.
func (s *Store) InsertSession(ctx context.Context, b session.Binding) error {
	body, err := checkedDocument(b, checkSession(b), store.CheckInsertRev(b.Rev))
	if err != nil {
		return fmt.Errorf("failed to insert session %s: %w", b.ID, err)
	}
	return s.change(ctx, "insert", change{
		noun: "session", id: b.ID, body: body, query: insertSession, args: sessionColumns(b, body),
		conflict: refuse(session.ErrExists), unknown: session.ErrUnknownOutcome,
	})
}

// UpdateSession implements session.Store; session.ErrNotFound when there is no such session.
func (s *Store) UpdateSession(ctx context.Context, b session.Binding) error {
	body, err := checkedDocument(b, checkSession(b), store.CheckUpdateRev(b.Rev))
	if err != nil {
		return fmt.Errorf("failed to update session %s: %w", b.ID, err)
	}
	return s.change(ctx, "update", change{
		noun: "session", id: b.ID, body: body, query: updateSession, vital: true,
		args: append(sessionColumns(b, body), b.Rev-1),
		none: staleOr(session.ErrNotFound, session.ErrRevision, hasSession, b.ID), unknown: session.ErrUnknownOutcome,
	})
}

// Session implements session.Store.
func (s *Store) Session(ctx context.Context, id string) (session.Binding, error) {
	return one[session.Binding](ctx, s, session.ErrNotFound, "session", getSession, id)
}

// SessionsOf implements session.Store.
func (s *Store) SessionsOf(ctx context.Context, environment, subject, agentID, before string, limit int) ([]session.Binding, error) {
	if err := checkPage(limit, environment, subject, agentID, before); err != nil {
		return nil, fmt.Errorf("failed to list sessions: %w", err)
	}
	if before == "" {
		before = afterAll
	}
	return shown[session.Binding](ctx, s, "session", limit, func(last *spot, limit int) (string, []any) {
		if last != nil {
			before = last.id
		}
		if agentID == "" {
			return sessionsOfOwner, []any{environment, subject, before, limit}
		}
		return sessionsOfAgent, []any{environment, subject, agentID, before, limit}
	})
}

// PinnedSessions implements session.Store.
func (s *Store) PinnedSessions(ctx context.Context, environment, agentID string, limit int) (n int, err error) {
	if err := checkPage(limit, environment, agentID); err != nil {
		return 0, fmt.Errorf("failed to count sessions: %w", err)
	}
	stmt, err := s.query(ctx, pinnedSessions)
	if err == nil {
		err = stmt.QueryRowContext(ctx, environment, agentID, limit).Scan(&n)
	}
	if err != nil {
		return 0, fmt.Errorf("failed to count sessions of agent %s: %w", agentID, err)
	}
	return n, nil
}

// BusySessions implements session.Store.
func (s *Store) BusySessions(ctx context.Context, after string, limit int) (found []session.Busy, err error) {
	if err := checkPage(limit, after); err != nil {
		return nil, fmt.Errorf("failed to list busy sessions: %w", err)
	}
	st, err := s.query(ctx, busySessions)
	if err != nil {
		return nil, fmt.Errorf("failed to list busy sessions: %w", err)
	}
	rows, err := st.QueryContext(ctx, after, limit)
	if err != nil {
		return nil, fmt.Errorf("failed to list busy sessions: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var b session.Busy
		if err := rows.Scan(&b.ID, &b.Run, &b.Owner, &b.Draining, &b.Interrupt, &b.Urgent); err != nil {
			return nil, fmt.Errorf("failed to list busy sessions: %w", err)
		}
		found = append(found, b)
	}
	return found, rows.Err()
}
