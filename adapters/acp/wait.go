package acp

import (
	"context"
	"errors"
	"time"
)

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

// wait follows a prompt to its end, or until it waits for a person. When the turn is cancelled or cannot go on, the
// agent is told so and gets CancelGrace to end it; then it is killed.
func (d *Driver) wait(ctx context.Context, a *agent, run *turn, prompt <-chan message) (outcome, error) {
	patience := context.WithoutCancel(ctx)
	still := newStillness(d.profile.Quiet)
	defer still.timer.Stop()
	for following := true; following; {
		select {
		case m := <-prompt:
			answered := make(chan message, 1)
			answered <- m
			return a.result(patience, run, answered)
		case <-a.conn.done:
			return a.result(patience, run, prompt)
		case <-run.stir:
			still.stir()
		case <-still.timer.C:
			still.last = time.Time{}
			for _, q := range a.stale(run) {
				_ = a.conn.reply(patience, q.id, *q.cancelled())
			}
			if asked, err := a.park(run, prompt); asked != nil || err != nil {
				return outcome{interrupt: asked}, err
			}
		case <-ctx.Done():
			following = false
		case <-run.failed:
			if errors.Is(run.err, errViolation) {
				return outcome{}, run.err
			}
			following = false
		}
	}
	patience, cancel := context.WithTimeoutCause(patience, d.profile.CancelGrace, context.DeadlineExceeded)
	defer cancel()
	run.ending.Store(true)
	_ = a.conn.notify(patience, "session/cancel", map[string]string{"sessionId": a.sessionID})
	for _, q := range a.asked(run) {
		_ = a.conn.reply(patience, q.id, *q.cancelled())
	}
	how, err := a.result(patience, run, prompt)
	if errors.Is(err, context.DeadlineExceeded) {
		d.env.Log.Warn("agent did not end a cancelled turn in time, killing it", "grace", d.profile.CancelGrace)
		a.process.Kill()
	}
	return how, err
}

// stale takes the requests away whose call has ended without an answer.
func (a *agent) stale(run *turn) []*ask {
	a.turnMu.Lock()
	defer a.turnMu.Unlock()
	var out, left []*ask
	for _, q := range run.asks {
		if q.form == nil && q.call.ended {
			out = append(out, q)
		} else {
			left = append(left, q)
		}
	}
	run.asks = left
	return out
}

// asked takes the requests away that wait for a person.
func (a *agent) asked(run *turn) []*ask {
	a.turnMu.Lock()
	defer a.turnMu.Unlock()
	asks := run.asks
	run.asks = nil
	return asks
}

// result waits for a prompt's answer, and yields the usage that comes with it.
func (a *agent) result(ctx context.Context, run *turn, prompt <-chan message) (outcome, error) {
	raw, err := a.conn.await(ctx, prompt)
	if err != nil {
		return outcome{}, err
	}
	r, err := readResult(raw)
	if err != nil {
		return outcome{}, err
	}
	a.turnMu.Lock()
	defer a.turnMu.Unlock()
	run.yield(steps(run.translator.tokensUsed(r.Usage, true)))
	how := outcome{stopReason: r.StopReason}
	if a.profile.Interrupts {
		how.interrupt, how.reason, err = run.translator.nativeInterrupt(r.Meta)
	}
	return how, err
}
