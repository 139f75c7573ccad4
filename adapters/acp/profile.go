// Package acp drives agents that speak the Agent Client Protocol, version 1, on standard input and output. One driver
// serves them all; a Profile says how an agent is started and where it departs from the protocol.
//
// The driver reads raw JSON and switches on the kind of an update itself: a kind that it does not know is kept as a
// bounded fact and never guessed.
package acp

import (
	"encoding/json"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

// Profile describes one agent to the driver. Command is required; everything else has a default that keeps to the
// protocol and refuses what is not known to be safe.
type Profile struct {
	// Command is the program for a worker's environment and the agent's construction.
	Command func(env worker.Environment, c harness.Construction) (worker.Command, error)
	// Meta is the `_meta` of session/new and session/resume: the way to hand a construction to an agent of ours. Nil
	// sends none.
	Meta func(c harness.Construction) (any, error)
	// Authenticate is the method id for `authenticate`, called after `initialize`. Empty calls nothing.
	Authenticate string
	// Mode is set with session/set_mode once a session is open. Empty leaves the agent's own.
	Mode string
	// ToolName reads a tool's name where the agent does not use the protocol's `name`. Nil, or an empty answer, falls
	// back to the protocol's.
	ToolName func(meta json.RawMessage) string
	// Namespace reads the path of delegated agents that an update comes from, outermost first. Nil is always the root.
	Namespace func(meta json.RawMessage) []Delegate
	// ParentMessage reads the native id of the message that asked for a tool call. Nil is unknown.
	ParentMessage func(meta json.RawMessage) string
	// InputComplete says that the rawInput of a `tool_call` is complete. Where it is not, input that comes with a pending
	// call may still grow and is held back until the call runs.
	InputComplete bool
	// NoPlanPriority says that the agent has no priorities and sends some only because the protocol wants them.
	NoPlanPriority bool
	// UsageNotification is an extension notification whose params hold `usage`, cumulative over the turn. Empty: none.
	UsageNotification string
	// TrustErrors says that `data` of a JSON-RPC error holds category, code, retryable and retryAfterMs, and that its
	// message is safe to show.
	TrustErrors bool
	// Synthetic reads from the id of a message that the harness wrote it and not the model. Such a message is held back
	// until something follows it or the turn has ended well: where the turn fails, it says the same again, in words that
	// are not safe to show. Nil is never.
	Synthetic func(messageID string) bool
	// Notice reads from a notice the code of its warning. A notice with a code stands between messages: it ends the one that
	// is open. Nil, or an empty answer, is "harness_notice" and ends nothing.
	Notice func(meta json.RawMessage) string
	// Errors classifies errors of the agent, first match first, before the protocol's own classes.
	Errors []ErrorClass
	// Permission answers a request for permission, or says that a person has to. Nil rejects.
	Permission PermissionPolicy
	// Forms says that the agent may ask a person to fill in a form (`elicitation/create`). Without it the driver does not
	// offer that.
	Forms bool
	// Interrupts says that a prompt may end with an interrupt, and that another goes on after it, as Own describes. The
	// agent then keeps what waits; otherwise it waits in the process, inside of the running prompt, and is lost with it.
	Interrupts bool
	// Rejected reads from a call's end that a person refused the call. Nil is never; the driver knows the refusals that
	// it passed on itself.
	Rejected func(meta json.RawMessage) bool
	// OutcomeUnknown reads from a call's end that nobody can tell whether it had its effects. Nil is never.
	OutcomeUnknown func(meta json.RawMessage) bool
	// Quiet is how long the agent must have said nothing, while it waits for a person, before the turn is interrupted:
	// requests that come together are asked together. Zero is 150 ms.
	Quiet time.Duration
	// StatePaths are the files and folders, relative to the worker's state folder, that make up the agent's thread: with
	// them a new process on another host resumes the session. The driver's own session file is added. Nil: the state
	// cannot be moved.
	StatePaths []string
	// Durability is what a turn's state is worth when the turn ends. Empty is NONE.
	Durability event.Durability
	// StartTimeout bounds starting the program and opening the session. Zero is 60 s.
	StartTimeout time.Duration
	// CancelGrace is how long the agent may take to end a cancelled turn before its process is killed. Zero is 5 s.
	CancelGrace time.Duration
}

// Delegate is one delegated agent of a namespace path.
type Delegate struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	ToolCallID string `json:"toolCallId"` // the native id of the call that made it
}

const (
	defaultStartTimeout = 60 * time.Second
	defaultCancelGrace  = 5 * time.Second
	defaultQuiet        = 150 * time.Millisecond
	// maxQuiet bounds waiting for quiet, from the first request.
	maxQuiet = 2 * time.Second
)

func (p Profile) withDefaults() Profile {
	if p.StartTimeout <= 0 {
		p.StartTimeout = defaultStartTimeout
	}
	if p.CancelGrace <= 0 {
		p.CancelGrace = defaultCancelGrace
	}
	if p.Quiet <= 0 {
		p.Quiet = defaultQuiet
	}
	if p.Permission == nil {
		p.Permission = Reject
	}
	if p.Durability == "" {
		p.Durability = event.DurabilityNone
	}
	return p
}
