package enginetest

import (
	"context"
	"fmt"
	"time"
)

const sessionFields = `
fragment SessionFields on Session {
  id conversationId agentId agentVersion harnessId epoch activeRunId
  messages(first: 100) { edges { node { id runId role text } } }
  runs(first: 100) { edges { node { id status } } }
}`

// Session is a conversation as a client sees it.
type Session struct {
	ID             string                 `json:"id"`
	ConversationID string                 `json:"conversationId"`
	AgentID        string                 `json:"agentId"`
	AgentVersion   int64                  `json:"agentVersion"`
	HarnessID      string                 `json:"harnessId"`
	Epoch          int64                  `json:"epoch"`
	ActiveRunID    string                 `json:"activeRunId"`
	Messages       Connection[Said]       `json:"messages"`
	Runs           Connection[RunSummary] `json:"runs"`
}

// Connection is the first page of a list.
type Connection[T any] struct {
	Edges []struct {
		Node T `json:"node"`
	} `json:"edges"`
}

// Nodes lists what is in the page.
func (c Connection[T]) Nodes() []T {
	out := make([]T, len(c.Edges))
	for i, e := range c.Edges {
		out[i] = e.Node
	}
	return out
}

// Said is one message of a conversation.
type Said struct {
	ID    string `json:"id"`
	RunID string `json:"runId"`
	Role  string `json:"role"`
	Text  string `json:"text"`
}

// RunSummary is a run in a list.
type RunSummary struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// Session reads one session.
func (c *Client) Session(ctx context.Context, id string) (Session, error) {
	var data struct {
		Session *Session `json:"session"`
	}
	if err := c.Do(ctx, `query($id: ID!) { session(id: $id) { ...SessionFields } }`+sessionFields, Variables{"id": id}, &data); err != nil {
		return Session{}, err
	}
	if data.Session == nil {
		return Session{}, fmt.Errorf("session %s is null", id)
	}
	return *data.Session, nil
}

// Free reads the session until no run is at work in it: the engine lets go of a conversation a moment after the
// terminal event of its run.
func (c *Client) Free(ctx context.Context, id string) (Session, error) {
	for {
		s, err := c.Session(ctx, id)
		if err != nil || s.ActiveRunID == "" {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("session %s is still at work on run %s: %w", id, s.ActiveRunID, context.Cause(ctx))
		case <-time.After(readyPause):
		}
	}
}

// Clear starts a new epoch of the session.
func (c *Client) Clear(ctx context.Context, id string) (Session, error) {
	var data struct {
		ClearSession Session `json:"clearSession"`
	}
	err := c.Do(ctx, `mutation($id: ID!) { clearSession(sessionId: $id) { ...SessionFields } }`+sessionFields, Variables{"id": id}, &data)
	return data.ClearSession, err
}

// Counts is how many agents, sessions and runs the client can list, up to 100 each.
type Counts struct{ Agents, Sessions, Runs int }

// Counts lists everything of the client and counts it.
func (c *Client) Counts(ctx context.Context) (Counts, error) {
	type list = Connection[struct {
		ID string `json:"id"`
	}]
	var data struct{ Agents, Sessions, Runs list }
	err := c.Do(ctx, `{
	  agents(first: 100) { edges { node { id } } }
	  sessions(first: 100) { edges { node { id } } }
	  runs(first: 100) { edges { node { id } } }
	}`, nil, &data)
	return Counts{Agents: len(data.Agents.Edges), Sessions: len(data.Sessions.Edges), Runs: len(data.Runs.Edges)}, err
}
