package session

import (
	"encoding/json"
	"time"
)

// Pending is the interrupt that the conversation waits for. It is written in the same update as the head from which
// the run can go on.
type Pending struct {
	Interrupt string          `json:"interrupt"` // id.OfInterrupt(Run)
	Run       string          `json:"run"`       // that it ended
	Revision  int64           `json:"revision"`
	Deadline  *time.Time      `json:"deadline,omitempty"`
	Request   json.RawMessage `json:"request"` // data of the interrupt.requested event
}

// Settlement says what became of an interrupt.
type Settlement string

// Settlements.
const (
	Resumed    Settlement = "RESUMED"
	Dismissed  Settlement = "DISMISSED"
	Expired    Settlement = "EXPIRED"
	Superseded Settlement = "SUPERSEDED" // by a new run of the conversation
	Cleared    Settlement = "CLEARED"
)

// Decided is the last interrupt that was settled.
type Decided struct {
	Interrupt string     `json:"interrupt"`
	Revision  int64      `json:"revision"`
	How       Settlement `json:"how"`
	Digest    string     `json:"digest,omitempty"` // of the decision, where it was RESUMED
	Run       string     `json:"run,omitempty"`    // that goes on, where it was RESUMED
}
