package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/session"
)

// startRetries bounds the repetition of a start call whose answer was lost; the worker keeps tombstones of run ids.
const startRetries = 5

// Codes of run.error that the engine itself writes.
const (
	codeWorkerNotStarted = "worker_not_started"
	codeWorkerLost       = "worker_lost"
	codeInterruptLost    = "interrupt_lost"
	codeThreadLost       = "thread_state_lost"
	codeAttachmentLost   = "attachment_lost"
	codeNoCapacity       = "no_capacity"
	codeNotAllowed       = "not_allowed"
	codeHarness          = "harness_unavailable"
)

// execution drives one run that this engine holds the lease of, from its first event to the binding's release.
type execution struct {
	c     *Coordinator
	run   Run
	b     session.Binding // as of the last transition that this execution made or saw
	lease session.Lease
	epoch int64 // the run's, which the binding may have left by a clear; 0 until it is queued
	log   *slog.Logger

	distrust  bool // the conversation's worker spoke of an owner that the binding does not know; it is not asked again
	recovered bool // the run was taken over; authorization and harness are checked again before it is dispatched

	admitted int64  // lease generation that it was launched with
	next     *claim // a later admission of the same run, to be driven after this one; guarded by the coordinator's mutex

	inherit  event.Inheritance // from the run that it continues
	attached []harness.File    // read before the run was begun
	left     chan struct{}     // closed when this engine has let go of the run
	letGo    context.CancelCauseFunc

	once     sync.Once
	reason   event.CancelReason // set before stopping is closed
	asked    time.Time          // when that was
	stopping chan struct{}      // closed when the run shall end

	heard time.Time // when the worker took the cancel; zero before; of who drives the run
}

func newExecution(c *Coordinator, r Run, b session.Binding) *execution {
	l, _ := b.Lease()
	return &execution{c: c, run: r, b: b, lease: l, admitted: l.Gen, stopping: make(chan struct{}), left: make(chan struct{}),
		log: c.Log.With("run", r.ID, "session", b.ID, "lease_gen", l.Gen)}
}

// cancel makes the run end with the reason; the first one stands.
func (x *execution) cancel(reason event.CancelReason) {
	x.once.Do(func() { x.reason, x.asked = reason, time.Now(); close(x.stopping) })
}

// cancelled returns the reason, and false while nobody asked.
func (x *execution) cancelled() (event.CancelReason, bool) {
	select {
	case <-x.stopping:
		return x.reason, true
	default:
		return "", false
	}
}

// drive runs to the end. When ctx ends first, or another engine holds a higher generation, it lets go: the worker goes
// on, and nothing is cancelled, released or written.
func (x *execution) drive(ctx context.Context) {
	err := x.steps(ctx)
	for x.again(err) {
		failed := x.mutate(ctx, func(b session.Binding, op session.Op) (session.Binding, error) {
			return session.Reclaim(b, x.lease, op)
		})
		if failed != nil {
			if !errors.Is(err, harness.ErrStaleLease) {
				err = failed
			}
			break // there is another owner indeed
		}
		x.lease, _ = x.b.Lease()
		err = x.steps(ctx)
	}
	switch {
	case err == nil:
	case errors.Is(err, event.ErrFenced), errors.Is(err, session.ErrFenced), errors.Is(err, harness.ErrStaleLease):
		x.log.Info("run taken over by another engine")
	case ctx.Err() != nil:
		x.log.Info("run left to the next engine")
	case errors.Is(err, event.ErrCorrupt):
		x.halt(ctx, err)
	default:
		x.log.Error("run left unfinished; it will be taken up again", "error", err)
	}
}

// again says whether to claim the lease again and go on from what the log then says.
func (x *execution) again(err error) bool {
	switch {
	case errors.Is(err, event.ErrBegun): // the first chunk of the owner before was on its way when we looked, and has arrived
		return true
	case errors.Is(err, harness.ErrStaleLease) && !x.distrust:
		// The binding, not a worker, says who owns the run: model-directed code may have got at the worker. Where the lease
		// is ours, the worker lies, and is replaced.
		x.distrust = true
		return true
	}
	return false
}

func (x *execution) steps(ctx context.Context) error {
	r, err := x.c.queue(ctx, x.run, x.b)
	if err != nil {
		return err
	}
	x.run, x.epoch = r, r.Epoch
	if r.Status == StatusRejected { // decided before this admission, which is taken back
		return x.free(ctx)
	}
	switch {
	case x.run.CancelReason != "":
		x.cancel(x.run.CancelReason)
	case x.b.Draining == x.run.ID: // the engine that cleared the conversation died before it asked for the cancel
		x.cancel(event.CancelSessionCleared)
	}
	inherit, err := x.inherited(ctx)
	damaged := err
	if err != nil && !errors.Is(err, event.ErrCorrupt) {
		return err
	}
	w, err := event.OpenWriter(ctx, event.WriterConfig{
		Inherit: inherit, Logger: x.log,
		Log: x.c.Events, Publish: x.c.Publish, RunID: x.run.ID, SessionID: x.run.SessionID,
		Gen: x.lease.Gen, Nonce: x.c.Boot, Now: x.c.Now,
	})
	if err != nil {
		return fmt.Errorf("failed to open the log of run %s: %w", x.run.ID, err)
	}
	if w.Ended() {
		return x.settle(ctx)
	}
	switch {
	case damaged != nil && w.Tail() > 0:
		return damaged
	case damaged != nil: // of the run that it goes on from; its own can be written
		x.log.Error("log of the interrupted run is damaged", "error", damaged)
		if err := x.stillborn(ctx, w, x.failure(codeInterruptLost, "the record of the run that asked is damaged; send a new message to go on",
			event.CategoryPersistence)); err != nil {
			return err
		}
		return x.settle(ctx)
	}
	if logged, err := x.logHead(ctx, w); err != nil || logged {
		if err != nil {
			return err
		}
		return x.settle(ctx)
	}
	var rt harness.Runtime
	if w.Tail() == 0 {
		rt, err = x.begin(ctx, w)
	} else {
		rt, err = x.reattach(ctx, w)
	}
	if err != nil {
		return err
	}
	if rt == nil { // the run ended without a worker
		return x.settle(ctx)
	}
	p := &pump{x: x, w: w, rt: rt}
	defer p.close()
	if err := p.run(ctx); err != nil {
		return err
	}
	if err := x.settle(ctx); err != nil {
		return err
	}
	p.told(ctx)
	err = p.ack(ctx) // all is durable and settled: the worker may forget the run
	if errors.Is(err, harness.ErrStaleLease) {
		return nil // the next run of the conversation has begun on the worker already
	}
	return err
}

