package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/session"
)

// Sizes of one taking from a worker's journal into the log. What has piled up while the last append was on its way
// to the disk goes into the next chunk together; nothing is held back to wait for more.
const (
	pumpAhead  = 256 // source events read ahead of the log
	pumpEvents = event.MaxChunkEvents / 2
	storePause = time.Second // before another try after the store refused
)

// errLost: the worker, or the part of its journal that is needed, no longer exists.
var errLost = errors.New("worker lost")

// pump takes a running turn from its worker's journal into the log, until the terminal is in the log.
type pump struct {
	x     *execution
	w     *event.Writer
	rt    harness.Runtime
	taken int64 // last source event that is in the log

	committed harness.Head // what the state of the run's end became; zero: nothing
}

// source is one reading of the journal.
type source struct {
	events chan harness.SourceEvent
	err    chan error // one value: why the reading ended
	cancel context.CancelFunc
}

// open reads the journal after the last source event taken, ahead of the log by a bounded number of events.
func (p *pump) open(ctx context.Context) (*source, error) {
	opening, opened := p.x.patient(ctx)
	stream, err := p.rt.Events(opening, p.x.run.ID, p.taken)
	opened()
	if err != nil {
		return nil, fromWorker(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &source{events: make(chan harness.SourceEvent, pumpAhead), err: make(chan error, 1), cancel: cancel}
	go func() {
		defer close(s.events)
		defer func() { _ = stream.Close() }()
		for {
			e, err := stream.Next(ctx)
			if err != nil {
				s.err <- fromWorker(err)
				return
			}
			select {
			case s.events <- e:
			case <-ctx.Done():
				s.err <- context.Cause(ctx)
				return
			}
		}
	}()
	return s, nil
}

// fromWorker keeps the errors that a Runtime declares, and counts a worker that breaks the protocol as lost.
func fromWorker(err error) error {
	for _, known := range []error{harness.ErrUnreachable, harness.ErrGone, harness.ErrStaleLease, harness.ErrUnknownRun, errDeaf,
		io.EOF, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", errLost, err)
}

// final says whether an error leaves this engine without the right, or the means, to go on with the run.
func final(err error) bool {
	for _, e := range []error{event.ErrFenced, event.ErrCorrupt, event.ErrBegun, event.ErrClosed, event.ErrPending,
		session.ErrFenced, session.ErrNotActive, harness.ErrStaleLease} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// stop ends the reading and waits for it.
func (s *source) stop() {
	s.cancel()
	for range s.events { //nolint:revive // drains until the reader has gone
	}
}

// run starts the turn, or finds it started, and follows it to its terminal.
func (p *pump) run(ctx context.Context) error {
	if c, ok := p.w.Cursor(event.SourceWorker); ok {
		p.taken = c.Seq
	}
	limit := p.x.deadline(ctx)
	beginning, begun := p.x.patient(ctx)
	err := p.begin(beginning, limit)
	begun()
	switch {
	case errors.Is(err, errOver):
		return p.end(ctx, event.RunCancelled{Reason: event.CancelSessionCleared, SideEffects: event.SideEffectsNone}, err)
	case errors.Is(err, harness.ErrStaleLease) || ctx.Err() != nil:
		return err
	case err != nil && p.x.overdue():
		return p.endDeaf(ctx, err)
	case errors.Is(err, harness.ErrUnreachable), errors.Is(err, harness.ErrGone):
		return p.lost(ctx, err)
	case errors.Is(err, harness.ErrInterruptLost):
		return p.end(ctx, event.RunError{Code: codeInterruptLost, Message: "what waited for the decision was lost with its process; send a new message to go on",
			Category: event.CategoryUnavailable, SideEffects: p.w.Validator().SideEffects()}, err)
	case err != nil:
		return p.end(ctx, event.RunError{Code: codeWorkerNotStarted, Message: "the worker refused the turn",
			Category: event.CategoryInternal, SideEffects: p.w.Validator().SideEffects()}, err)
	}
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	f := &follow{pump: p, deadline: deadline.C, stopping: p.x.stopping, unreachable: time.Time{}}
	for {
		s, err := p.open(ctx)
		if err == nil {
			err = f.read(ctx, s)
			s.stop()
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errDeaf):
			return p.endDeaf(ctx, err)
		case errors.Is(err, harness.ErrUnreachable):
			if again, err := f.reconnect(ctx, err); !again {
				return err
			}
		case errors.Is(err, harness.ErrGone), errors.Is(err, harness.ErrUnknownRun), errors.Is(err, errLost), errors.Is(err, io.EOF):
			return p.lost(ctx, err)
		case final(err):
			return err
		default: // the store refused, and wrote nothing: the journal still has what was not taken
			p.x.log.Warn("events not taken, trying again", "error", err)
			if err := wait(ctx, storePause); err != nil {
				return err
			}
		}
	}
}

// errOver: the turn was not begun before its epoch was over, and is not begun any more.
var errOver = errors.New("the conversation was cleared before the turn began")

// begin starts the turn, or finds it started. In an epoch that is over it only finds.
func (p *pump) begin(ctx context.Context, limit time.Duration) error {
	if p.x.b.Epoch == p.x.epoch {
		return p.x.startTurn(ctx, p.rt, limit)
	}
	stream, err := p.rt.Events(ctx, p.x.run.ID, p.taken)
	if errors.Is(err, harness.ErrUnknownRun) {
		return errOver
	}
	if err == nil {
		_ = stream.Close()
	}
	return err
}

// follow is the state of one following across reconnects.
type follow struct {
	*pump
	deadline    <-chan time.Time
	stopping    <-chan struct{}
	grace       <-chan time.Time // runs out when a cancelled turn has not ended in time
	unreachable time.Time        // since when; zero while the worker answers
}

// read takes one reading of the journal into the log. nil: the terminal is in the log.
func (f *follow) read(ctx context.Context, s *source) error {
	for {
		select {
		case e, ok := <-s.events:
			if !ok {
				return <-s.err
			}
			f.unreachable = time.Time{}
			if done, err := f.take(ctx, gather(e, s.events)); done || err != nil {
				return err
			}
		case <-f.deadline:
			f.x.cancel(event.CancelDeadline)
		case <-f.stopping:
			f.stopping = nil
			if err := f.stopTurn(ctx); err != nil {
				return err
			}
		case <-f.grace:
			return f.endDeaf(ctx, errors.New("turn did not end in time"))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reconnect pauses before another reading, or gives the worker up after Limits.ReconnectFor, or when the run is overdue.
func (f *follow) reconnect(ctx context.Context, cause error) (again bool, err error) {
	if f.x.overdue() {
		return false, f.endDeaf(ctx, cause)
	}
	now := f.x.c.Now()
	if f.unreachable.IsZero() {
		f.unreachable = now
	}
	if now.Sub(f.unreachable) > f.x.c.Limits.ReconnectFor {
		return false, f.lost(ctx, cause)
	}
	if err := wait(ctx, 100*time.Millisecond); err != nil {
		return false, err
	}
	// The reading broke; a look at the worker tells a lost connection from a lost worker.
	attaching, done := f.x.patient(ctx)
	rt, err := f.x.c.Workers.Attach(attaching, f.x.binding(), f.x.lease.Gen, f.x.b.Sandbox.Addr)
	done()
	switch {
	case errors.Is(err, harness.ErrStaleLease):
		return false, err
	case errors.Is(err, harness.ErrGone):
		return false, f.lost(ctx, err)
	case err != nil:
		f.x.log.Debug("worker does not answer", "error", err)
		return true, nil //nolint:nilerr // asked again until ReconnectFor is over
	}
	if rt.Instance() != f.rt.Instance() {
		_ = rt.Close()
		return false, f.lost(ctx, errLost)
	}
	_ = f.rt.Close()
	f.rt = rt
	if f.x.heard.IsZero() { // where it was asked to end, it may not have heard of that
		f.stopping = f.x.stopping
	}
	return true, nil
}

// gather takes what is there already, up to one chunk's worth.
func gather(first harness.SourceEvent, more <-chan harness.SourceEvent) []harness.SourceEvent {
	batch, n := []harness.SourceEvent{first}, len(first.Events)
	for n < pumpEvents {
		select {
		case e, ok := <-more:
			if !ok {
				return batch
			}
			batch, n = append(batch, e), n+len(e.Events)
		default:
			return batch
		}
	}
	return batch
}

// take appends source events in order. A terminal goes into a chunk of its own, when all before it is durable.
func (p *pump) take(ctx context.Context, batch []harness.SourceEvent) (done bool, err error) {
	for i, e := range batch {
		if e.Seq != p.taken+1+int64(i) {
			return false, fmt.Errorf("%w: its journal jumps from %d to %d", errLost, p.taken+int64(i), e.Seq)
		}
		if n := len(e.Events); n > 0 && e.Events[n-1].Type().Terminal() {
			if err := p.append(ctx, batch[:i]); err != nil {
				return p.w.Ended(), err
			}
			if p.w.Ended() { // the events before it ended the run as invalid
				return true, nil
			}
			return true, p.finish(ctx, e)
		}
	}
	if err := p.append(ctx, batch); err != nil {
		return false, err
	}
	if p.w.Ended() {
		return true, nil
	}
	return false, p.ack(ctx)
}

// ack lets the journal forget what the log's cursor has passed. Source events that yielded nothing are only noted until
// the next chunk: they stay in the journal until then. An ack that got lost is made up for by the next; it is cumulative.
func (p *pump) ack(ctx context.Context) error {
	durable, ok := p.w.Cursor(event.SourceWorker)
	if !ok {
		return nil
	}
	err := p.rt.Ack(ctx, p.x.run.ID, durable.Seq)
	if errors.Is(err, harness.ErrStaleLease) {
		return err
	}
	if err != nil {
		p.x.log.Debug("ack not delivered", "error", err)
	}
	return nil
}

// append writes source events as one chunk. What does not fit one, or is refused, is halved between source events until
// the refused one stands alone; that ends the run.
func (p *pump) append(ctx context.Context, batch []harness.SourceEvent) error {
	if len(batch) == 0 {
		return nil
	}
	b := event.Batch{Cursors: map[string]event.Cursor{event.SourceWorker: {Incarnation: p.rt.Instance(), Seq: batch[len(batch)-1].Seq}}}
	for _, e := range batch {
		b.Events = append(b.Events, p.x.withDeadline(ctx, e.Events)...)
		for k, v := range e.Facts {
			if b.Facts == nil {
				b.Facts = map[string]string{}
			}
			b.Facts[k] = v
		}
	}
	_, err := p.w.Append(ctx, b)
	var invalid *event.InvalidError
	switch {
	case err == nil:
		p.taken = batch[len(batch)-1].Seq
		return nil
	case len(batch) > 1 && errors.As(err, &invalid):
		half := len(batch) / 2
		if err := p.append(ctx, batch[:half]); err != nil || p.w.Ended() {
			return err
		}
		return p.append(ctx, batch[half:])
	case errors.As(err, &invalid):
		return p.end(ctx, invalidEvent(), err)
	}
	return err
}

// lost ends the run whose worker is gone: it may have done more than the log shows.
func (p *pump) lost(ctx context.Context, cause error) error {
	if p.x.keepsState() {
		return p.end(ctx, event.RunError{Code: codeUncertain, Message: "the worker that ran the turn was lost; the next turn goes on from the turn before, and what this one did outside is not known",
			Category: event.CategoryUnavailable, SideEffects: event.SideEffectsPossible}, cause)
	}
	return p.end(ctx, event.RunError{Code: codeWorkerLost, Message: "the worker that ran the turn was lost; its last work may not be shown",
		Category: event.CategoryUnavailable, Retryable: false, SideEffects: event.SideEffectsPossible}, cause)
}

// end gives the worker up and ends the run without it: the worker generation is raised first, so that nothing the old
// worker still does counts, then the worker is destroyed, then the terminal is logged.
func (p *pump) end(ctx context.Context, terminal event.Data, cause error) error {
	p.x.log.Warn("run ended by the engine", "terminal", terminal.Type(), "cause", cause)
	return p.x.giveUp(ctx, p.w, terminal)
}

func (p *pump) close() { _ = p.rt.Close() }

// giveUp is end without a worker connection.
func (x *execution) giveUp(ctx context.Context, w *event.Writer, terminal event.Data) error {
	old := x.b.Sandbox
	if err := x.mutate(ctx, func(b session.Binding, op session.Op) (session.Binding, error) {
		return session.Discard(b, x.lease, op)
	}); err != nil {
		return err
	}
	if old != nil {
		if err := x.endWorker(ctx, old.Addr, x.c.Workers.Kill); err != nil {
			if errors.Is(err, session.ErrFenced) || ctx.Err() != nil {
				return err
			}
			// For the kernel to say; it holds nothing up for ever, since nothing that the worker does counts any more.
			x.log.Error("worker not ended", "addr", old.Addr, "error", err)
		}
	}
	// A head that was committed before we could know of it: its terminal is the truth.
	if logged, err := x.logHead(ctx, w); logged || err != nil {
		return err
	}
	uncertain := event.ThreadState{Durability: event.DurabilityUncertain, Revision: x.b.Head.Rev}
	switch t := terminal.(type) {
	case event.RunError:
		t.Thread = uncertain
		terminal = t
	case event.RunCancelled:
		t.Thread = uncertain
		terminal = t
	}
	_, err := w.Append(ctx, event.Batch{Events: append(unknownOutcomes(w.Validator()), event.Event{Data: terminal})})
	return err
}

// unknownOutcomes closes the tool calls that were running when the worker was lost: they may have had their effects, and nobody
// can tell. Calls that waited for a person did not run, and end with the run.
func unknownOutcomes(v *event.Validator) []event.Event {
	if v.Interrupt() != "" {
		return nil
	}
	var out []event.Event
	for _, t := range v.Inheritance().Tools {
		out = append(out, event.Event{Namespace: t.Namespace, Data: event.ToolError{
			ToolCallID: t.ID, Code: event.CodeOutcomeUnknown, Message: "The worker was lost before the outcome of this call was known.",
		}})
	}
	return out
}
