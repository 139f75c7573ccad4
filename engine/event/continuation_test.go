package event_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/event/eventtest"
)

// overTheWire is what the worker makes of an inheritance that the engine sends.
func overTheWire(t rapid.TB, in event.Inheritance) event.Inheritance {
	t.Helper()
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out event.Inheritance
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(out, in) {
		t.Fatalf("%+v came back as %+v from %s", in, out, raw)
	}
	return out
}

func TestInheritanceWireForm(t *testing.T) {
	in := event.Inheritance{
		Tools:      []event.OpenTool{{ID: "t"}, {ID: "u <&>", Namespace: []string{"a"}}},
		Namespaces: [][]string{{"a"}, {"a", "b"}},
	}
	raw, err := json.Marshal(in)
	const want = `{"tools":[{"id":"t"},{"id":"u \u003c\u0026\u003e","namespace":["a"]}],"namespaces":[["a"],["a","b"]]}`
	if err != nil || string(raw) != want {
		t.Errorf("got %s, %v\nwant %s", raw, err, want)
	}
	overTheWire(t, in)
	overTheWire(t, event.Inheritance{})
	if raw, _ := json.Marshal(event.Inheritance{}); string(raw) != `{}` {
		t.Errorf("nothing is %s", raw)
	}
}

// interruptedRun opens calls and namespaces at random, closes some, and ends in an interrupt.
func interruptedRun(t *rapid.T, run int, in event.Inheritance) []event.Event {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	v := event.NewValidator(event.Bounds{})
	if err := v.Inherit(in); err != nil {
		t.Fatal(err)
	}
	start := event.RunStarted{Harness: "h"}
	if run > 0 {
		start.Continues = fmt.Sprintf("run_%d", run-1)
	}
	var out []event.Event
	accept := func(e event.Event) bool {
		events, err := v.Accept(e)
		out = append(out, events...)
		return err == nil
	}
	accept(event.Event{Data: start})
	for i := range rapid.IntRange(0, 30).Draw(t, "steps") {
		spaces := append([][]string{nil}, v.OpenNamespaces()...)
		ns := spaces[r.IntN(len(spaces))]
		left := v.Inheritance().Tools
		switch r.IntN(6) {
		case 0, 1:
			accept(event.Event{Namespace: ns, Data: event.ToolStarted{ToolCallID: fmt.Sprintf("r%d-%d", run, i), Name: "n"}})
		case 2:
			if len(left) > 0 {
				in := left[r.IntN(len(left))]
				accept(event.Event{Namespace: in.Namespace, Data: event.NamespaceEntered{ID: fmt.Sprint("ns", i), Name: "n", ParentToolCallID: in.ID}})
			}
		case 3:
			if len(left) > 0 {
				in := left[r.IntN(len(left))]
				accept(event.Event{Namespace: in.Namespace, Data: event.ToolFinished{ToolCallID: in.ID}})
			}
		case 4:
			if len(ns) > 0 { // refused where something inside is open
				accept(event.Event{Namespace: ns[:len(ns)-1], Data: event.NamespaceExited{ID: ns[len(ns)-1], Outcome: "success"}})
			}
		case 5:
			accept(event.Event{Namespace: ns, Data: event.TextStarted{MessageID: fmt.Sprint("m", i), Role: "assistant"}})
		}
	}
	ask := event.InterruptRequested{InterruptID: fmt.Sprint("int_", run), Kind: event.InterruptForm, Prompt: "?"}
	if !accept(event.Event{Data: ask}) || !accept(event.Event{Data: event.RunInterrupted{InterruptID: ask.InterruptID}}) {
		t.Fatal("the interrupt was refused")
	}
	return out
}

// TestContinuationsRestoreExactly: a chain of interrupted runs, each opened by a writer with what the fold of the one
// before left open, over the wire. Folding any of them again gives what its live writer knew, and the last run ends
// what all of them opened.
func TestContinuationsRestoreExactly(t *testing.T) {
	var tools, namespaces int
	rapid.Check(t, func(rt *rapid.T) {
		log := eventtest.NewLog()
		openRun := func(run int, gen int64, in event.Inheritance) *event.Writer {
			cfg := config(log, gen)
			cfg.RunID, cfg.Inherit = fmt.Sprintf("run_%d", run), in
			w, err := event.OpenWriter(t.Context(), cfg)
			if err != nil {
				rt.Fatal(err)
			}
			return w
		}
		var in event.Inheritance
		runs := rapid.IntRange(1, 4).Draw(rt, "runs")
		for run := range runs {
			live := openRun(run, 1, in)
			for batch := range slices.Chunk(interruptedRun(rt, run, in), 7) {
				if _, err := live.Append(t.Context(), event.Batch{Events: batch}); err != nil {
					rt.Fatal(err)
				}
			}
			folded := openRun(run, 2, in)
			left := folded.Validator().Inheritance()
			if want := live.Validator().Inheritance(); !folded.Ended() || !reflect.DeepEqual(left, want) {
				rt.Fatalf("run %d: the fold leaves %+v, its writer knew %+v", run, left, want)
			}
			tools, namespaces = tools+len(left.Tools), namespaces+len(left.Namespaces)
			next := event.NewValidator(event.Bounds{})
			if err := next.Inherit(left); err != nil {
				rt.Fatal(err)
			}
			if again := next.Inheritance(); !reflect.DeepEqual(again, left) {
				rt.Fatalf("run %d: %+v inherited becomes %+v", run, left, again)
			}
			in = overTheWire(rt, left)
		}
		last := openRun(runs, 1, in)
		events := []event.Event{{Data: event.RunStarted{Harness: "h", Continues: fmt.Sprintf("run_%d", runs-1)}}}
		for _, tool := range in.Tools {
			events = append(events, event.Event{Namespace: tool.Namespace, Data: event.ToolError{ToolCallID: tool.ID, Code: "rejected"}})
		}
		for _, ns := range slices.Backward(in.Namespaces) {
			events = append(events, event.Event{Namespace: ns[:len(ns)-1], Data: event.NamespaceExited{ID: ns[len(ns)-1], Outcome: "error"}})
		}
		if _, err := last.Append(t.Context(), event.Batch{Events: append(events, finished)}); err != nil {
			rt.Fatal(err)
		}
		if !openRun(runs, 2, in).Ended() {
			rt.Fatal("the last run did not end")
		}
	})
	if tools < 100 || namespaces < 50 {
		t.Errorf("only %d calls and %d namespaces were inherited: the generator no longer reaches them", tools, namespaces)
	}
}
