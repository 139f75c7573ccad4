package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Kinds of interrupts.
const (
	KindForm     = "FORM_INPUT"
	KindApproval = "TOOL_APPROVAL"
)

// Interrupt is a question to a person that ended a run.
type Interrupt struct {
	ID       string
	RunID    string
	Kind     string
	Revision int64
	Status   string // PENDING, or what became of it
	Prompt   string
	Fields   []FormField    // of a form
	Calls    []ApprovalCall // of an approval
	Deadline *time.Time
}

// FormField is one value that a form asks for.
type FormField struct {
	Name     string   `json:"name"`
	Label    string   `json:"label"`
	Kind     string   `json:"kind"` // string, number, boolean, choice
	Required bool     `json:"required"`
	Choices  []string `json:"choices"`
}

// ApprovalCall is one tool call that waits.
type ApprovalCall struct {
	ToolCallID string          `json:"toolCallId"`
	Name       string          `json:"name"`
	Arguments  json.RawMessage `json:"arguments"`
	Allowed    []string        `json:"allowed"` // of approve, edit, reject
}

// Interrupt is the question of an interrupt.requested event.
func (e Event) Interrupt() Interrupt {
	return Interrupt{ID: e.InterruptID, RunID: e.RunID, Kind: e.Kind, Revision: e.Revision, Status: "PENDING",
		Prompt: e.Prompt, Fields: e.Fields, Calls: e.Calls, Deadline: e.Deadline}
}

const interruptFields = `
fragment InterruptFields on Interrupt {
  __typename id runId revision status expiresAt
  ... on FormInterrupt { formPrompt: prompt fields { name label kind required choices } }
  ... on ToolApprovalInterrupt { callPrompt: prompt calls { toolCallId name arguments allowed } }
}`

// kinds of interrupts by their type in the schema.
var kinds = map[string]string{"FormInterrupt": KindForm, "ToolApprovalInterrupt": KindApproval}

// UnmarshalJSON reads what interruptFields selects.
func (i *Interrupt) UnmarshalJSON(raw []byte) error {
	var v struct {
		Type       string         `json:"__typename"`
		ID         string         `json:"id"`
		RunID      string         `json:"runId"`
		Revision   int64          `json:"revision"`
		Status     string         `json:"status"`
		ExpiresAt  *time.Time     `json:"expiresAt"`
		FormPrompt string         `json:"formPrompt"`
		CallPrompt string         `json:"callPrompt"`
		Fields     []FormField    `json:"fields"`
		Calls      []ApprovalCall `json:"calls"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	kind, known := kinds[v.Type]
	if !known {
		return fmt.Errorf("interrupt %s has the unknown type %s", v.ID, v.Type)
	}
	*i = Interrupt{ID: v.ID, RunID: v.RunID, Kind: kind, Revision: v.Revision, Status: v.Status,
		Prompt: v.FormPrompt + v.CallPrompt, Fields: v.Fields, Calls: v.Calls, Deadline: v.ExpiresAt}
	return nil
}

// Pending reads the interrupt that the session waits for; nil when there is none.
func (c *Client) Pending(ctx context.Context, sessionID string) (*Interrupt, error) {
	const query = `query($id: ID!) { session(id: $id) { pendingInterrupt { ...InterruptFields } } }` + interruptFields
	var data struct {
		Session *struct {
			PendingInterrupt *Interrupt `json:"pendingInterrupt"`
		} `json:"session"`
	}
	if err := c.Do(ctx, query, Variables{"id": sessionID}, &data); err != nil {
		return nil, err
	}
	if data.Session == nil {
		return nil, notFound("session", sessionID)
	}
	return data.Session.PendingInterrupt, nil
}

// Decision answers an interrupt: exactly one of its fields is set.
type Decision struct {
	Form    json.RawMessage `json:"form,omitempty"` // object of values by field name
	Calls   []CallDecision  `json:"calls,omitempty"`
	Dismiss bool            `json:"dismiss,omitempty"`
}

// CallDecision is the verdict on one call.
type CallDecision struct {
	ToolCallID string  `json:"toolCallId"`
	Verdict    Verdict `json:"decision"`
}

// Verdict is one word on a call: exactly one of its fields is set.
type Verdict struct {
	Approve bool    `json:"approve,omitempty"`
	Edit    *Edit   `json:"edit,omitempty"`
	Reject  *Reject `json:"reject,omitempty"`
}

// Edit gives a call other arguments.
type Edit struct {
	Arguments json.RawMessage `json:"arguments"` // the whole new object
}

// Reject says why a call is not made.
type Reject struct {
	Message string `json:"message,omitempty"`
}

const resumeQuery = `mutation($in: ResumeRunInput!) { resumeRun(input: $in) {
  __typename
  ... on ResumeRunSuccess { run { ...RunFields } }
  ... on Problem { code message }
  ... on SessionBusy { activeRunId }
  ... on InterruptConflict { status }
} }` + runFields

// Resume decides an interrupt and returns the run that goes on; nil when the interrupt was dismissed. A refusal is a
// *Refusal. The same decision again gives the same run.
func (c *Client) Resume(ctx context.Context, i Interrupt, d Decision) (*Run, error) {
	var data struct {
		ResumeRun struct {
			Refusal
			Run *Run `json:"run"`
		} `json:"resumeRun"`
	}
	input := struct {
		InterruptID string   `json:"interruptId"`
		Revision    int64    `json:"revision"`
		Decision    Decision `json:"decision"`
	}{i.ID, i.Revision, d}
	if err := c.Do(ctx, resumeQuery, Variables{"in": input}, &data); err != nil {
		return nil, err
	}
	if data.ResumeRun.Type != "ResumeRunSuccess" {
		return nil, &data.ResumeRun.Refusal
	}
	return data.ResumeRun.Run, nil
}