// free gives the binding back for a run that must not run.
func (x *execution) free(ctx context.Context) error {
	err := x.mutate(ctx, func(b session.Binding, op session.Op) (session.Binding, error) {
		return session.Finish(b, x.lease, x.c.Boot, op)
	})
	if errors.Is(err, session.ErrUnchanged) {
		return nil
	}
	if err != nil {
		return err
	}
	return x.c.launchNext(ctx, x.b)
}

// begin seats the run on a worker, logs run.started and only then starts the turn. A run that cannot have a worker, or
// was cancelled before it had one, logs its start and its end at once.
func (x *execution) begin(ctx context.Context, w *event.Writer) (harness.Runtime, error) {
	if reason, ok := x.cancelled(); ok {
		return nil, x.stillborn(ctx, w, event.RunCancelled{Reason: reason, SideEffects: event.SideEffectsNone, Thread: x.untouched()})
	}
	if x.recovered {
		refused, err := x.recheck(ctx)
		if err != nil {
			return nil, err
		}
		if refused != nil {
			return nil, x.stillborn(ctx, w, *refused)
		}
	}
	files, err := x.files(ctx)
	if err != nil {
		x.log.Warn("attachments not read", "error", err)
		return nil, x.stillborn(ctx, w, x.failure(codeAttachmentLost, "an attachment of the message is missing or damaged; send it again", event.CategoryPersistence))
	}
	x.attached = files
	rt, err := x.seatUnlessCancelled(ctx)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, session.ErrFenced) || errors.Is(err, harness.ErrStaleLease) {
			return nil, err
		}
		if reason, ok := x.cancelled(); ok {
			return nil, x.stillborn(ctx, w, event.RunCancelled{Reason: reason, SideEffects: event.SideEffectsNone, Thread: x.untouched()})
		}
		x.log.Warn("no worker for the run", "error", problem.Detail(err))
		return nil, x.stillborn(ctx, w, x.noWorker(err))
	}
	started := x.c.started(x.run)
	started.SandboxGeneration, started.WorkerInstance, started.Isolation = x.b.Sandbox.Gen, rt.Instance(), rt.Isolation()
	if _, err := w.Append(ctx, event.Batch{Events: []event.Event{{Data: started}}}); err != nil {
		_ = rt.Close()
		return nil, err
	}
	if err := x.projectStart(ctx, started); err != nil {
		_ = rt.Close()
		return nil, err
	}
	return rt, nil
}

// inherited is what the run takes over from the one that it continues.
func (x *execution) inherited(ctx context.Context) (event.Inheritance, error) {
	if x.run.Continues == nil {
		return event.Inheritance{}, nil
	}
	if d := x.b.Decided; d != nil && d.Run == x.run.ID { // the engine that took the decision may have died before it said so
		x.c.recordInterrupt(ctx, d)
	}
	in, err := x.c.openAtEnd(ctx, x.run.Continues.Run)
	x.inherit = in
	return in, err
}

// started is run.started as far as it does not depend on a worker.
func (c *Coordinator) started(r Run) event.RunStarted {
	s := event.RunStarted{Harness: r.Harness, AgentVersion: r.AgentVersion}
	if d, ok := c.Harnesses.Descriptor(r.Harness); ok {
		s.AdapterVersion = d.AdapterVersion
	}
	if r.Continues != nil {
		s.Continues = r.Continues.Run
	}
	return s
}

// stillborn logs a run that never had a worker: its start and its end in one chunk. An empty log has no fence that would keep a
// loser out, so the binding is asked first: the reason may be no more than that another engine has taken the run over.
func (x *execution) stillborn(ctx context.Context, w *event.Writer, terminal event.Data) error {
	b, err := x.c.Sessions.Session(ctx, x.run.SessionID)
	if err != nil {
		return fmt.Errorf("failed to read session %s: %w", x.run.SessionID, err)
	}
	if lease, active := b.Lease(); !active || lease != x.lease {
		return session.ErrFenced
	}
	_, err = w.Append(ctx, event.Batch{Events: []event.Event{{Data: x.c.started(x.run)}, {Data: terminal}}})
	return err
}

func (x *execution) failure(code, message string, category event.Category) event.RunError {
	return event.RunError{Code: code, Message: message, Category: category, SideEffects: event.SideEffectsNone, Thread: x.untouched()}
}

func (x *execution) mutate(ctx context.Context, t session.Transition) error {
	b, err := x.c.mutate(ctx, x.run.SessionID, t)
	if err != nil {
		return err
	}
	x.b = b
	return nil
}
