package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/session"
)

// codeUncertain is the code of a run whose output was shown, and whose thread state could not be committed.
const codeUncertain = "thread_durability_uncertain"

// ending is the last step of a run: what the head carries, so that whoever finds the head can log the terminal.
type ending struct {
	Events []json.RawMessage `json:"events"`
	Cursor event.Cursor      `json:"cursor"` // of the worker's journal behind the step
}

func newEnding(events []event.Event, cursor event.Cursor) (json.RawMessage, error) {
	e := ending{Cursor: cursor}
	for _, ev := range events {
		raw, err := event.Encode(ev)
		if err != nil {
			return nil, err
		}
		e.Events = append(e.Events, raw)
	}
	return json.Marshal(e)
}

// batch is the ending as it goes into the log.
func (e ending) batch() (event.Batch, error) {
	b := event.Batch{Cursors: map[string]event.Cursor{event.SourceWorker: e.Cursor}}
	for _, raw := range e.Events {
		ev, err := event.Decode(raw)
		if err != nil {
			return b, err
		}
		b.Events = append(b.Events, ev)
	}
	return b, nil
}

// keepsState says whether the harness's native state is committed at the end of a turn.
func (x *execution) keepsState() bool {
	d, ok := x.c.Harnesses.Descriptor(x.run.Harness)
	return ok && d.Capabilities[harness.ThreadDurableCommit].Offers() && x.c.Blobs != nil
}

// finish takes the worker's last step into the log, in the order that makes a crash between any two steps harmless:
// what came before is durable; the native state is stored; the head is committed and carries the terminal, with the
// interrupt where there is one; then the terminal is logged.
func (p *pump) finish(ctx context.Context, last harness.SourceEvent) error {
	cursor := event.Cursor{Incarnation: p.rt.Instance(), Seq: last.Seq}
	events := p.x.withDeadline(ctx, last.Events)
	if _, err := p.w.Rehearse(events); err != nil {
		return p.end(ctx, invalidEvent(), err)
	}
	var head *session.Head
	if p.x.keepsState() && p.x.b.Draining == "" {
		h, err := p.save(ctx)
		switch {
		case errors.Is(err, harness.ErrStaleLease) || ctx.Err() != nil:
			return err
		case err != nil:
			return p.uncertain(ctx, err)
		}
		events = withThread(events, event.ThreadState{Durability: event.DurabilityCommitted, Revision: h.Rev})
		head = &h
	}
	return p.commit(ctx, events, cursor, head)
}

// save stores the native state as of the run's end.
func (p *pump) save(ctx context.Context) (session.Head, error) {
	keeper, ok := p.rt.(harness.StateKeeper)
	if !ok {
		return session.Head{}, harness.ErrNoState
	}
	state, err := keeper.State(ctx, p.x.run.ID)
	if err != nil {
		return session.Head{}, fmt.Errorf("failed to read the state of run %s: %w", p.x.run.ID, err)
	}
	return p.x.c.threads().Save(ctx, p.x.b.ID, p.x.epoch, p.x.run.ID, p.x.b.Head, state)
}

// commit writes head and interrupt, then logs the terminal that goes with them.
func (p *pump) commit(ctx context.Context, events []event.Event, cursor event.Cursor, head *session.Head) error {
	out, err := p.w.Rehearse(events)
	if err != nil {
		return p.end(ctx, invalidEvent(), err)
	}
	pending, err := p.x.pending(ctx, out)
	if err != nil {
		return err
	}
	if head != nil {
		if head.Terminal, err = newEnding(out, cursor); err != nil {
			return fmt.Errorf("failed to encode the end of run %s: %w", p.x.run.ID, err)
		}
	}
	if head != nil || pending != nil {
		gen := p.x.binding().SandboxGen
		err := p.x.mutate(ctx, func(b session.Binding, op session.Op) (session.Binding, error) {
			return session.Commit(b, p.x.lease, gen, head, pending, op)
		})
		switch {
		case errors.Is(err, session.ErrCleared): // cleared meanwhile: the terminal stands, the thread is nobody's
			events = withThread(events, event.ThreadState{Durability: event.DurabilityNone})
		case err != nil && !errors.Is(err, session.ErrUnchanged):
			return err
		case head != nil:
			p.committed = harness.Head{Rev: head.Rev, Hash: head.Hash}
		}
	}
	if _, err := p.w.Append(ctx, event.Batch{Events: events, Cursors: map[string]event.Cursor{event.SourceWorker: cursor}}); err != nil {
		return err
	}
	p.taken = cursor.Seq
	return nil
}

// uncertain ends a run whose state could not be stored: what it showed is not what the next turn will remember.
func (p *pump) uncertain(ctx context.Context, cause error) error {
	return p.end(ctx, event.RunError{Code: codeUncertain, Message: "the conversation's state after this turn could not be kept; the next turn goes on from the turn before",
		Category: event.CategoryPersistence, SideEffects: event.SideEffectsPossible}, cause)
}

// told lets the worker know which head its state became. A worker that does not hear it is replaced at the next turn.
func (p *pump) told(ctx context.Context) {
	keeper, ok := p.rt.(harness.StateKeeper)
	if !ok || p.committed.Rev == 0 {
		return
	}
	if err := keeper.Commit(ctx, p.x.run.ID, p.committed); err != nil {
		p.x.log.Debug("head not told to the worker", "error", err)
	}
}

// logHead logs the terminal that the committed head carries; false where the head is not of this run.
func (x *execution) logHead(ctx context.Context, w *event.Writer) (bool, error) {
	if x.b.Head.ByRun != x.run.ID || len(x.b.Head.Terminal) == 0 || x.b.Active == nil || x.b.Draining != "" {
		return false, nil
	}
	var e ending
	if err := json.Unmarshal(x.b.Head.Terminal, &e); err != nil {
		return false, fmt.Errorf("%w: head of session %s: %w", event.ErrCorrupt, x.b.ID, err)
	}
	b, err := e.batch()
	if err != nil {
		return false, fmt.Errorf("%w: head of session %s: %w", event.ErrCorrupt, x.b.ID, err)
	}
	_, err = w.Append(ctx, b)
	return err == nil, err
}

// withThread gives the terminal among the events its thread state.
func withThread(events []event.Event, t event.ThreadState) []event.Event {
	out := append([]event.Event(nil), events...)
	last := &out[len(out)-1]
	switch d := last.Data.(type) {
	case event.RunFinished:
		d.Thread = t
		last.Data = d
	case event.RunInterrupted:
		d.Thread = t
		last.Data = d
	case event.RunCancelled:
		d.Thread = t
		last.Data = d
	case event.RunError:
		d.Thread = t
		last.Data = d
	}
	return out
}

func invalidEvent() event.RunError {
	return event.RunError{Code: event.CodeEventInvalid, Message: "the harness sent an event that breaks the protocol",
		Category: event.CategoryProtocol, SideEffects: event.SideEffectsPossible}
}
