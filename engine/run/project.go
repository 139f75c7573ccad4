package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/session"
)

// maxOutputBytes bounds the folded messages that a run document keeps; the log has the rest for as long as it lives.
const maxOutputBytes = 512 << 10

const projectPage = 2048

// projectStart shows the run as running.
func (x *execution) projectStart(ctx context.Context, started event.RunStarted) error {
	r, err := x.c.update(ctx, x.run.ID, func(r *Run) bool {
		if r.Status != StatusQueued {
			return false
		}
		now := x.c.now()
		r.Status, r.StartedAt, r.Isolation, r.LastSequence = StatusRunning, &now, started.Isolation, 1
		return true
	})
	if err != nil {
		return err
	}
	x.run = r
	if r.CancelReason != "" { // asked for between our read of the run and now
		x.cancel(r.CancelReason)
	}
	return nil
}

// settle follows the logged terminal: project it, then free the binding, then what belongs to the worker.
// It goes on while the engine shuts down, for a bounded time: what is left are a few writes.
func (x *execution) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	ended, err := x.c.project(ctx, x.run.ID)
	if err != nil {
		return err
	}
	if !ended {
		return fmt.Errorf("run %s has no terminal to settle", x.run.ID)
	}
	worker := x.b.Sandbox
	// Before the conversation is free: the next run's state must not be taken for an older one.
	if x.keepsState() && x.b.Epoch == x.epoch {
		if err := x.c.threads().Keep(ctx, x.b.ID, x.epoch, x.b.Head); err != nil {
			x.log.Warn("older states of the thread not removed", "error", err)
		}
	}
	b, err := x.c.mutate(ctx, x.run.SessionID, func(b session.Binding, op session.Op) (session.Binding, error) {
		if b.Epoch != x.epoch { // before the binding forgets the run: nothing waits for a decision on what it asked
			x.c.recordInterrupt(ctx, &session.Decided{Interrupt: id.OfInterrupt(x.run.ID), How: session.Cleared})
		}
		return session.Finish(b, x.lease, x.c.Boot, op)
	})
	switch {
	case errors.Is(err, session.ErrUnchanged):
		return nil
	case err != nil:
		return err
	}
	if b.Epoch != x.epoch {
		old := b
		old.Epoch, old.Sandbox = x.epoch, worker
		x.c.forget(ctx, old)
		return x.c.launchNext(ctx, b)
	}
	if decided := b.Decided; decided != nil && decided.Interrupt == id.OfInterrupt(x.run.ID) {
		x.c.recordInterrupt(ctx, decided) // an urgent run has taken its place at once
	}
	x.c.expireLater(b)
	x.c.idleLater(b)
	return x.c.launchNext(ctx, b)
}

// project brings a run document up to its log's terminal; false where the log has none. It is a pure function of the
// log, so doing it twice is doing it once.
func (c *Coordinator) project(ctx context.Context, runID string) (ended bool, err error) {
	tail, err := c.Events.Tail(ctx, runID)
	if errors.Is(err, event.ErrEmpty) {
		return false, nil
	}
	var gone *event.ExpiredError
	var givenUp *event.GivenUpError
	if errors.As(err, &gone) || errors.As(err, &givenUp) { // retention takes nothing before the document says all that the log did
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("failed to read the tail of run %s: %w", runID, err)
	}
	if !tail.Terminal {
		return false, nil
	}
	p, err := c.fold(ctx, runID)
	if err != nil {
		return false, err
	}
	if p.terminal.Type() == event.TypeRunInterrupted {
		// While it is cheap: a run that goes on need not fold all the logs before it.
		if in, err := c.openAtEnd(ctx, runID); err == nil {
			p.open = &in
		} else {
			c.Log.Warn("what an interrupted run left open is not in its document", "run", runID, "error", err)
		}
	}
	_, err = c.update(ctx, runID, func(r *Run) bool {
		if r.Status.Ended() {
			return false
		}
		p.into(r)
		return true
	})
	return err == nil, err
}

// projection is what a log says of its run.
type projection struct {
	started  event.RunStarted
	begin    event.Event
	terminal event.Event
	raw      []byte
	usage    *event.UsageUpdated
	asked    *event.InterruptRequested
	open     *event.Inheritance // where it is known
	text     []event.Event      // what the agent said at the root
}

func (c *Coordinator) fold(ctx context.Context, runID string) (projection, error) {
	var p projection
	for after := int64(0); ; {
		chunks, err := c.Events.Read(ctx, runID, after, projectPage)
		if err != nil {
			return p, fmt.Errorf("failed to read run %s after %d: %w", runID, after, err)
		}
		if len(chunks) == 0 {
			break
		}
		for _, chunk := range chunks {
			events, err := decoded(chunk, after)
			if err != nil {
				return p, fmt.Errorf("failed to fold run %s: %w", runID, err)
			}
			for _, e := range events {
				p.add(e)
			}
			after = chunk.Last
		}
	}
	if p.terminal.Data == nil {
		return p, nil
	}
	raw, err := event.Encode(p.terminal)
	p.raw = raw
	return p, err
}

// decoded are the events of the chunk that follows event after, where it is what was sealed.
func decoded(c event.Chunk, after int64) ([]event.Event, error) {
	if err := c.Verify(); err != nil {
		return nil, fmt.Errorf("%w: %w", event.ErrCorrupt, err)
	}
	if c.First != after+1 {
		return nil, fmt.Errorf("%w: chunk %d follows event %d", event.ErrCorrupt, c.First, after)
	}
	events, err := c.Events()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", event.ErrCorrupt, err)
	}
	return events, nil
}

func (p *projection) add(e event.Event) {
	switch d := e.Data.(type) {
	case event.RunStarted:
		p.started, p.begin = d, e
	case event.InterruptRequested:
		p.asked = &d
	case event.UsageUpdated:
		if len(e.Namespace) == 0 {
			p.usage = &d
		}
	}
	switch e.Type() {
	case event.TypeTextStarted, event.TypeTextDelta:
		p.text = append(p.text, e)
	}
	if e.Type().Terminal() {
		p.terminal = e
	}
}

// statuses of runs by the type of their terminal.
var statuses = map[event.Type]Status{
	event.TypeRunFinished:    StatusFinished,
	event.TypeRunInterrupted: StatusInterrupted,
	event.TypeRunCancelled:   StatusCancelled,
	event.TypeRunError:       StatusFailed,
}

func (p projection) into(r *Run) {
	begin, end := p.begin.Time, p.terminal.Time
	r.Status = statuses[p.terminal.Type()]
	r.Isolation, r.StartedAt, r.EndedAt = p.started.Isolation, &begin, &end
	r.LastSequence, r.Terminal, r.Usage = p.terminal.Sequence, p.raw, p.usage
	if r.Status == StatusInterrupted && p.asked != nil {
		raw, err := json.Marshal(p.asked)
		if err == nil { // it was encoded before
			r.Interrupt = &Interrupt{ID: id.OfInterrupt(r.ID), Revision: p.asked.Revision, Deadline: p.asked.Deadline, Request: raw, Open: p.open}
		}
	}
	r.Output, r.OutputTruncated = nil, false
	room := maxOutputBytes
	for _, m := range event.FoldMessages(p.text) {
		if len(m.Text) > room {
			r.OutputTruncated = true
			break
		}
		room -= len(m.Text)
		r.Output = append(r.Output, Message{ID: m.ID, Text: m.Text})
	}
}
