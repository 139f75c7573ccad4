package acp

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

// Driver is the worker.Driver of one agent. A process that dies is started again, and its session resumed, by the next
// turn.
type Driver struct {
	profile      Profile
	env          worker.Environment
	construction harness.Construction
	agent        atomic.Pointer[agent] // nil while there is no process; only Open, Turn and Close change it
}

// New makes a driver from a profile. It is a worker.Stateful where the profile has StatePaths, and a worker.Parker where
// what waits for a person waits in the agent's process.
func New(p Profile) worker.Driver {
	d := newDriver(p)
	moves, parks := len(p.StatePaths) > 0, !p.Interrupts
	switch {
	case moves && parks:
		return movingParker{stateful{d}, parker{d}, d}
	case moves:
		return moving{stateful{d}, d}
	case parks:
		return parking{parker{d}, d}
	}
	return d
}

func newDriver(p Profile) *Driver { return &Driver{profile: p.withDefaults()} }

// The forms of a driver. Each is what the host shall see and no more.
type (
	moving struct {
		stateful
		*Driver
	}
	parking struct {
		parker
		*Driver
	}
	movingParker struct {
		stateful
		parker
		*Driver
	}
	stateful struct{ d *Driver }
	parker   struct{ d *Driver }
)

var (
	_ worker.Stateful = moving{}
	_ worker.Parker   = parking{}
	_ worker.Stateful = movingParker{}
	_ worker.Parker   = movingParker{}
)

// Open starts the agent and opens the session that the state folder names, or a new one. It returns a
// *worker.Failure.
func (d *Driver) Open(ctx context.Context, env worker.Environment, c harness.Construction) error {
	d.env, d.construction = env, c
	if _, err := d.ensure(ctx); err != nil {
		return d.profile.classify(err)
	}
	return nil
}

// Close ends the agent.
func (d *Driver) Close(context.Context) error {
	if a := d.agent.Swap(nil); a != nil {
		a.stop()
	}
	return nil
}

// Turn runs one prompt, or goes on with one that a person interrupted. Every way in which it can end yields its terminal;
// an error is returned only where the host itself ended the turn.
func (d *Driver) Turn(ctx context.Context, t harness.Turn, sink worker.Sink) error {
	run := newTurn(d.profile, t.RunID, sink)
	how, err := d.play(ctx, run, t)
	if a := d.agent.Load(); a != nil {
		a.release()
		defer d.reap(a, err)
	}
	return d.end(ctx, run, how, err)
}

func (d *Driver) play(ctx context.Context, run *turn, t harness.Turn) (outcome, error) {
	parks := t.Resume != nil && !d.profile.Interrupts
	if a := d.agent.Load(); a != nil && !parks {
		d.supersede(ctx, a)
	}
	if parks {
		run.tell(d.agent.Load())
		return d.resume(ctx, run, *t.Resume)
	}
	a, err := d.ensure(ctx)
	if err != nil {
		return outcome{}, err
	}
	run.tell(a)
	params := promptParams{SessionID: a.sessionID, Prompt: []promptBlock{}}
	if t.Resume != nil {
		params.Meta = resumeMeta(t.Resume.Decision)
		run.translator.inherit(*t.Resume, nil)
	} else if params.Prompt, err = a.takes.prompt(t); err != nil {
		return outcome{}, err
	}
	a.begin(run)
	answer, err := a.conn.start(ctx, "session/prompt", params)
	if err != nil {
		return outcome{}, err
	}
	return d.wait(ctx, a, run, answer)
}

// Facts that every turn tells.
const (
	FactSessionID    = "native_session_id"
	FactAgentVersion = "acp.agent_version"
)

// tell yields what is known of the agent that serves the turn.
func (t *turn) tell(a *agent) {
	if a != nil {
		t.yield([]worker.Step{{Facts: map[string]string{FactSessionID: label(a.sessionID, maxFact), FactAgentVersion: a.version}}})
	}
}

// reap ends a process that is of no more use: it has closed its output, did not obey, or broke the protocol.
func (d *Driver) reap(a *agent, err error) {
	if a.alive() && !errors.Is(err, errViolation) && !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	a.kill()
	d.agent.CompareAndSwap(a, nil)
}

// ensure gives a live agent with an open session.
func (d *Driver) ensure(ctx context.Context) (*agent, error) {
	a := d.agent.Load()
	if a != nil && a.alive() {
		return a, nil
	}
	if a != nil {
		d.env.Log.Warn("agent has ended, starting it again", "stderr", a.process.StderrTail())
		a.kill()
		d.agent.Store(nil)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.profile.StartTimeout, context.DeadlineExceeded)
	defer cancel()
	a, err := d.start(ctx)
	if err != nil {
		return nil, err
	}
	d.agent.Store(a)
	return a, nil
}

