package transport_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
)

// host has workers whose turns are silent until they are cancelled. The texts "answer" and "files" are answered at once,
// "form" and "approval" ask for a decision, which is said back.
type host struct {
	mu    sync.Mutex
	turns map[string]*turn
}

// turn is one run on a worker, with its journal.
type turn struct {
	once    sync.Once
	said    chan struct{} // closed when journal is whole
	journal []harness.SourceEvent
}

func (t *turn) say(data ...event.Data) {
	t.once.Do(func() {
		for i, d := range data {
			t.journal = append(t.journal, harness.SourceEvent{Seq: int64(i + 1), Events: []event.Event{{Data: d}}})
		}
		close(t.said)
	})
}

func (*host) Reserve(b harness.Binding) string { return "worker-" + b.SessionID }
func (h *host) Start(context.Context, harness.Binding, int64, string, harness.Construction, *harness.Snapshot) (harness.Runtime, error) {
	return h, nil
}
func (h *host) Attach(context.Context, harness.Binding, int64, string) (harness.Runtime, error) {
	return h, nil
}
func (*host) Destroy(context.Context, string, int64) error     { return nil }
func (*host) Kill(context.Context, string, int64) error        { return nil }
func (*host) ForgetState(context.Context, string, int64) error { return nil }
func (*host) Leases(context.Context) (map[string]int64, error) { return nil, nil }

func (*host) Instance() string                         { return "wrk_test" }
func (*host) Isolation() event.Isolation               { return event.IsolationNone }
func (*host) Ack(context.Context, string, int64) error { return nil }
func (*host) Close() error                             { return nil }

func (h *host) turn(runID string) *turn {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.turns[runID] == nil {
		h.turns[runID] = &turn{said: make(chan struct{})}
	}
	return h.turns[runID]
}

var local = event.ThreadState{Durability: event.DurabilityLocal}

func (h *host) StartTurn(_ context.Context, t harness.Turn) error {
	turn := h.turn(t.RunID)
	text := func(s string) []event.Data {
		return []event.Data{event.TextStarted{MessageID: "m1", Role: "assistant"}, event.TextDelta{MessageID: "m1", Delta: s}, event.TextFinished{MessageID: "m1"}}
	}
	interrupt := func(q event.InterruptRequested, before ...event.Data) {
		q.InterruptID, q.Revision = id.OfInterrupt(t.RunID), 1
		turn.say(append(before, q, event.RunInterrupted{InterruptID: q.InterruptID, Reason: "asked", Thread: local})...)
	}
	switch {
	case t.Resume != nil:
		turn.say(append(afterDecision(t.Resume.Decision), append(text("Decided: "+string(raw(t.Resume.Decision))), finished())...)...)
	case t.Text == "answer":
		turn.say(append(text("Hi there."), finished())...)
	case t.Text == "files":
		names := ""
		for _, f := range t.Files {
			names += fmt.Sprintf("[%s %s %d]", f.Name, f.MediaType, len(f.Data))
		}
		turn.say(append(text(names), finished())...)
	case t.Text == "form":
		interrupt(event.InterruptRequested{Kind: event.InterruptForm, Prompt: "Who are you?", Fields: []event.FormField{
			{Name: "name", Kind: "string", Required: true}, {Name: "age", Kind: "number"}, {Name: "colour", Kind: "choice", Choices: []string{"red", "blue"}},
		}})
	case t.Text == "approval":
		arguments := json.RawMessage(`{"path":"a.txt"}`)
		interrupt(event.InterruptRequested{Kind: event.InterruptApproval, Calls: []event.ApprovalCall{
			{ToolCallID: "c1", Name: "write_file", Arguments: arguments, Allowed: []string{"approve", "edit", "reject"}, Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`)},
			{ToolCallID: "c2", Name: "delete", Arguments: arguments, Allowed: []string{"approve", "reject"}},
		}}, event.ToolStarted{ToolCallID: "c1", Name: "write_file", Arguments: arguments}, event.ToolStarted{ToolCallID: "c2", Name: "delete", Arguments: arguments})
	}
	return nil
}

// afterDecision ends the calls that waited.
func afterDecision(d harness.Decision) (out []event.Data) {
	for _, c := range d.Calls {
		if c.Verdict == harness.Reject {
			out = append(out, event.ToolError{ToolCallID: c.ToolCallID, Code: "rejected", Message: c.Message})
		} else {
			out = append(out, event.ToolFinished{ToolCallID: c.ToolCallID, Result: "done"})
		}
	}
	return out
}

func (h *host) Cancel(_ context.Context, runID string, reason event.CancelReason) error {
	h.turn(runID).say(event.RunCancelled{Reason: reason, SideEffects: event.SideEffectsNone, Thread: local})
	return nil
}

func (h *host) Events(_ context.Context, runID string, after int64) (harness.Stream, error) {
	return &reading{h.turn(runID), after}, nil
}

type reading struct {
	turn *turn
	at   int64
}

func (r *reading) Next(ctx context.Context) (harness.SourceEvent, error) {
	select {
	case <-r.turn.said:
		if r.at >= int64(len(r.turn.journal)) {
			return harness.SourceEvent{}, io.EOF
		}
		r.at++
		return r.turn.journal[r.at-1], nil
	case <-ctx.Done():
		return harness.SourceEvent{}, ctx.Err()
	}
}
func (*reading) Close() error { return nil }
