// Package integrity checks that a store keeps the engine's promises: every log is whole and says what the automaton
// allows, documents say what their logs say, bindings hold what is there. It reads only; Repair mends what can be computed
// anew, through the ordinary transitions, and never touches a log or a blob.
package integrity

import "fmt"

// Code names a kind of finding. Codes are never renamed: tools match them.
type Code string

// Findings about the log. None of them can be repaired.
const (
	ChunkHash       Code = "chunk_hash"       // a chunk is not what was sealed
	ChunkDamaged    Code = "chunk_damaged"    // a chunk cannot be decoded
	ChunkOwner      Code = "chunk_owner"      // a chunk names another session than its run
	LogGap          Code = "log_gap"          // events are missing
	LogOverlap      Code = "log_overlap"      // two chunks hold the same sequence
	LogOrphaned     Code = "log_orphaned"     // a log has no run
	LogUnexpected   Code = "log_unexpected"   // a run that never began has a log
	LogMissing      Code = "log_missing"      // a run that has begun has no log, and nothing says that it expired
	LogShort        Code = "log_short"        // the document has seen more events than there are
	GenerationBack  Code = "generation_back"  // a chunk of a lower lease generation follows, or one above the binding's
	CursorBack      Code = "cursor_back"      // a source's cursor goes back within one incarnation
	AfterTerminal   Code = "after_terminal"   // an event follows the terminal
	EventOrder      Code = "event_order"      // an event breaks a rule of the stream
	TerminalMissing Code = "terminal_missing" // the run has ended, and its log has not
)

// Findings about documents.
const (
	DocumentDamaged  Code = "document_damaged"  // a document cannot be decoded
	Projection       Code = "projection"        // a run document does not say what its log says; can be repaired
	SessionMissing   Code = "session_missing"   // a run names a session that is not there
	RunHalted        Code = "run_halted"        // a run was halted because its log was found damaged, and nobody has given it up; can be repaired
	RunUnheld        Code = "run_unheld"        // a run has not ended, and its session does not hold it
	BindingInvalid   Code = "binding_invalid"   // a binding breaks an invariant
	BindingRun       Code = "binding_run"       // a binding holds a run that is not there, or another session's
	BindingEnded     Code = "binding_ended"     // a binding is held by a run that has ended; can be repaired
	BindingOrder     Code = "binding_order"     // orders of a session's runs are given twice, or not by the binding
	BindingInterrupt Code = "binding_interrupt" // binding and run disagree on an interrupt
	HeadMissing      Code = "head_missing"      // the thread state of a binding's head is not there
	HeadDamaged      Code = "head_damaged"      // it is not what its hash says
	HeadDiffers      Code = "head_differs"      // the head ends its run in another way than the log does
	AgentVersion     Code = "agent_version"     // an agent's current version is not there
	OutboxPending    Code = "outbox_pending"    // an agent's tuples have not been applied
	AttachmentBlob   Code = "attachment_blob"   // an attachment's content is missing or damaged
)

// Finding is one thing that is not as it should be.
type Finding struct {
	Code       Code   `json:"code"`
	Run        string `json:"run,omitempty"`
	Session    string `json:"session,omitempty"`
	Agent      string `json:"agent,omitempty"`
	Attachment string `json:"attachment,omitempty"`
	Detail     string `json:"detail"`
	Repairable bool   `json:"repairable,omitempty"`
}

// String is one line.
func (f Finding) String() string {
	s := string(f.Code)
	for _, part := range []string{f.Run, f.Session, f.Agent, f.Attachment} {
		if part != "" {
			s += " " + part
		}
	}
	return s + ": " + f.Detail
}

// maxFindings bounds a report. Whoever has more has enough to begin with.
const maxFindings = 10_000

// Report is the outcome of a verification.
type Report struct {
	Runs        int64     `json:"runs"`
	Events      int64     `json:"events"`
	Chunks      int64     `json:"chunks"`
	Sessions    int64     `json:"sessions"`
	Agents      int64     `json:"agents"`
	Attachments int64     `json:"attachments"`
	Expired     int64     `json:"expiredRuns"` // runs whose log retention has taken, or a part of it
	Partial     int64     `json:"partialRuns"` // runs whose events were checked without the automaton: what they go on from has expired
	Findings    []Finding `json:"findings"`
	Truncated   bool      `json:"truncated,omitempty"` // there were more than are listed
	// Unsettled are things that an engine has begun and not finished, for which the store holds all that is needed: the owner
	// or the next start does it. They are no findings; where engines are at work and nothing dies they pass.
	Unsettled []Finding `json:"unsettled,omitempty"`
}

// Summary is the report in a line.
func (r Report) Summary() string {
	s := fmt.Sprintf("verify: %d runs, %d events, %d findings", r.Runs, r.Events, len(r.Findings))
	if r.Truncated {
		s += " and more"
	}
	if n := len(r.Unsettled); n > 0 {
		s += fmt.Sprintf(" (%d unsettled: the engine has still to finish them)", n)
	}
	return s
}
