// Package session holds the binding document, the one authority for a conversation: who owns it, which agent version
// it is pinned to, which run is active, which worker serves it. Every change is a pure transition applied by a
// conditional update of the whole document.
package session

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Binding is the authority for one conversation of one subject with one agent.
type Binding struct {
	ID           string    `json:"id"` // ses_..., keyed digest of Key
	Rev          int64     `json:"rev"`
	Key          Key       `json:"key"`
	AgentVersion int64     `json:"agentVersion"` // pinned for this epoch; 0: pinned at the next admission
	Harness      string    `json:"harness"`      // pinned with the version
	Epoch        int64     `json:"epoch"`        // from 1, raised by clear
	LeaseGen     int64     `json:"leaseGen"`     // highest run lease generation given out
	SandboxGen   int64     `json:"sandboxGen"`   // highest worker generation given out
	Active       *Active   `json:"active,omitempty"`
	Sandbox      *Sandbox  `json:"sandbox,omitempty"`
	Head         Head      `json:"head"`
	Pending      *Pending  `json:"pending,omitempty"` // interrupt that waits for a decision; no run is active then
	Decided      *Decided  `json:"decided,omitempty"`
	Queue        []Queued  `json:"queue,omitempty"`    // at most MaxQueue, in the order of activation
	Draining     string    `json:"draining,omitempty"` // the active run, where it belongs to an older epoch and its terminal is not logged yet
	NextOrd      int64     `json:"nextOrd"`            // order of the next run to be activated, from 1
	LastOp       string    `json:"lastOp"`             // id of the operation that made this revision, to resolve unknown outcomes
	CreatedAt    time.Time `json:"createdAt"`
	UpdatedAt    time.Time `json:"updatedAt"`
}

// Key is what makes a conversation unique.
type Key struct {
	Environment    string `json:"environment"`
	Subject        string `json:"subject"`
	AgentID        string `json:"agentId"`
	ConversationID string `json:"conversationId"`
}

// Active is the one mutating run of the binding.
type Active struct {
	Run   string `json:"run"`
	Ord   int64  `json:"ord"`   // position among the binding's runs
	Epoch int64  `json:"epoch"` // that it was admitted in; the binding's, unless it drains
	Pin   Pin    `json:"pin"`   // what it runs
	Gen   int64  `json:"gen"`   // lease generation of the owner
	Owner string `json:"owner"` // boot nonce of the owning engine; whether that lives, see package replica
}

// Sandbox is the worker that serves the binding.
type Sandbox struct {
	Gen  int64  `json:"gen"`
	Addr string `json:"addr"` // where the worker listens
}

// Head is the committed native thread state. Rev 0 is none.
type Head struct {
	Rev      int64           `json:"rev"`
	Ref      string          `json:"ref,omitempty"`   // of the blob
	Hash     string          `json:"hash,omitempty"`  // SHA-256 of the blob, hexadecimal
	Codec    string          `json:"codec,omitempty"` // of its bytes
	Size     int64           `json:"size,omitempty"`  // bytes
	ByRun    string          `json:"byRun,omitempty"`
	Terminal json.RawMessage `json:"terminal,omitempty"` // terminal event that goes with the head
}

// MaxQueue bounds the runs that wait in one conversation.
const MaxQueue = 16

// Queued is a run that waits for its turn.
type Queued struct {
	Run string `json:"run"`
	Pin Pin    `json:"pin"` // what it runs, where its epoch has no pin by then

	// Urgent runs were admitted by Interrupt: they wait for the active run only, not for a person who decides.
	Urgent bool `json:"urgent,omitempty"`
}

// Errors of a Store.
var (
	ErrNotFound = errors.New("session: not found")
	// ErrExists: the id is taken; nothing was written.
	ErrExists = errors.New("session: exists")
	// ErrRevision: the stored revision is another; nothing was written.
	ErrRevision = errors.New("session: revision conflict")
	// ErrUnknownOutcome: the write may or may not have happened; re-read and look for LastOp.
	ErrUnknownOutcome = errors.New("session: write outcome unknown")
)

// Store keeps binding documents. Implementations must pass store/storetest.
type Store interface {
	// InsertSession stores b, whose Rev is 1.
	InsertSession(ctx context.Context, b Binding) error
	Session(ctx context.Context, id string) (Binding, error)
	// UpdateSession stores b (whose Rev is the next revision) where the stored revision is b.Rev-1.
	UpdateSession(ctx context.Context, b Binding) error
	// SessionsOf lists a subject's bindings, newest id first, with id < before where before is not empty.
	// agentID filters where it is not empty. At most limit (1 to 1,000).
	SessionsOf(ctx context.Context, environment, subject, agentID, before string, limit int) ([]Binding, error)
	// PinnedSessions counts the bindings of an agent that are pinned to a version, of whatever subject, up to limit.
	PinnedSessions(ctx context.Context, environment, agentID string, limit int) (int, error)
	// BusySessions lists the bindings with an active or draining run or a pending interrupt, by id ascending, id > after.
	BusySessions(ctx context.Context, after string, limit int) ([]Busy, error)
}

// Busy is what a sweep looks at of a binding that is busy.
type Busy struct {
	ID        string
	Run       string // the active one; empty where the binding only waits for a person
	Owner     string // of the active run's lease
	Draining  string // the active run, where it is to end because the conversation was cleared
	Interrupt string // that is pending
	Urgent    bool   // the head of the queue was admitted to take the active run's place
}

// Busy is the binding as BusySessions lists it, and whether it does.
func (b Binding) Busy() (Busy, bool) {
	y := Busy{ID: b.ID, Draining: b.Draining, Urgent: len(b.Queue) > 0 && b.Queue[0].Urgent}
	if b.Active != nil {
		y.Run, y.Owner = b.Active.Run, b.Active.Owner
	}
	if b.Pending != nil {
		y.Interrupt = b.Pending.Interrupt
	}
	return y, b.Active != nil || b.Draining != "" || b.Pending != nil
}
