package sqlite

import (
	"context"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/store"
)

const (
	insertAgent = "INSERT INTO agents (rev, state, environment, owner, slug, unsettled, body, id) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
	updateAgent = `UPDATE agents SET rev = ?, state = ?, environment = ?, owner = ?, slug = ?, unsettled = ?, body = ?
		WHERE id = ? AND rev = ?`
	hasAgent        = "SELECT 1 FROM agents WHERE id = ?"
	getAgent        = "SELECT body FROM agents WHERE id = ?"
	unsettledAgents = "SELECT body FROM agents WHERE unsettled = 1 AND id > ? ORDER BY id LIMIT ?"
	agentsOfOwner   = `SELECT id, 0, body FROM agents WHERE environment = ? AND owner = ? AND state = 'ACTIVE' AND id < ?
		ORDER BY id DESC LIMIT ?`

	insertVersion = "INSERT INTO versions (agent, number, body) VALUES (?, ?, ?)"
	getVersion    = "SELECT body FROM versions WHERE agent = ? AND number = ?"
	lastVersion   = "SELECT coalesce(max(number), 0) FROM versions WHERE agent = ?"
)

func checkAgent(a agent.Agent) error {
	return store.CheckKeys([2]string{"id", a.ID}, [2]string{"state", string(a.State)},
		[2]string{"environment", a.Environment}, [2]string{"owner", a.Owner}, [2]string{"slug", a.Slug})
}

// isUnsettled says whether the agent is listed by UnsettledAgents.
func isUnsettled(a agent.Agent) bool {
	return a.State == agent.StateCreating || a.State == agent.StateDeleting || a.Authz.Pending()
}

// agentColumns are the arguments of insertAgent and the first of updateAgent.
func agentColumns(a agent.Agent, body []byte) []any {
	return []any{a.Rev, string(a.State), a.Environment, a.Owner, a.Slug, isUnsettled(a), string(body), a.ID}
}

// InsertAgent implements agent.Store. When both the id and the slug are taken, the answer is agent.ErrExists.
func (s *Store) InsertAgent(ctx context.Context, a agent.Agent) error {
	body, err := checkedDocument(a, checkAgent(a), store.CheckInsertRev(a.Rev))
	if err != nil {
		return fmt.Errorf("failed to insert agent %s: %w", a.ID, err)
	}
	return s.change(ctx, "insert", change{
		noun: "agent", id: a.ID, body: body, query: insertAgent, args: agentColumns(a, body),
		conflict: func(t *tx, _ error) (refusal, fatal error) {
			taken, err := t.exists(hasAgent, a.ID)
			switch {
			case err != nil:
				return nil, err
			case taken:
				return agent.ErrExists, nil
			}
			return agent.ErrSlugTaken, nil
		},
		unknown: agent.ErrUnknownOutcome,
	})
}

// UpdateAgent implements agent.Store; agent.ErrNotFound when there is no such agent. A stale revision is told before
// a taken slug.
func (s *Store) UpdateAgent(ctx context.Context, a agent.Agent) error {
	body, err := checkedDocument(a, checkAgent(a), store.CheckUpdateRev(a.Rev))
	if err != nil {
		return fmt.Errorf("failed to update agent %s: %w", a.ID, err)
	}
	return s.change(ctx, "update", change{
		noun: "agent", id: a.ID, body: body, query: updateAgent, vital: true,
		args:     append(agentColumns(a, body), a.Rev-1),
		none:     staleOr(agent.ErrNotFound, agent.ErrRevision, hasAgent, a.ID),
		conflict: refuse(agent.ErrSlugTaken), unknown: agent.ErrUnknownOutcome,
	})
}

// Agent implements agent.Store.
func (s *Store) Agent(ctx context.Context, id string) (agent.Agent, error) {
	return one[agent.Agent](ctx, s, agent.ErrNotFound, "agent", getAgent, id)
}

// AgentsOf implements agent.Store.
func (s *Store) AgentsOf(ctx context.Context, environment, owner, before string, limit int) ([]agent.Agent, error) {
	if err := checkPage(limit, environment, owner, before); err != nil {
		return nil, fmt.Errorf("failed to list agents: %w", err)
	}
	if before == "" {
		before = afterAll
	}
	return shown[agent.Agent](ctx, s, "agent", limit, func(last *spot, limit int) (string, []any) {
		if last != nil {
			before = last.id
		}
		return agentsOfOwner, []any{environment, owner, before, limit}
	})
}

// UnsettledAgents implements agent.Store.
func (s *Store) UnsettledAgents(ctx context.Context, after string, limit int) ([]agent.Agent, error) {
	if err := checkPage(limit, after); err != nil {
		return nil, fmt.Errorf("failed to list unsettled agents: %w", err)
	}
	return list[agent.Agent](ctx, s, "unsettled agents", unsettledAgents, after, limit)
}

// InsertVersion implements agent.Store.
func (s *Store) InsertVersion(ctx context.Context, v agent.Version) error {
	id := fmt.Sprintf("%s/%d", v.AgentID, v.Number)
	var positive error
	if v.Number < 1 {
		positive = fmt.Errorf("%w: number is %d, it must be 1 or more", store.ErrInvalid, v.Number)
	}
	body, err := checkedDocument(v, store.CheckKey("agentId", v.AgentID), positive)
	if err != nil {
		return fmt.Errorf("failed to insert version %s: %w", id, err)
	}
	return s.change(ctx, "insert", change{
		noun: "version", id: id, body: body, query: insertVersion, args: []any{v.AgentID, v.Number, string(body)},
		conflict: refuse(agent.ErrExists), unknown: agent.ErrUnknownOutcome,
	})
}

// Version implements agent.Store.
func (s *Store) Version(ctx context.Context, agentID string, number int64) (agent.Version, error) {
	return one[agent.Version](ctx, s, agent.ErrNotFound, "version of agent", getVersion, agentID, number)
}

// LastVersion implements agent.Store.
func (s *Store) LastVersion(ctx context.Context, agentID string) (number int64, err error) {
	st, err := s.query(ctx, lastVersion)
	if err == nil {
		err = st.QueryRowContext(ctx, agentID).Scan(&number)
	}
	if err != nil {
		return 0, fmt.Errorf("failed to read last version of agent %s: %w", agentID, err)
	}
	return number, nil
}
