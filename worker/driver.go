// Package worker is the host that runs inside a sandbox: it serves one conversation in one epoch, drives one harness,
// keeps the journal of what the harness said until the engine has made it durable, and owns the process tree. It
// never sees a client, a database or a credential.
package worker

import (
	"context"
	"log/slog"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// Driver translates between one harness and canonical events. A worker makes one, opens it once, runs turns one
// after the other and closes it. A Driver may also be a Stateful and a Parker.
type Driver interface {
	// Open builds or restores the native side from the state folder. It makes no model call.
	Open(ctx context.Context, env Environment, c harness.Construction) error
	// Turn runs one turn to its end and yields what happens, in order. The last event that it yields is the terminal
	// (run.finished, run.error or run.cancelled, without sideEffects and thread where the driver cannot know them);
	// the host supplies one when it is missing and when an error is returned. run.started is the engine's. A turn that
	// has to ask a person yields interrupt.requested and, as its terminal, run.interrupted; the host sets the interrupt's
	// id and revision in both. With t.Resume the turn goes on from there: the calls in t.Resume.Inherit are open already.
	// A rejected call ends as tool.error with code CodeRejected, never as tool.finished. When ctx
	// is cancelled (context.Cause is a *Cancelled) the driver stops model, tools and children of this turn and
	// returns; it may still yield.
	Turn(ctx context.Context, t harness.Turn, sink Sink) error
	// Close ends the native side. The host then ends what is left of the process tree.
	Close(ctx context.Context) error
}

// CodeRejected is the code of the tool.error of a call that a person rejected.
const CodeRejected = "rejected"

// Cancelled is the cause of a turn's cancelled context.
type Cancelled struct{ Reason event.CancelReason }

func (c *Cancelled) Error() string { return "turn cancelled: " + string(c.Reason) }

// Step is one native step, translated. Events may be empty; Facts are for the engine only.
type Step struct {
	Events []event.Event
	Facts  map[string]string
}

// Sink takes the steps of a turn.
type Sink interface {
	// Yield appends to the journal. It blocks while the journal is full, which pauses the harness. An error means that
	// the turn is over (invalid event, worker shutting down): the driver stops and returns it.
	Yield(s Step) error
}

// Environment is what the host gives to a driver.
type Environment struct {
	Workspace string // folder of the agent's files; the only place its tools may touch
	State     string // folder of the harness's own state, kept between workers of the conversation's epoch
	ModelURL  string // base URL of the loopback facade of the model proxy, without a trailing slash
	Tree      Tree   // starts processes that the host owns
	Log       *slog.Logger
}
