package resolvers

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/graph/model"
)

var samples = []event.Data{
	event.RunStarted{Harness: "scripted", AdapterVersion: "1", AgentVersion: 2, SandboxGeneration: 3, Isolation: event.IsolationNone, Continues: "run_0"},
	event.RunRecovered{Generation: 4},
	event.TextStarted{MessageID: "m", Role: "assistant"},
	event.TextDelta{MessageID: "m", Delta: "é"},
	event.TextFinished{MessageID: "m"},
	event.ReasoningStarted{MessageID: "m"},
	event.ReasoningDelta{MessageID: "m", Delta: "d"},
	event.ReasoningFinished{MessageID: "m"},
	event.ToolStarted{ToolCallID: "t", Name: "n", Kind: "k", Title: "x", Arguments: json.RawMessage(`{"a":1}`), ParentMessageID: "m"},
	event.ToolArgumentsDelta{ToolCallID: "t", Delta: `{"a"`},
	event.ToolFinished{ToolCallID: "t", Result: "r", Truncated: true, ResultRef: "ref"},
	event.ToolError{ToolCallID: "t", Code: "c", Message: "m", Retryable: true},
	event.InterruptRequested{InterruptID: "i", Kind: event.InterruptForm, Prompt: "p", Fields: []event.FormField{{Name: "n", Kind: "choice", Choices: []string{"a"}}}, Revision: 1},
	event.NamespaceEntered{ID: "c", Name: "n", ParentToolCallID: "t"},
	event.NamespaceExited{ID: "c", Outcome: "success"},
	event.PlanUpdated{Entries: []event.PlanEntry{{Content: "c", Status: "pending", Priority: "high"}}},
	event.Warning{Code: "c", Message: "m", Details: map[string]any{"n": 1}},
	event.UsageUpdated{InputTokens: optional(int64(1)), Cost: optional(0.5), Currency: "USD", Final: true},
	event.RunFinished{Outcome: "success", StopReason: "end_turn", Thread: event.ThreadState{Durability: event.DurabilityLocal}},
	event.RunInterrupted{InterruptID: "i", Reason: "r", Thread: event.ThreadState{Durability: event.DurabilityCommitted, Revision: 7}},
	event.RunCancelled{Reason: event.CancelClientRequest, SideEffects: event.SideEffectsKnown, Thread: event.ThreadState{Durability: event.DurabilityNone}},
	event.RunError{Code: "c", Message: "m", Category: event.CategoryTimeout, Retryable: true, RetryAfterMs: 5, SideEffects: event.SideEffectsNone, Thread: event.ThreadState{Durability: event.DurabilityUncertain}},
}

// Every type of the vocabulary has one in the schema, with the envelope and everything in the data that clients may
// see: nothing is left behind on the way.
func TestEveryEventIsShownWhole(t *testing.T) {
	shownTypes := map[string]bool{}
	at := time.Date(2026, 5, 4, 12, 30, 0, 1e6, time.UTC)
	for _, d := range samples {
		m, err := eventModel(event.Event{RunID: "run_1", Sequence: 9, Time: at, Namespace: []string{"child"}, Data: d})
		if err != nil {
			t.Fatalf("%s: %v", d.Type(), err)
		}
		var envelope struct {
			RunID     string `json:"runId"`
			Sequence  int64
			Time      time.Time
			Type      string
			Namespace []string
		}
		remarshal(t, m, &envelope)
		if envelope.RunID != "run_1" || envelope.Sequence != 9 || !envelope.Time.Equal(at) || envelope.Type != string(d.Type()) || len(envelope.Namespace) != 1 {
			t.Errorf("%s: envelope %+v", d.Type(), m)
		}
		shownTypes[envelope.Type] = true
		var have, want map[string]any
		remarshal(t, m, &have)
		remarshal(t, d, &want)
		rename(d.Type(), want)
		for key, v := range want {
			got, ok := have[key]
			if !ok {
				t.Errorf("%s: %s is not shown", d.Type(), key)
				continue
			}
			if s, isText := v.(string); isText && key != "kind" && got != s {
				t.Errorf("%s: %s is %v, not %v", d.Type(), key, got, s)
			}
		}
	}
	if want := len(schemaOf().GetPossibleTypes(schemaOf().Types["RunEvent"])); len(shownTypes) != want || len(samples) != want {
		t.Errorf("%d types shown by %d samples, the schema has %d", len(shownTypes), len(samples), want)
	}
}

// rename gives the data's names the schema's, and takes away what is the engine's own.
func rename(typ event.Type, data map[string]any) {
	move := func(from, to string) { data[to] = data[from]; delete(data, from) }
	switch typ {
	case event.TypeRunStarted:
		move("harness", "harnessId")
		delete(data, "workerInstance")
	case event.TypeNamespaceEntered, event.TypeNamespaceExited:
		move("id", "childId")
	case event.TypeUsageUpdated:
		for k := range data {
			delete(data, k)
		}
		data["usage"] = map[string]any{}
	case event.TypeRunError:
		thread := data["thread"]
		for k := range data {
			delete(data, k)
		}
		data["error"], data["thread"] = map[string]any{}, thread
	}
}

func remarshal(t *testing.T, v, into any) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

type unknown struct{}

func (unknown) Type() event.Type { return "text.sung" }

func TestAnUnknownEventIsAnError(t *testing.T) {
	if _, err := eventModel(event.Event{Data: unknown{}}); err == nil {
		t.Error("shown as something else")
	}
}

var _ model.RunEvent = model.TextDeltaEvent{}
