package worker

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// turn is one run on this worker. It stays as a tombstone for the worker's life; its journal goes with the last
// acknowledgement.
type turn struct {
	spec    harness.Turn
	digest  [32]byte
	ctx     context.Context
	cancel  context.CancelCauseFunc
	giveUp  func() // stops waiting for the driver
	gaveUp  chan struct{}
	ended   chan struct{} // closed when the terminal is in the journal
	journal *journal
}

// turnDigest is of what makes two starts of one run the same. The capability and the deadline are not: an engine that
// took the run over has fresh ones. The head is not either: a run that has started has started from its own.
func turnDigest(t harness.Turn) ([32]byte, error) {
	t.Capability, t.DeadlineMs, t.Head = "", 0, harness.Head{}
	raw, err := json.Marshal(t)
	if err != nil {
		return [32]byte{}, fmt.Errorf("failed to digest turn: %w", err)
	}
	return sha256.Sum256(raw), nil
}

// StartTurn starts a run. Starting it again, in any state, has no effect but to take the newer capability.
func (h *Host) StartTurn(c Caller, spec harness.Turn) error {
	if err := validateTurn(spec); err != nil {
		return err
	}
	digest, err := turnDigest(spec)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.work(c); err != nil {
		return err
	}
	if t, ok := h.runs[spec.RunID]; ok {
		if t.digest != digest {
			return &Error{Code: CodeConflict, Message: "the run was started with another request"}
		}
		if t == h.active {
			h.facade.allow(t.ctx, spec.Capability)
		}
		return nil
	}
	switch {
	case h.state != bound:
		return &Error{Code: CodeBusy, Message: "the harness is still opening"}
	case h.active != nil:
		return &Error{Code: CodeBusy, Message: "another run is active"}
	case h.stuck:
		return &Error{Code: CodeExhausted, Message: "the harness does not answer any more"}
	case len(h.runs) >= MaxRuns:
		return &Error{Code: CodeExhausted, Message: "this worker has served its number of runs"}
	}
	if err := h.resumable(spec.Resume); err != nil {
		return err
	}
	t := &turn{
		spec: spec, digest: digest, journal: newJournal(h.limits.JournalBytes, h.limits.JournalSteps),
		ended: make(chan struct{}), gaveUp: make(chan struct{}),
	}
	t.giveUp = sync.OnceFunc(func() { close(t.gaveUp) })
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	s, err := newSink(t.ctx, t.journal, h.o.Log.With("run", spec.RunID), spec)
	if err != nil {
		t.cancel(err)
		return err
	}
	if err := h.thread.begin(spec.Head); err != nil {
		t.cancel(err)
		return err
	}
	h.interrupted = ""
	t.journal.record = newRecord(h.o.Record, recordHead{
		RunID: spec.RunID, Instance: h.instance,
		SessionID: h.binding.SessionID, Epoch: h.binding.Epoch, SandboxGen: h.binding.SandboxGen,
	}, h.o.Log)
	h.runs[spec.RunID] = t
	h.active = t
	h.facade.allow(t.ctx, spec.Capability)
	abandoning := h.abandoning // which may end processes that the turn starts
	go func() {
		if abandoning != nil {
			<-abandoning
		}
		h.play(t, s)
	}()
	return nil
}

// play runs one turn to its terminal.
func (h *Host) play(t *turn, s *sink) {
	defer close(t.ended)
	defer t.cancel(ErrTurnOver)
	if t.spec.DeadlineMs > 0 {
		deadline := time.AfterFunc(time.Duration(t.spec.DeadlineMs)*time.Millisecond, func() {
			t.cancel(&Cancelled{Reason: event.CancelDeadline})
		})
		defer deadline.Stop()
	}
	returned := make(chan error, 1)
	spec := t.spec // a driver that does not return may look at it later
	go func() { returned <- guarded(func() error { return h.driver.Turn(t.ctx, spec, s) }) }()
	stuck := !h.await(t, s, returned)
	if stuck {
		s.abandon()
	}
	h.facade.deny()
	state := h.pack(t, stuck)
	h.mu.Lock()
	h.active = nil
	h.stuck = h.stuck || stuck
	h.thread.last = state
	h.interrupted = ""
	if s.interrupted {
		h.interrupted = t.spec.RunID
	}
	t.spec = harness.Turn{RunID: t.spec.RunID} // what stays for the worker's life is small
	h.keep(t)
	h.mu.Unlock()
	s.release()
}