func (d *Driver) start(ctx context.Context) (*agent, error) {
	stored, err := loadSession(d.env.State)
	if err != nil {
		return nil, notStored(err, false)
	}
	command, err := d.profile.Command(d.env, d.construction)
	if err != nil {
		return nil, fmt.Errorf("failed to make the agent's command: %w", err)
	}
	var meta any
	if d.profile.Meta != nil {
		if meta, err = d.profile.Meta(d.construction); err != nil {
			return nil, fmt.Errorf("failed to make the agent's construction: %w", err)
		}
	}
	a, err := launch(ctx, d.profile, d.env, d.construction, command)
	if err != nil {
		return nil, err
	}
	id, err := a.open(ctx, stored, d.env.Workspace, meta)
	if err == nil && id != stored {
		if err = saveSession(d.env.State, id); err != nil {
			err = notStored(err, true)
		}
	}
	if err != nil {
		d.env.Log.Warn("agent could not open its session", "error", err, "stderr", a.process.StderrTail())
		a.kill()
		return nil, err
	}
	return a, nil
}

func notStored(err error, retryable bool) error {
	return &worker.Failure{
		Category: event.CategoryPersistence, Code: "session_not_stored", Cause: err, Retryable: retryable,
		Message: "The harness's session could not be stored or read.",
	}
}

// end yields the terminal.
func (d *Driver) end(ctx context.Context, run *turn, how outcome, err error) error {
	var sink *sinkError
	if errors.As(run.err, &sink) {
		return sink.err
	}
	if run.err != nil {
		err = run.err
	}
	if rpc := new(RPCError); errors.As(err, &rpc) {
		rpc.said = run.translator.withheld()
		if stop := d.profile.stop(rpc); stop != "" {
			how, err = outcome{stopReason: stop}, nil
		}
	}
	if err == nil {
		run.yield(steps(run.translator.release()))
	}
	thread := event.ThreadState{Durability: d.profile.Durability}
	switch {
	case err == nil && how.interrupt != nil:
		reason := how.reason
		if reason == "" {
			reason = string(how.interrupt.Kind)
		}
		run.yield(steps([]event.Event{{Data: *how.interrupt}}))
		run.yield([]worker.Step{run.terminalStep(event.RunInterrupted{InterruptID: how.interrupt.InterruptID, Reason: reason, Thread: thread})})
	case err == nil && stopReasons[how.stopReason]:
		run.yield(steps(run.translator.finish()))
		run.yield([]worker.Step{run.terminalStep(event.RunFinished{Outcome: "success", StopReason: how.stopReason, Thread: thread})})
	case ctx.Err() != nil:
		run.yield(steps(run.translator.rejections()))
		run.yield([]worker.Step{run.terminalStep(event.RunCancelled{Reason: cancelReason(ctx), Thread: thread})})
	default:
		run.yield(steps(run.translator.rejections()))
		if err == nil { // the agent says cancelled, and nobody asked for it
			err = errEnded
		}
		f := d.profile.classify(err)
		d.log(f)
		run.yield([]worker.Step{run.terminalStep(event.RunError{
			Code: f.Code, Message: f.Message, Category: f.Category, Retryable: f.Retryable, RetryAfterMs: f.RetryAfterMs, Thread: thread,
		})})
	}
	if errors.As(run.err, &sink) {
		return sink.err
	}
	return nil
}

var errEnded = &worker.Failure{
	Category: event.CategoryCancelled, Code: "harness_cancelled", Message: "The harness ended the turn by itself.",
}

func (d *Driver) log(f *worker.Failure) {
	var rpc *RPCError
	attrs := []any{"code", f.Code, "category", f.Category, "cause", f.Cause}
	if errors.As(f.Cause, &rpc) {
		attrs = append(attrs, "rpc_code", rpc.Code)
	}
	if a := d.agent.Load(); a != nil && !a.alive() {
		attrs = append(attrs, "stderr", a.process.StderrTail())
	}
	d.env.Log.Warn("turn failed", attrs...)
}

// cancelReason reads why a turn's context was cancelled.
func cancelReason(ctx context.Context) event.CancelReason {
	var c *worker.Cancelled
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &c):
		return c.Reason
	case errors.Is(cause, context.DeadlineExceeded):
		return event.CancelDeadline
	}
	return event.CancelShutdown
}
