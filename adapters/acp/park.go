package acp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

// parked is a prompt that still runs in the agent's process while its run has ended: the agent waits for what a person
// decides. It goes on in the run that brings the decision. All fields are guarded by the agent's turnMu.
type parked struct {
	runID      string
	answer     <-chan message // of the prompt
	asked      []*ask         // what the person was asked
	later      []*ask         // what the person will be asked next
	translator *translator    // of the interrupted run
	backlog    []incoming     // what the agent said since
	bytes      int            // of the backlog
	lost       bool           // the agent said more than can be kept
}

// keep holds what the agent says while nobody listens.
func (p *parked) keep(m incoming) {
	p.bytes += len(m.params) + len(m.method) + len(m.id)
	if p.lost || p.bytes > maxBacklog {
		p.lost, p.backlog = true, nil
		return
	}
	p.backlog = append(p.backlog, m)
}

// Parked implements worker.Parker.
func (p parker) Parked() bool {
	a := p.d.agent.Load()
	if a == nil || !a.alive() {
		return false
	}
	a.turnMu.Lock()
	defer a.turnMu.Unlock()
	return a.parked != nil
}

// park ends a turn whose requests wait for a person. The native prompt goes on. Without anything that could be asked,
// it gives nil.
func (a *agent) park(run *turn, prompt <-chan message) (*event.InterruptRequested, error) {
	a.turnMu.Lock()
	defer a.turnMu.Unlock()
	if len(run.asks) == 0 || run.err != nil {
		return nil, nil
	}
	now, later := together(run.asks)
	d, ok := run.translator.interrupt(now)
	if !ok {
		return nil, fmt.Errorf("permission that cannot be shown: %w", errViolation)
	}
	a.parked = &parked{
		runID: run.translator.runID, answer: prompt, asked: now, later: later, translator: run.translator,
	}
	a.turn = nil
	return d, nil
}

// unpark takes what is parked away.
func (a *agent) unpark() *parked {
	a.turnMu.Lock()
	defer a.turnMu.Unlock()
	p := a.parked
	a.parked = nil
	return p
}

// resume goes on with the parked prompt: the agent gets the decision, and what it says belongs to run.
func (d *Driver) resume(ctx context.Context, run *turn, r harness.Resume) (outcome, error) {
	a := d.agent.Load()
	if a == nil || !a.alive() {
		return outcome{}, worker.InterruptLost(errClosed)
	}
	p, answers, err := a.goOn(run, r)
	if err != nil {
		return outcome{}, err
	}
	for i, q := range p.asked {
		if err := a.conn.reply(ctx, q.id, answers[i]); err != nil {
			return outcome{}, err
		}
	}
	return d.wait(ctx, a, run, p.answer)
}

// goOn makes run the turn that takes what the agent said since the interrupt, and says.
func (a *agent) goOn(run *turn, r harness.Resume) (*parked, []answer, error) {
	a.turnMu.Lock()
	defer a.turnMu.Unlock()
	p := a.parked
	if p == nil || p.runID != r.RunID {
		return nil, nil, worker.InterruptLost(errors.New("nothing waits for this decision"))
	}
	answers := make([]answer, len(p.asked))
	for i, q := range p.asked {
		var err error
		if answers[i], err = q.decided(r.Decision); err != nil {
			return nil, nil, &worker.Failure{
				Category: event.CategoryProtocol, Code: "decision_mismatch", Cause: err,
				Message: "The decision does not answer what was asked.",
			}
		}
	}
	if p.lost {
		a.process.Kill()
		return nil, nil, worker.InterruptLost(errTooMuch)
	}
	run.translator.inherit(r, p.translator)
	run.asks = p.later
	a.parked, a.turn = nil, run
	for _, m := range p.backlog {
		if m.id == nil {
			a.notified(m.method, m.params)
		} else if now := requests[m.method](a, m); now != nil {
			p.asked, answers = append(p.asked, &ask{id: m.id}), append(answers, *now)
		}
	}
	run.stirred()
	return p, answers, nil
}

// supersede ends a parked prompt that nobody will decide on: the agent is told that the turn is cancelled, and gets
// CancelGrace to end it.
func (d *Driver) supersede(ctx context.Context, a *agent) {
	p := a.unpark()
	if p == nil || !a.alive() {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), d.profile.CancelGrace, context.DeadlineExceeded)
	defer cancel()
	_ = a.conn.notify(ctx, "session/cancel", map[string]string{"sessionId": a.sessionID})
	for _, q := range append(p.asked, p.later...) {
		_ = a.conn.reply(ctx, q.id, *q.cancelled())
	}
	for _, m := range p.backlog {
		if now := a.refuse(m); now != nil {
			_ = a.conn.reply(ctx, m.id, *now)
		}
	}
	if _, err := a.conn.await(ctx, p.answer); errors.Is(err, context.DeadlineExceeded) {
		d.env.Log.Warn("agent did not end a superseded turn in time, killing it", "grace", d.profile.CancelGrace)
		a.kill()
		d.agent.Store(nil)
	}
}

// refuse answers what was asked of a turn that is over; nil for what was not asked.
func (a *agent) refuse(m incoming) *answer {
	if m.id == nil {
		return nil
	}
	a.turnMu.Lock()
	defer a.turnMu.Unlock()
	return requests[m.method](a, m)
}

// stillness tells when an agent that waits for a person has been quiet for a moment.
type stillness struct {
	quiet time.Duration
	timer *time.Timer
	last  time.Time // when to interrupt at the latest
}

func newStillness(quiet time.Duration) *stillness {
	s := &stillness{quiet: quiet, timer: time.NewTimer(time.Hour)}
	s.timer.Stop()
	return s
}

// stir begins the moment anew.
func (s *stillness) stir() {
	if s.last.IsZero() {
		s.last = time.Now().Add(maxQuiet)
	}
	s.timer.Reset(max(min(s.quiet, time.Until(s.last)), 0))
}