// await waits for the driver to return, and reports whether it did. A driver that was cancelled, or that has yielded
// its terminal, has the grace to return; then its processes are ended, which frees most drivers; then it is given up.
func (h *Host) await(t *turn, s *sink, returned <-chan error) bool {
	select {
	case err := <-returned:
		s.finish(err)
		return true
	case <-t.ctx.Done():
	case <-s.over:
	}
	grace := time.Duration(h.limits.CancelGraceMs) * time.Millisecond
	for _, next := range []func(){
		func() { h.endProcesses(t) },
		func() { h.o.Log.Error("driver does not return", "run", t.spec.RunID) },
	} {
		timer := time.NewTimer(grace)
		select {
		case err := <-returned:
			timer.Stop()
			s.finish(err)
			return true
		case <-t.gaveUp:
			timer.Stop()
			select { // the last chance at a shutdown: what it held was just ended
			case err := <-returned:
				s.finish(err)
				return true
			case <-time.After(100 * time.Millisecond):
				return false
			}
		case <-timer.C:
			next()
		}
	}
	return false
}

// endProcesses is for a driver that does not stop: most wait for a process of theirs.
func (h *Host) endProcesses(t *turn) {
	t.cancel(ErrTurnOver)
	if err := h.tree.KillAll(); err != nil {
		h.o.Log.Error("failed to end processes of a driver that does not stop", "run", t.spec.RunID, "error", err)
	}
}

// keep remembers an ended turn's journal until it is acknowledged. An engine starts a run only when the one before is
// durable to its terminal, so a journal that is old and unread only waits for an acknowledgement that was lost.
func (h *Host) keep(t *turn) {
	h.kept = slices.DeleteFunc(h.kept, func(k *turn) bool { return k.journal.forgotten() })
	h.kept = append(h.kept, t)
	if len(h.kept) > MaxUnacknowledged {
		old := h.kept[0]
		h.kept = h.kept[1:]
		old.journal.forget()
	}
}

// Cancel asks the run to end. It has no effect on a run that has ended, but that what is parked for it ends; it returns
// when that is over.
func (h *Host) Cancel(c Caller, runID string, reason event.CancelReason) error {
	if !slices.Contains(cancelReasons, reason) {
		return &Error{Code: CodeBadRequest, Field: "reason", Message: "unknown reason"}
	}
	parked, err := h.cancel(c, runID, reason)
	if err != nil {
		return err
	}
	if parked != nil {
		<-parked
	}
	return nil
}

func (h *Host) cancel(c Caller, runID string, reason event.CancelReason) (<-chan struct{}, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, err := h.find(c, runID)
	if err != nil {
		return nil, err
	}
	t.cancel(&Cancelled{Reason: reason}) // the first cause stands
	if t != h.active && runID == h.interrupted {
		return h.abandon(runID), nil
	}
	return nil, nil
}

var cancelReasons = []event.CancelReason{
	event.CancelClientRequest, event.CancelSuperseded, event.CancelShutdown, event.CancelDeadline, event.CancelSessionCleared,
}

// Ack lets the journal of a run forget everything up to seq.
func (h *Host) Ack(c Caller, runID string, seq int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, err := h.find(c, runID)
	if err != nil {
		return err
	}
	if err := t.journal.ack(seq); err != nil {
		return &Error{Code: CodeGone, Message: err.Error()}
	}
	return nil
}

// reader is an open reading of a run's journal.
type reader struct {
	journal *journal
	fenced  <-chan struct{} // closed when the reader's lease is no longer the highest
	leave   func()
}

// read opens a reading after a number.
func (h *Host) read(c Caller, runID string, after int64) (reader, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, err := h.find(c, runID)
	if err != nil {
		return reader{}, err
	}
	if _, err := t.journal.read(after, 0); err != nil {
		return reader{}, &Error{Code: CodeGone, Message: err.Error()}
	}
	return reader{journal: t.journal, fenced: h.fenced, leave: h.attendance.enter()}, nil
}

// find checks the caller and finds the run. The caller holds h.mu.
func (h *Host) find(c Caller, runID string) (*turn, error) {
	if err := h.enter(c); err != nil {
		return nil, err
	}
	t, ok := h.runs[runID]
	if !ok {
		return nil, &Error{Code: CodeUnknownRun, Message: "this worker never started the run"}
	}
	return t, nil
}
