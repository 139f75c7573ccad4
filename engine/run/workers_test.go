package run_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// workers stands for a host with workers on it: it outlives the coordinators that use it, as real workers outlive
// engines. Each turn's text chooses what the worker does, see turn.
type workers struct {
	mu        sync.Mutex
	byAddr    map[string]*worker
	forgotten []string
	destroyed []string
	built     harness.Construction // of the last worker started
	full      bool                 // no capacity
	starts    int                  // workers started
	turns     map[string]int       // turns begun, by run: more than one is a repeated side effect
	takes     bool                 // the harness takes attachments
	keeps     bool                 // the harness keeps native state
	born      func(*worker)        // called, where set, with each worker that starts
	ended     func()               // called, where set, when the engine acknowledges the end of a turn
}

func newWorkers() *workers { return &workers{byAddr: map[string]*worker{}, turns: map[string]int{}} }

type worker struct {
	host     *workers
	instance string
	binding  harness.Binding
	mu       sync.Mutex
	changed  chan struct{} // closed and renewed at each change
	lease    int64
	runs     map[string]*turn
	dead     bool
	deaf     bool          // cancels are heard but not obeyed
	hung     chan struct{} // set: attaching, starting, reading and cancelling get no answer
	cut      bool          // open readings break
	broken   bool          // the open reading breaks, once
	refuses  bool          // the next cancel finds no way to it, and open readings break

	heard  []string     // the native state: the texts and decisions of every turn
	head   harness.Head // that the state was committed as
	last   string       // run of the last turn
	silent bool         // commits are not heard
	lost   bool         // what waited for a decision is gone

	cancelled []string // runs whose end was asked for
}

type turn struct {
	text    string
	resume  *harness.Resume
	journal []harness.SourceEvent
	acked   int64
	ended   bool
}

func (h *workers) Reserve(b harness.Binding) string {
	return fmt.Sprintf("%s-%d", b.SessionID, b.SandboxGen)
}

func (h *workers) Start(ctx context.Context, b harness.Binding, lease int64, addr string, c harness.Construction, head *harness.Snapshot) (harness.Runtime, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.full {
		return nil, problem.New(problem.Capacity, "no room for a worker").With("retryAfter", 7)
	}
	h.starts++
	h.built = c
	w := &worker{host: h, instance: id.New(id.Worker), binding: b, lease: lease, runs: map[string]*turn{}, changed: make(chan struct{})}
	if head != nil && head.Open != nil {
		body, err := head.Open(ctx)
		if err != nil {
			return nil, err
		}
		raw, err := io.ReadAll(body)
		if err != nil {
			return nil, err
		}
		w.heard, w.head = strings.Split(string(raw), "\n"), head.Head
	}
	h.byAddr[addr] = w
	if h.born != nil {
		h.born(w)
	}
	return &runtime{w: w, lease: lease}, nil
}

func (h *workers) Attach(ctx context.Context, b harness.Binding, lease int64, addr string) (harness.Runtime, error) {
	h.mu.Lock()
	w := h.byAddr[addr]
	h.mu.Unlock()
	if w == nil {
		return nil, harness.ErrGone
	}
	if err := w.answer(ctx); err != nil {
		return nil, err
	}
	r := &runtime{w: w, lease: lease}
	if w.binding != b {
		return nil, harness.ErrConflict
	}
	_, err := r.call()
	if err == nil {
		w.mu.Unlock()
	}
	return r, err
}

func (h *workers) Destroy(_ context.Context, addr string, lease int64) error {
	h.mu.Lock()
	w := h.byAddr[addr]
	h.mu.Unlock()
	if w != nil && w.leased() > lease {
		return harness.ErrStaleLease
	}
	h.mu.Lock()
	delete(h.byAddr, addr)
	h.destroyed = append(h.destroyed, addr)
	h.mu.Unlock()
	if w != nil {
		w.kill()
	}
	return nil
}

func (h *workers) ForgetState(_ context.Context, sessionID string, epoch int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgotten = append(h.forgotten, fmt.Sprintf("%s/%d", sessionID, epoch))
	return nil
}

func (h *workers) Kill(ctx context.Context, addr string, lease int64) error {
	return h.Destroy(ctx, addr, lease)
}

