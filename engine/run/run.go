// Package run coordinates runs: admission, idempotency, the one mutating run of a conversation, cancel, clear, the
// run lease and what happens after a crash. A run's status is a projection of its log.
package run

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/session"
)

// Status is where a run stands.
type Status string

// Statuses. The first two exist before the log's first event; the rest are read off the log.
const (
	StatusAdmitting   Status = "ADMITTING" // inserted, not yet on the binding; invisible to clients
	StatusRejected    Status = "REJECTED"  // refused at admission; kept for its idempotency key
	StatusQueued      Status = "QUEUED"
	StatusRunning     Status = "RUNNING"
	StatusFinished    Status = "FINISHED"
	StatusInterrupted Status = "INTERRUPTED"
	StatusCancelled   Status = "CANCELLED"
	StatusFailed      Status = "FAILED"
)

// Ended reports whether nothing more will happen to the run.
func (s Status) Ended() bool {
	switch s {
	case StatusRejected, StatusFinished, StatusInterrupted, StatusCancelled, StatusFailed:
		return true
	}
	return false
}

// Run is the document of one run: what was asked, under the thread's retention, and the projection of its log.
type Run struct {
	ID              string              `json:"id"`
	Rev             int64               `json:"rev"`
	Status          Status              `json:"status"`
	Environment     string              `json:"environment"`
	Subject         string              `json:"subject"` // who started it
	SessionID       string              `json:"sessionId"`
	Epoch           int64               `json:"epoch"`
	Ord             int64               `json:"ord,omitempty"` // position in the session, given at activation
	AgentID         string              `json:"agentId"`
	AgentVersion    int64               `json:"agentVersion"`
	Harness         string              `json:"harness"`
	Continues       *Continuation       `json:"continues,omitempty"`
	Interrupt       *Interrupt          `json:"interrupt,omitempty"` // where it is INTERRUPTED
	Input           Input               `json:"input"`
	IdempotencyKey  string              `json:"idempotencyKey,omitempty"`
	RequestDigest   string              `json:"requestDigest"`          // of everything that makes the request what it is
	CancelReason    event.CancelReason  `json:"cancelReason,omitempty"` // a cancel was asked for
	Refusal         *Refusal            `json:"refusal,omitempty"`      // why it is REJECTED
	LastSequence    int64               `json:"lastSequence"`           // of the log, as far as projected
	Terminal        json.RawMessage     `json:"terminal,omitempty"`     // encoded terminal event
	Output          []Message           `json:"output,omitempty"`       // folded from the log at the terminal, bounded
	OutputTruncated bool                `json:"outputTruncated,omitempty"`
	Usage           *event.UsageUpdated `json:"usage,omitempty"`
	Isolation       event.Isolation     `json:"isolation,omitempty"`
	CreatedAt       time.Time           `json:"createdAt"`
	StartedAt       *time.Time          `json:"startedAt,omitempty"`
	EndedAt         *time.Time          `json:"endedAt,omitempty"`

	// ExpiredThrough is the last sequence that retention took from the log; 0: none. It is set on an ended run before any
	// chunk is removed, never beyond LastSequence, and never goes back. Pruned says that the chunks are gone, too.
	ExpiredThrough int64 `json:"expiredThrough,omitempty"`
	Pruned         bool  `json:"pruned,omitempty"`

	// Halted says that the log is damaged: nobody appends to it any more. Where the run has ended all the same it was given up,
	// and its terminal is in the document only.
	Halted *Halt `json:"halted,omitempty"`
}

// Halt is why a run was halted.
type Halt struct {
	At  time.Time `json:"at"`
	Why string    `json:"why"` // for the operator, at most 500 bytes; no client sees it
}

// Input is what the user said.
type Input struct {
	Text        string            `json:"text"`
	Attachments []file.Attachment `json:"attachments,omitempty"`
}

// Continuation is what a run that resumes an interrupted one goes on with.
type Continuation struct {
	Run       string           `json:"run"` // that was interrupted
	Interrupt string           `json:"interrupt"`
	Revision  int64            `json:"revision"`
	Decision  harness.Decision `json:"decision"`
}

// Interrupt is the interrupt that a run ended in, and what became of it.
type Interrupt struct {
	ID        string             `json:"id"`
	Revision  int64              `json:"revision"`
	Deadline  *time.Time         `json:"deadline,omitempty"`
	Request   json.RawMessage    `json:"request"`             // data of the interrupt.requested event
	Open      *event.Inheritance `json:"open,omitempty"`      // what the run left open for one that goes on from it; nil: to be read off the logs
	Settled   session.Settlement `json:"settled,omitempty"`   // empty: pending
	ResumedBy string             `json:"resumedBy,omitempty"` // run that goes on
}

// Message is one folded message of an agent.
type Message struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// Refusal is the client-visible reason of a REJECTED run, kept so that a repeated key gets the same answer.
type Refusal struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	ActiveRun string `json:"activeRun,omitempty"`
}

// Errors of a Store.
var (
	ErrNotFound       = errors.New("run: not found")
	ErrExists         = errors.New("run: exists")
	ErrRevision       = errors.New("run: revision conflict")
	ErrUnknownOutcome = errors.New("run: write outcome unknown")
)

// Filter narrows a listing of runs. Environment and Subject are always applied.
type Filter struct {
	Environment string
	Subject     string
	SessionID   string // where not empty
	Epoch       int64  // where not 0
	AgentID     string // where not empty
	Status      Status // where not empty
}

// Store keeps run documents. Implementations must pass store/storetest.
type Store interface {
	// InsertRun stores r, whose Rev is 1; ErrExists when the id is taken.
	InsertRun(ctx context.Context, r Run) error
	Run(ctx context.Context, id string) (Run, error)
	// UpdateRun stores r (whose Rev is the next revision) where the stored revision is r.Rev-1; else ErrRevision.
	UpdateRun(ctx context.Context, r Run) error
	// Runs lists newest first by (CreatedAt, ID); before is the last run of the page before, or the zero Position.
	// ADMITTING and REJECTED runs are left out unless Filter.Status asks for them.
	Runs(ctx context.Context, f Filter, before Position, limit int) ([]Run, error)
	// SessionRuns lists the runs of one session epoch, or of all epochs where epoch is 0, in order of Ord, ascending,
	// Ord > afterOrd. Runs without an Ord are left out. An Ord is unique in its session.
	SessionRuns(ctx context.Context, sessionID string, epoch, afterOrd int64, limit int) ([]Run, error)
	// SessionRunsBefore lists the runs of one session epoch from the last one back: in order of Ord, descending, Ord < beforeOrd,
	// which is 0 for all.
	SessionRunsBefore(ctx context.Context, sessionID string, epoch, beforeOrd int64, limit int) ([]Run, error)
	// UnfinishedRuns lists runs whose status has not Ended (ADMITTING too), by ID ascending, id > after.
	UnfinishedRuns(ctx context.Context, after string, limit int) ([]Run, error)
	// CancelRequests lists the unfinished runs that were asked to end, by id ascending, id > after.
	CancelRequests(ctx context.Context, after string, limit int) ([]CancelRequest, error)
}

// CancelRequest is a run that was asked to end, and why.
type CancelRequest struct {
	Run    string
	Reason event.CancelReason
}

// Position is a place in a listing that is sorted newest first.
type Position struct {
	CreatedAt time.Time
	ID        string
}
