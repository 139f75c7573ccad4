package client

import (
	"context"
	"fmt"
	"time"
)

// pageEvents is the size of a page of the log.
const pageEvents = 200

const runFields = `
fragment RunFields on Run {
  id status generation isolation lastSequence agentId agentVersion harnessId sessionId cancelReason
  input { text } output { id text }
  ending { stopReason cancelReason sideEffects thread { durability revision } }
  error { code message category retryable sideEffects }
}`

// Run is a run as a client sees it.
type Run struct {
	ID           string   `json:"id"`
	Status       string   `json:"status"`
	Generation   int64    `json:"generation"`
	Isolation    string   `json:"isolation"`
	LastSequence int64    `json:"lastSequence"`
	AgentID      string   `json:"agentId"`
	AgentVersion int64    `json:"agentVersion"`
	HarnessID    string   `json:"harnessId"`
	SessionID    string   `json:"sessionId"`
	CancelReason string   `json:"cancelReason"`
	Input        Input    `json:"input"`
	Output       []Output `json:"output"`
	Ending       *Ending  `json:"ending"`
	Failure      *Failure `json:"error"`
}

// Input is what the person says.
type Input struct {
	Text        string   `json:"text"`
	Attachments []string `json:"attachments,omitempty"` // ids of uploads
}

// Output is one message of the agent.
type Output struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// Ending is how a run ended.
type Ending struct {
	StopReason   string `json:"stopReason"`
	CancelReason string `json:"cancelReason"`
	SideEffects  string `json:"sideEffects"`
	Thread       Thread `json:"thread"`
}

// StartInput is the input of startRun.
type StartInput struct {
	AgentID        string `json:"agentId"`
	ConversationID string `json:"conversationId,omitempty"`
	Message        Input  `json:"message"`
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
	BusyPolicy     string `json:"busyPolicy,omitempty"`
}

const startQuery = `mutation($in: StartRunInput!) { startRun(input: $in) {
  __typename
  ... on StartRunSuccess { run { ...RunFields } }
  ... on Problem { code message }
  ... on SessionBusy { activeRunId }
} }` + runFields

// Start starts a run. A refusal is a *Refusal.
func (c *Client) Start(ctx context.Context, in StartInput) (Run, error) {
	var data struct {
		StartRun struct {
			Refusal
			Run Run `json:"run"`
		} `json:"startRun"`
	}
	if err := c.Do(ctx, startQuery, Variables{"in": in}, &data); err != nil {
		return Run{}, err
	}
	if data.StartRun.Type != "StartRunSuccess" {
		return Run{}, &data.StartRun.Refusal
	}
	return data.StartRun.Run, nil
}

// Run reads one run.
func (c *Client) Run(ctx context.Context, id string) (Run, error) {
	var data struct {
		Run *Run `json:"run"`
	}
	if err := c.Do(ctx, `query($id: ID!) { run(id: $id) { ...RunFields } }`+runFields, Variables{"id": id}, &data); err != nil {
		return Run{}, err
	}
	if data.Run == nil {
		return Run{}, fmt.Errorf("run %s is null", id)
	}
	return *data.Run, nil
}

// settlePause is the time between two looks at what is about to change.
const settlePause = 20 * time.Millisecond

// Settled reads the run until its status is one that has ended: the projection follows the log's terminal.
func (c *Client) Settled(ctx context.Context, id string) (Run, error) {
	for {
		r, err := c.Run(ctx, id)
		if err != nil || (r.Status != "QUEUED" && r.Status != "RUNNING") {
			return r, err
		}
		select {
		case <-ctx.Done():
			return r, fmt.Errorf("run %s is still %s: %w", id, r.Status, context.Cause(ctx))
		case <-time.After(settlePause):
		}
	}
}

// Cancel asks for a run's end.
func (c *Client) Cancel(ctx context.Context, id string) (Run, error) {
	var data struct {
		CancelRun Run `json:"cancelRun"`
	}
	err := c.Do(ctx, `mutation($id: ID!) { cancelRun(runId: $id) { ...RunFields } }`+runFields, Variables{"id": id}, &data)
	return data.CancelRun, err
}

const logQuery = `query($id: ID!, $after: Int!, $first: Int!) { run(id: $id) {
  events(after: $after, first: $first) { through hasMore events { ...EventFields } }
} }` + eventFields

// Log reads a run's log after a sequence, page by page.
func (c *Client) Log(ctx context.Context, id string, after int64) ([]Event, error) {
	var all []Event
	for {
		var data struct {
			Run *struct {
				Events struct {
					Events  []Event `json:"events"`
					Through int64   `json:"through"`
					HasMore bool    `json:"hasMore"`
				} `json:"events"`
			} `json:"run"`
		}
		if err := c.Do(ctx, logQuery, Variables{"id": id, "after": after, "first": pageEvents}, &data); err != nil {
			return all, err
		}
		if data.Run == nil {
			return all, fmt.Errorf("run %s is null", id)
		}
		page := data.Run.Events
		all = append(all, page.Events...)
		if !page.HasMore {
			return all, nil
		}
		if page.Through <= after {
			return all, fmt.Errorf("page of run %s after %d goes through %d and has more", id, after, page.Through)
		}
		after = page.Through
	}
}