func (h *workers) Leases(context.Context) (map[string]int64, error) {
	h.mu.Lock()
	all := maps.Clone(h.byAddr)
	h.mu.Unlock()
	found := map[string]int64{}
	for a, w := range all {
		found[a] = w.leased()
	}
	return found, nil
}

func (w *worker) leased() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lease
}

// begun counts the turns that workers began for a run; more than one is a repeated side effect.
func (h *workers) begun(runID string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.turns[runID]
}

// started counts the workers that were started.
func (h *workers) started() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.starts
}

// only returns the one worker of the host.
func (h *workers) only() *worker {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.byAddr {
		return w
	}
	return nil
}

func (w *worker) kill() {
	w.mu.Lock()
	w.dead = true
	w.change()
	w.mu.Unlock()
}

// change wakes who waits; the caller holds mu.
func (w *worker) change() { close(w.changed); w.changed = make(chan struct{}) }

// say appends source events to a run's journal. Only the test speaks for the harness.
func (w *worker) say(runID string, events ...event.Data) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.append(w.runs[runID], events...)
}

// end is say for what ends a turn, unless that has ended.
func (w *worker) end(runID string, events ...event.Data) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.runs[runID]; t != nil && !t.ended {
		w.append(t, events...)
	}
}

// append is say for who holds mu.
func (w *worker) append(t *turn, events ...event.Data) {
	for _, d := range events {
		t.journal = append(t.journal, harness.SourceEvent{Seq: int64(len(t.journal) + 1), Events: []event.Event{{Data: d}}})
		t.ended = t.ended || d.Type().Terminal()
	}
	w.change()
}

// has says whether the worker was told to start the run.
func (w *worker) has(runID string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[runID] != nil
}

// runtime is one engine's connection.
type runtime struct {
	w     *worker
	lease int64
}

// call locks the worker for a call of this lease generation.
func (r *runtime) call() (*worker, error) {
	r.w.mu.Lock()
	switch {
	case r.w.dead:
		r.w.mu.Unlock()
		return nil, harness.ErrGone
	case r.lease < r.w.lease:
		r.w.mu.Unlock()
		return nil, harness.ErrStaleLease
	case r.lease > r.w.lease:
		r.w.lease = r.lease
		r.w.change()
	}
	return r.w, nil
}

func (r *runtime) Instance() string           { return r.w.instance }
func (r *runtime) Isolation() event.Isolation { return event.IsolationNone }
func (r *runtime) Close() error               { return nil }

var done = event.RunFinished{Outcome: "success", StopReason: "end_turn", Thread: event.ThreadState{Durability: event.DurabilityLocal}}

func (r *runtime) StartTurn(ctx context.Context, t harness.Turn) error {
	if err := r.w.answer(ctx); err != nil {
		return err
	}
	w, err := r.call()
	if err != nil {
		return err
	}
	if old := w.runs[t.RunID]; old != nil {
		w.mu.Unlock()
		if old.text != t.Text {
			return harness.ErrConflict
		}
		return nil
	}
	if w.lost && t.Resume != nil {
		w.mu.Unlock()
		return harness.ErrInterruptLost
	}
	if w.host.keeps && t.Head != w.head {
		w.mu.Unlock()
		return harness.ErrStaleHead
	}
	w.runs[t.RunID] = &turn{text: t.Text, resume: t.Resume}
	w.last = t.RunID
	if t.Resume != nil {
		w.heard = append(w.heard, fmt.Sprintf("decided %v", t.Resume.Decision.Calls))
	} else {
		w.heard = append(w.heard, t.Text)
	}
	w.host.mu.Lock()
	w.host.turns[t.RunID]++
	w.host.mu.Unlock()
	w.change()
	w.mu.Unlock()
	switch t.Text {
	case "hello":
		w.end(t.RunID, event.TextStarted{MessageID: "m1", Role: "assistant"}, event.TextDelta{MessageID: "m1", Delta: "hi "},
			event.TextDelta{MessageID: "m1", Delta: "there"}, event.TextFinished{MessageID: "m1"}, done)
	case "garbage":
		w.say(t.RunID, event.TextStarted{MessageID: "m1", Role: "assistant"}, event.TextDelta{MessageID: "m2", Delta: "no such message"}, done)
	case "deaf":
		w.mu.Lock()
		w.deaf = true
		w.mu.Unlock()
	}
	return nil
}

