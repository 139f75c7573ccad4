package enginetest

import (
	"context"
	"encoding/json"

	"github.com/harness-engine/harness-engine/internal/client"
)

// Draft is a blueprint as a client writes it.
type Draft struct {
	Name        string         `json:"name"`
	Slug        string         `json:"slug"`
	Description string         `json:"description,omitempty"`
	Harness     *HarnessChoice `json:"harness,omitempty"`
	Prompt      *Prompt        `json:"prompt,omitempty"`
	Tools       *Tools         `json:"tools,omitempty"`
	Limits      *Limits        `json:"limits,omitempty"`
}

// HarnessChoice is what an agent runs on.
type HarnessChoice struct {
	ID      string          `json:"id,omitempty"`
	Options json.RawMessage `json:"options,omitempty"`
}

// Prompt is what an agent is told.
type Prompt struct {
	System string `json:"system"`
}

// Tools says how an agent's tools may be used.
type Tools struct {
	Approval string `json:"approval,omitempty"` // NEVER, SENSITIVE_ONLY or ALWAYS
}

// Limits are the bounds of each run.
type Limits struct {
	MaxRunSeconds    int `json:"maxRunSeconds,omitempty"`
	InterruptSeconds int `json:"interruptSeconds,omitempty"`
}

// SaveInput is the input of saveAgent.
type SaveInput struct {
	AgentID          string `json:"agentId,omitempty"`
	ExpectedRevision int64  `json:"expectedRevision,omitempty"`
	Draft            Draft  `json:"draft"`
	Confirm          bool   `json:"confirm,omitempty"`
}

const saveQuery = `mutation($in: SaveAgentInput!) { saveAgent(input: $in) {
  __typename
  ... on SaveAgentSuccess { agent { ...AgentFields } }
  ... on Problem { code message }
  ... on RevisionConflict { currentRevision }
} }` + client.AgentFields

// Save saves an agent. An outcome that wrote nothing is a *Refusal.
func (c *Client) Save(ctx context.Context, in SaveInput) (Agent, error) {
	var data struct {
		SaveAgent struct {
			Refusal
			Agent Agent `json:"agent"`
		} `json:"saveAgent"`
	}
	if err := c.Do(ctx, saveQuery, Variables{"in": in}, &data); err != nil {
		return Agent{}, err
	}
	if data.SaveAgent.Type != "SaveAgentSuccess" {
		return Agent{}, &data.SaveAgent.Refusal
	}
	return data.SaveAgent.Agent, nil
}

// NewAgent saves a new agent on a harness.
func (c *Client) NewAgent(ctx context.Context, slug, harnessID string) (Agent, error) {
	return c.Save(ctx, SaveInput{Draft: Draft{Name: slug, Slug: slug, Harness: &HarnessChoice{ID: harnessID}}})
}
