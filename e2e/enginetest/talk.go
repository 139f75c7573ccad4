package enginetest

import (
	"context"
	"fmt"
	"time"

	"github.com/harness-engine/harness-engine/internal/client"
)

// What the tests see of interrupts and attachments.
type (
	Interrupt    = client.Interrupt
	FormField    = client.FormField
	ApprovalCall = client.ApprovalCall
	Decision     = client.Decision
	CallDecision = client.CallDecision
	Verdict      = client.Verdict
	Edit         = client.Edit
	Reject       = client.Reject
	Attachment   = client.Attachment
)

// Kinds of interrupts.
const (
	KindForm     = client.KindForm
	KindApproval = client.KindApproval
)

// Statuses of sessions.
const (
	SessionIdle        = "IDLE"
	SessionRunning     = "RUNNING"
	SessionInterrupted = "INTERRUPTED"
	SessionClearing    = "CLEARING"
)

const talkFields = `
fragment TalkFields on Session {
  id epoch status activeRunId
  pendingInterrupt { ...InterruptFields }
  queue { id status queuePosition }
}` + client.InterruptFields

// Talk is what a conversation does now.
type Talk struct {
	ID          string       `json:"id"`
	Epoch       int64        `json:"epoch"`
	Status      string       `json:"status"`
	ActiveRunID string       `json:"activeRunId"`
	Pending     *Interrupt   `json:"pendingInterrupt"`
	Queue       []WaitingRun `json:"queue"`
}

// WaitingRun is a run that waits for its turn.
type WaitingRun struct {
	ID            string `json:"id"`
	Status        string `json:"status"`
	QueuePosition int64  `json:"queuePosition"`
}

// Talk reads what a conversation does now.
func (c *Client) Talk(ctx context.Context, sessionID string) (Talk, error) {
	var data struct {
		Session *Talk `json:"session"`
	}
	err := c.Do(ctx, `query($id: ID!) { session(id: $id) { ...TalkFields } }`+talkFields, Variables{"id": sessionID}, &data)
	if err == nil && data.Session == nil {
		err = fmt.Errorf("session %s is null", sessionID)
	}
	if err != nil {
		return Talk{}, err
	}
	return *data.Session, nil
}

// AwaitTalk reads the conversation until it is as wanted.
func (c *Client) AwaitTalk(ctx context.Context, sessionID string, wanted func(Talk) bool) (Talk, error) {
	for {
		t, err := c.Talk(ctx, sessionID)
		if err != nil || wanted(t) {
			return t, err
		}
		select {
		case <-ctx.Done():
			return t, fmt.Errorf("session %s is still %+v: %w", sessionID, t, context.Cause(ctx))
		case <-time.After(readyPause):
		}
	}
}

// AwaitStatus reads the conversation until it has the status, with nothing left to settle of the run before.
func (c *Client) AwaitStatus(ctx context.Context, sessionID, status string) (Talk, error) {
	return c.AwaitTalk(ctx, sessionID, func(t Talk) bool { return t.Status == status })
}

const placeFields = `
fragment PlaceFields on Run {
  id status ord epoch queuePosition sessionId continuesId continuedById cancelReason startedAt endedAt
  input { text attachments { id name mediaType size sha256 } }
  interrupt { ...InterruptFields }
}` + client.InterruptFields

// Place is a run with what it goes on from, what goes on from it, and its place among the others.
type Place struct {
	ID            string     `json:"id"`
	Status        string     `json:"status"`
	Ord           int64      `json:"ord"`
	Epoch         int64      `json:"epoch"`
	QueuePosition int64      `json:"queuePosition"`
	SessionID     string     `json:"sessionId"`
	ContinuesID   string     `json:"continuesId"`
	ContinuedByID string     `json:"continuedById"`
	CancelReason  string     `json:"cancelReason"`
	StartedAt     *time.Time `json:"startedAt"`
	EndedAt       *time.Time `json:"endedAt"`
	Input         struct {
		Text        string       `json:"text"`
		Attachments []Attachment `json:"attachments"`
	} `json:"input"`
	Interrupt *Interrupt `json:"interrupt"`
}

// Place reads a run's place.
func (c *Client) Place(ctx context.Context, runID string) (Place, error) {
	var data struct {
		Run *Place `json:"run"`
	}
	err := c.Do(ctx, `query($id: ID!) { run(id: $id) { ...PlaceFields } }`+placeFields, Variables{"id": runID}, &data)
	if err == nil && data.Run == nil {
		err = fmt.Errorf("run %s is null", runID)
	}
	if err != nil {
		return Place{}, err
	}
	return *data.Run, nil
}

// AwaitPlace reads a run until it is as wanted.
func (c *Client) AwaitPlace(ctx context.Context, runID string, wanted func(Place) bool) (Place, error) {
	for {
		p, err := c.Place(ctx, runID)
		if err != nil || wanted(p) {
			return p, err
		}
		select {
		case <-ctx.Done():
			return p, fmt.Errorf("run %s is still %+v: %w", runID, p, context.Cause(ctx))
		case <-time.After(readyPause):
		}
	}
}

const transcriptQuery = `query($id: ID!, $first: Int!, $after: String) { session(id: $id) { messages(first: $first, after: $after) {
  edges { node {
    runId role text attachments { id name mediaType size sha256 }
    decision { interrupt { ...InterruptFields } form calls { toolCallId verdict arguments message } }
  } }
  pageInfo { hasNextPage endCursor }
} } }` + client.InterruptFields

// TranscriptEntry is one message of a transcript.
type TranscriptEntry struct {
	RunID       string           `json:"runId"`
	Role        string           `json:"role"`
	Text        string           `json:"text"`
	Attachments []Attachment     `json:"attachments"`
	Decision    *TranscriptWords `json:"decision"`
}

// TranscriptWords is what became of an interrupt.
type TranscriptWords struct {
	Interrupt Interrupt      `json:"interrupt"`
	Form      map[string]any `json:"form"`
	Calls     []struct {
		ToolCallID string         `json:"toolCallId"`
		Verdict    string         `json:"verdict"`
		Arguments  map[string]any `json:"arguments"`
		Message    string         `json:"message"`
	} `json:"calls"`
}

// Entries reads a session's transcript, in pages of the size.
func (c *Client) Entries(ctx context.Context, sessionID string, page int) ([]TranscriptEntry, error) {
	var all []TranscriptEntry
	for after := (*string)(nil); ; {
		var data struct {
			Session *struct {
				Messages client.Connection[TranscriptEntry] `json:"messages"`
			} `json:"session"`
		}
		if err := c.Do(ctx, transcriptQuery, Variables{"id": sessionID, "first": page, "after": after}, &data); err != nil {
			return all, err
		}
		if data.Session == nil {
			return all, fmt.Errorf("session %s is null", sessionID)
		}
		all = append(all, data.Session.Messages.Nodes()...)
		if !data.Session.Messages.PageInfo.HasNextPage {
			return all, nil
		}
		after = data.Session.Messages.PageInfo.EndCursor
	}
}
