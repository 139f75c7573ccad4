package transport_test

import (
	"context"
	"io"
	"sync"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// host has workers whose turns are silent until they are cancelled; the text "answer" is answered at once.
type host struct {
	mu    sync.Mutex
	turns map[string]*turn
}

// turn is one run on a worker: what it says comes through the channel, which is closed behind the terminal.
type turn struct {
	once sync.Once
	out  chan harness.SourceEvent
}

func (t *turn) say(data ...event.Data) {
	t.once.Do(func() {
		for i, d := range data {
			t.out <- harness.SourceEvent{Seq: int64(i + 1), Events: []event.Event{{Data: d}}}
		}
		close(t.out)
	})
}

func (*host) Reserve(b harness.Binding) string { return "worker-" + b.SessionID }
func (h *host) Start(context.Context, harness.Binding, int64, string, harness.Construction, *harness.Snapshot) (harness.Runtime, error) {
	return h, nil
}
func (h *host) Attach(context.Context, harness.Binding, int64, string) (harness.Runtime, error) {
	return h, nil
}
func (*host) Destroy(context.Context, string) error            { return nil }
func (*host) ForgetState(context.Context, string, int64) error { return nil }
func (*host) List(context.Context) ([]string, error)           { return nil, nil }

func (*host) Instance() string                         { return "wrk_test" }
func (*host) Isolation() event.Isolation               { return event.IsolationNone }
func (*host) Ack(context.Context, string, int64) error { return nil }
func (*host) Close() error                             { return nil }

func (h *host) turn(runID string) *turn {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.turns[runID] == nil {
		h.turns[runID] = &turn{out: make(chan harness.SourceEvent, 8)}
	}
	return h.turns[runID]
}

var local = event.ThreadState{Durability: event.DurabilityLocal}

func (h *host) StartTurn(_ context.Context, t harness.Turn) error {
	if turn := h.turn(t.RunID); t.Text == "answer" {
		turn.say(event.TextStarted{MessageID: "m1", Role: "assistant"}, event.TextDelta{MessageID: "m1", Delta: "Hi "},
			event.TextDelta{MessageID: "m1", Delta: "there."}, event.TextFinished{MessageID: "m1"}, finished())
	}
	return nil
}

func (h *host) Cancel(_ context.Context, runID string, reason event.CancelReason) error {
	h.turn(runID).say(event.RunCancelled{Reason: reason, SideEffects: event.SideEffectsNone, Thread: local})
	return nil
}

func (h *host) Events(_ context.Context, runID string, _ int64) (harness.Stream, error) {
	return reading{h.turn(runID)}, nil
}

type reading struct{ turn *turn }

func (r reading) Next(ctx context.Context) (harness.SourceEvent, error) {
	select {
	case e, ok := <-r.turn.out:
		if !ok {
			return e, io.EOF
		}
		return e, nil
	case <-ctx.Done():
		return harness.SourceEvent{}, ctx.Err()
	}
}
func (reading) Close() error { return nil }
