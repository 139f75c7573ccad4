package acp

import (
	"context"
	"errors"
	"fmt"

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
	agent        *agent // nil while there is no process
}

// New makes a driver from a profile.
func New(p Profile) *Driver { return &Driver{profile: p.withDefaults()} }

// Open starts the agent and opens the session that the state folder names, or a new one. It returns a
// *worker.Failure.
func (d *Driver) Open(ctx context.Context, env worker.Environment, c harness.Construction) error {
	d.env, d.construction = env, c
	if err := d.ensure(ctx); err != nil {
		return d.profile.classify(err)
	}
	return nil
}

// Close ends the agent.
func (d *Driver) Close(context.Context) error {
	if d.agent != nil {
		d.agent.stop()
		d.agent = nil
	}
	return nil
}

// Turn runs one prompt. Every way in which it can end yields its terminal; an error is returned only where the host
// itself ended the turn.
func (d *Driver) Turn(ctx context.Context, t harness.Turn, sink worker.Sink) error {
	run := newTurn(d.profile, t.RunID, sink)
	if err := d.ensure(ctx); err != nil {
		return d.end(ctx, run, "", err)
	}
	run.yield([]worker.Step{{Facts: map[string]string{
		FactSessionID: label(d.agent.sessionID, maxFact), FactAgentVersion: d.agent.version,
	}}})
	d.agent.begin(run)
	reason, err := d.prompt(ctx, run, t.Text)
	d.agent.release()
	defer d.reap(err)
	return d.end(ctx, run, reason, err)
}

// Facts that every turn tells.
const (
	FactSessionID    = "native_session_id"
	FactAgentVersion = "acp.agent_version"
)

// reap ends a process that is of no more use: it has closed its output, did not obey, or broke the protocol.
func (d *Driver) reap(err error) {
	if d.agent.alive() && !errors.Is(err, errViolation) && !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	d.agent.kill()
	d.agent = nil
}

// ensure gives the driver a live agent with an open session.
func (d *Driver) ensure(ctx context.Context) error {
	if d.agent != nil && d.agent.alive() {
		return nil
	}
	if d.agent != nil {
		d.env.Log.Warn("agent has ended, starting it again", "stderr", d.agent.process.StderrTail())
		d.agent.kill()
		d.agent = nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.profile.StartTimeout, context.DeadlineExceeded)
	defer cancel()
	a, err := d.start(ctx)
	if err != nil {
		return err
	}
	d.agent = a
	return nil
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
	a, err := launch(ctx, d.profile, d.env, command)
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

// begin makes run the turn that takes the agent's updates.
func (a *agent) begin(run *turn) {
	a.turnMu.Lock()
	defer a.turnMu.Unlock()
	a.turn = run
}

// release ends that, and waits until the sink is no longer used.
func (a *agent) release() {
	a.turnMu.Lock()
	defer a.turnMu.Unlock()
	a.turn = nil
}

type promptParams struct {
	SessionID string         `json:"sessionId"`
	Prompt    []contentBlock `json:"prompt"`
}

// prompt runs a prompt to its end and gives its stop reason. When the turn is cancelled or cannot go on, the agent is
// told so and gets CancelGrace to end it; then it is killed.
func (d *Driver) prompt(ctx context.Context, run *turn, text string) (string, error) {
	a := d.agent
	answer, err := a.conn.start(ctx, "session/prompt", promptParams{
		SessionID: a.sessionID, Prompt: []contentBlock{{Type: "text", Text: text}},
	})
	if err != nil {
		return "", err
	}
	patience := context.WithoutCancel(ctx)
	select {
	case m := <-answer:
		answered := make(chan message, 1)
		answered <- m
		return a.result(patience, run, answered)
	case <-a.conn.done:
		return a.result(patience, run, answer)
	case <-ctx.Done():
	case <-run.failed:
		if errors.Is(run.err, errViolation) {
			return "", run.err
		}
	}
	patience, cancel := context.WithTimeoutCause(patience, d.profile.CancelGrace, context.DeadlineExceeded)
	defer cancel()
	run.ending.Store(true)
	_ = a.conn.notify(patience, "session/cancel", map[string]string{"sessionId": a.sessionID})
	reason, err := a.result(patience, run, answer)
	if errors.Is(err, context.DeadlineExceeded) {
		d.env.Log.Warn("agent did not end a cancelled turn in time, killing it", "grace", d.profile.CancelGrace)
		a.process.Kill()
	}
	return reason, err
}

// result waits for a prompt's answer and yields the usage that comes with it.
func (a *agent) result(ctx context.Context, run *turn, answer <-chan message) (string, error) {
	raw, err := a.conn.await(ctx, answer)
	if err != nil {
		return "", err
	}
	r, err := readResult(raw)
	if err != nil {
		return "", err
	}
	a.turnMu.Lock()
	defer a.turnMu.Unlock()
	run.yield(steps(run.translator.tokensUsed(r.Usage, true)))
	return r.StopReason, nil
}

// end yields the terminal.
func (d *Driver) end(ctx context.Context, run *turn, stopReason string, err error) error {
	var sink *sinkError
	if errors.As(run.err, &sink) {
		return sink.err
	}
	if run.err != nil {
		err = run.err
	}
	thread := event.ThreadState{Durability: d.profile.Durability}
	switch {
	case err == nil && stopReasons[stopReason]:
		run.yield(steps(run.translator.finish()))
		run.yield([]worker.Step{run.terminalStep(event.RunFinished{Outcome: "success", StopReason: stopReason, Thread: thread})})
	case ctx.Err() != nil:
		run.yield([]worker.Step{run.terminalStep(event.RunCancelled{Reason: cancelReason(ctx), Thread: thread})})
	default:
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
	if d.agent != nil && !d.agent.alive() {
		attrs = append(attrs, "stderr", d.agent.process.StderrTail())
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

var _ worker.Driver = (*Driver)(nil)