func (r *runtime) Cancel(ctx context.Context, runID string, reason event.CancelReason) error {
	if err := r.w.answer(ctx); err != nil {
		return err
	}
	w, err := r.call()
	if err != nil {
		return err
	}
	if w.refuses {
		w.refuses, w.broken = false, true
		w.change()
		w.mu.Unlock()
		return harness.ErrUnreachable
	}
	w.cancelled = append(w.cancelled, runID)
	t, deaf := w.runs[runID], w.deaf
	w.mu.Unlock()
	if t == nil {
		return harness.ErrUnknownRun
	}
	if !deaf {
		w.end(runID, event.RunCancelled{Reason: reason, SideEffects: event.SideEffectsNone, Thread: done.Thread})
	}
	return nil
}

func (r *runtime) Ack(_ context.Context, runID string, seq int64) error {
	w, err := r.call()
	if err != nil {
		return err
	}
	defer w.mu.Unlock()
	t := w.runs[runID]
	if t.ended && seq == int64(len(t.journal)) && w.host.ended != nil {
		w.host.ended()
	}
	if seq > int64(len(t.journal)) || seq < t.acked {
		return fmt.Errorf("ack %d, acked %d, tail %d", seq, t.acked, len(t.journal))
	}
	t.acked = seq
	return nil
}

func (r *runtime) Events(ctx context.Context, runID string, after int64) (harness.Stream, error) {
	if err := r.w.answer(ctx); err != nil {
		return nil, err
	}
	w, err := r.call()
	if err != nil {
		return nil, err
	}
	defer w.mu.Unlock()
	t := w.runs[runID]
	if t == nil {
		return nil, harness.ErrUnknownRun
	}
	if after < t.acked || after > int64(len(t.journal)) {
		return nil, harness.ErrGone
	}
	return &stream{r: r, t: t, at: after}, nil
}

type stream struct {
	r  *runtime
	t  *turn
	at int64
}

func (s *stream) Close() error { return nil }

func (s *stream) Next(ctx context.Context) (harness.SourceEvent, error) {
	for {
		w, err := s.r.call()
		if err != nil {
			return harness.SourceEvent{}, harness.ErrUnreachable
		}
		changed := w.changed
		if w.cut || w.broken {
			w.broken = false
			w.mu.Unlock()
			return harness.SourceEvent{}, harness.ErrUnreachable
		}
		if s.at < int64(len(s.t.journal)) {
			e := s.t.journal[s.at]
			s.at++
			w.mu.Unlock()
			return e, nil
		}
		ended := s.t.ended
		w.mu.Unlock()
		if ended {
			return harness.SourceEvent{}, io.EOF
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return harness.SourceEvent{}, context.Cause(ctx)
		case <-time.After(time.Minute):
			return harness.SourceEvent{}, harness.ErrUnreachable
		}
	}
}

// packed is the native state as bytes, with their hash. The caller holds mu.
func (w *worker) packed() (string, string) {
	raw := strings.Join(w.heard, "\n")
	sum := sha256.Sum256([]byte(raw))
	return raw, hex.EncodeToString(sum[:])
}

func (r *runtime) State(_ context.Context, runID string) (harness.State, error) {
	w, err := r.call()
	if err != nil {
		return harness.State{}, err
	}
	defer w.mu.Unlock()
	if t := w.runs[runID]; t == nil || !t.ended || w.last != runID {
		return harness.State{}, harness.ErrNoState
	}
	raw, hash := w.packed()
	return harness.State{Codec: "lines", Hash: hash, Size: int64(len(raw)), Body: io.NopCloser(strings.NewReader(raw))}, nil
}

func (r *runtime) Commit(_ context.Context, runID string, head harness.Head) error {
	w, err := r.call()
	if err != nil {
		return err
	}
	defer w.mu.Unlock()
	switch _, hash := w.packed(); {
	case w.head == head && hash == head.Hash:
		return nil
	case w.silent || w.last != runID || hash != head.Hash:
		return harness.ErrStaleHead
	}
	w.head = head
	return nil
}
