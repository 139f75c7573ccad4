package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

const sessionFields = `
fragment SessionFields on Session {
  id conversationId agentId agentVersion harnessId epoch activeRunId
  messages(first: 100) { edges { node { ...MessageFields } } }
  runs(first: 100) { edges { node { id status } } }
}` + messageFields

const messageFields = `
fragment MessageFields on Message {
  id runId role text attachments { id name mediaType size sha256 }
  decision { interrupt { ...InterruptFields } form calls { toolCallId verdict arguments message } }
}` + interruptFields

// Session is a conversation as a client sees it.
type Session struct {
	ID             string                 `json:"id"`
	ConversationID string                 `json:"conversationId"`
	AgentID        string                 `json:"agentId"`
	AgentVersion   int64                  `json:"agentVersion"`
	HarnessID      string                 `json:"harnessId"`
	Epoch          int64                  `json:"epoch"`
	ActiveRunID    string                 `json:"activeRunId"`
	Messages       Connection[Said]       `json:"messages"` // the first 100
	Runs           Connection[RunSummary] `json:"runs"`     // the first 100
}

// Said is one message of a conversation.
type Said struct {
	ID    string `json:"id"`
	RunID string `json:"runId"`
	Role  string `json:"role"`
	Text  string `json:"text"` // empty where it is a decision

	Attachments []Attachment `json:"attachments"`
	Decision    *Decided     `json:"decision"`
}

// Decided is what became of an interrupt.
type Decided struct {
	Interrupt Interrupt       `json:"interrupt"`
	Form      json.RawMessage `json:"form"`
	Calls     []DecidedCall   `json:"calls"`
}

// DecidedCall is the word on one call.
type DecidedCall struct {
	ToolCallID string          `json:"toolCallId"`
	Verdict    string          `json:"verdict"` // APPROVE, EDIT or REJECT
	Arguments  json.RawMessage `json:"arguments"`
	Message    string          `json:"message"`
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
		case <-time.After(settlePause):
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

// Transcript reads the last messages of what was said in the session's epoch, at most tail of them (1 to 100), and whether
// there are earlier ones.
func (c *Client) Transcript(ctx context.Context, id string, tail int) (last []Said, earlier bool, err error) {
	const query = `query($id: ID!, $last: Int!) { session(id: $id) {
	  messages(last: $last) { edges { node { ...MessageFields } } pageInfo { hasPreviousPage } }
	} }` + messageFields
	var data struct {
		Session *struct {
			Messages Connection[Said] `json:"messages"`
		} `json:"session"`
	}
	if err := c.Do(ctx, query, Variables{"id": id, "last": tail}, &data); err != nil {
		return nil, false, err
	}
	if data.Session == nil {
		return nil, false, notFound("session", id)
	}
	return data.Session.Messages.Nodes(), data.Session.Messages.PageInfo.HasPreviousPage, nil
}
