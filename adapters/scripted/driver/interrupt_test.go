package driver

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/worker"
)

// decide goes on with the run that was played last.
func (b *bench) decide(t *testing.T, d harness.Decision, open ...string) []harness.SourceEvent {
	t.Helper()
	return b.turn(t, harness.Turn{Resume: b.resumption(d, open...)})
}

func (b *bench) resumption(d harness.Decision, open ...string) *harness.Resume {
	run := "run_" + jsonOf(b.runs)
	r := &harness.Resume{RunID: run, InterruptID: id.OfInterrupt(run), Revision: 1, Decision: d}
	for _, call := range open {
		r.Inherit.Tools = append(r.Inherit.Tools, event.OpenTool{ID: call})
	}
	return r
}

func jsonOf(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

func calls(c ...harness.CallDecision) harness.Decision { return harness.Decision{Calls: c} }

const (
	ended   = `run.finished {"outcome":"success","stopReason":"end_turn","thread":{"durability":"LOCAL"}}` + "\n"
	stopped = `run.interrupted {"interruptId":"int_1","reason":"tool_approval","thread":{"durability":"LOCAL"}}` + "\n"
)

// said is a message of one word, as it is shown.
func word(message, text string) string {
	return `text.started {"messageId":"` + message + `","role":"assistant"}
text.delta {"messageId":"` + message + `","delta":"` + text + `"}
text.finished {"messageId":"` + message + `"}
`
}

// TestApproval: on the worker that asked, and on a later one.
func TestApproval(t *testing.T) {
	const script = `[{"text":"before"},{"approval":{"prompt":"Sure?","calls":[
		{"id":"a","name":"send","arguments":{"to":"x"},"schema":{"type":"object"},"result":"sent"},
		{"name":"wipe","allowed":["approve","reject"],"error":{"code":"denied","message":"No."}}]}},{"text":"after"}]`
	asked := word("run_1.m1", "before") + `tool.started {"toolCallId":"a","name":"send","arguments":{"to":"x"}}
tool.started {"toolCallId":"run_1.t2","name":"wipe"}
interrupt.requested {"interruptId":"int_1","kind":"tool_approval","prompt":"Sure?","calls":[{"toolCallId":"a","name":"send","arguments":{"to":"x"},"allowed":["approve","edit","reject"],"schema":{"type":"object"}},{"toolCallId":"run_1.t2","name":"wipe","allowed":["approve","reject"]}],"revision":1}
` + stopped
	for name, tc := range map[string]struct {
		decision harness.Decision
		want     string
	}{
		"approve": {calls(harness.CallDecision{ToolCallID: "run_1.t2", Verdict: harness.Approve}, harness.CallDecision{ToolCallID: "a", Verdict: harness.Approve}),
			`tool.finished {"toolCallId":"a","result":"sent"}
tool.error {"toolCallId":"run_1.t2","code":"denied","message":"No.","retryable":false}
`},
		"edit and reject": {calls(
			harness.CallDecision{ToolCallID: "a", Verdict: harness.Edit, Arguments: json.RawMessage(`{ "to": "y" }`)},
			harness.CallDecision{ToolCallID: "run_1.t2", Verdict: harness.Reject, Message: "Not that."}),
			`tool.finished {"toolCallId":"a","result":"sent\narguments: {\"to\":\"y\"}"}
tool.error {"toolCallId":"run_1.t2","code":"rejected","message":"Not that.","retryable":false}
`},
		"reject without a word": {calls(harness.CallDecision{ToolCallID: "a", Verdict: harness.Reject}, harness.CallDecision{ToolCallID: "run_1.t2", Verdict: harness.Reject}),
			`tool.error {"toolCallId":"a","code":"rejected","message":"A person rejected the call.","retryable":false}
tool.error {"toolCallId":"run_1.t2","code":"rejected","message":"A person rejected the call.","retryable":false}
`},
	} {
		for _, later := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", later worker"}[later], func(t *testing.T) {
				b := newBench(t, "")
				if got := show(b.play(t, script)); got != asked {
					t.Fatalf("asked\n%swant\n%s", got, asked)
				}
				if later {
					b = benchFrom(t, b, "", "")
				}
				if got, want := show(b.decide(t, tc.decision, "a", "run_1.t2")), tc.want+word("run_2.m1", "after")+ended; got != want {
					t.Fatalf("got\n%swant\n%s", got, want)
				}
				if got := texts(b.play(t, "and on"), ""); got != "and on" {
					t.Fatalf("then %q", got)
				}
			})
		}
	}
}

func TestForm(t *testing.T) {
	b := newBench(t, "")
	got := show(b.play(t, `[{"form":{"prompt":"Who?","fields":[{"name":"who","label":"Name","kind":"string","required":true},{"name":"old","kind":"number"},{"name":"ok","kind":"boolean"}]}},{"text":"after"}]`))
	want := `interrupt.requested {"interruptId":"int_1","kind":"form_input","prompt":"Who?","fields":[{"name":"who","label":"Name","kind":"string","required":true},{"name":"old","kind":"number"},{"name":"ok","kind":"boolean"}],"revision":1}
run.interrupted {"interruptId":"int_1","reason":"form_input","thread":{"durability":"LOCAL"}}
`
	if got != want {
		t.Fatalf("got\n%swant\n%s", got, want)
	}
	b = benchFrom(t, b, "", "")
	if got := texts(b.decide(t, harness.Decision{Form: json.RawMessage(`{"ok":true,"who":"Ada L.","other":1}`)}), ""); got != "who: Ada L.\nok: trueafter" {
		t.Fatalf("got %q", got)
	}
	b.play(t, `{"form":{"fields":[{"name":"who","kind":"string"}]}}`)
	if got := texts(b.decide(t, harness.Decision{Form: json.RawMessage(`{}`)}), ""); got != "Nothing was filled in." {
		t.Fatalf("got %q", got)
	}
}

// TestScriptPosition: an interrupt deep in repeats goes on where it was, over several interrupts and workers.
func TestScriptPosition(t *testing.T) {
	b := newBench(t, "")
	b.play(t, `[{"repeat":{"times":2,"steps":[{"text":"a"},{"repeat":{"times":2,"steps":[{"approval":{"calls":[{"name":"x"}]}},{"text":"b"}]}},{"text":"c"}]}},{"finish":"refusal"}]`)
	var got strings.Builder
	interrupts := 1
	for {
		steps := b.decide(t, calls(harness.CallDecision{ToolCallID: b.waitsFor(t), Verdict: harness.Approve}), b.waitsFor(t))
		got.WriteString(texts(steps, ""))
		events := steps[len(steps)-1].Events
		if d, ok := events[len(events)-1].Data.(event.RunFinished); ok {
			if d.StopReason != "refusal" {
				t.Fatalf("ended with %+v", d)
			}
			break
		}
		interrupts++
		b = benchFrom(t, b, "", "")
	}
	if got.String() != "bbcabbc" || interrupts != 4 {
		t.Fatalf("said %q over %d interrupts", got.String(), interrupts)
	}
}

// waitsFor is the id that the first call of the run that was played last has.
func (b *bench) waitsFor(t *testing.T) string {
	t.Helper()
	for _, s := range b.played {
		for _, e := range s.Events {
			if d, ok := e.Data.(event.InterruptRequested); ok {
				return d.Calls[0].ToolCallID
			}
		}
	}
	t.Fatal("no interrupt")
	return ""
}

func TestDecisionsThatDoNotFit(t *testing.T) {
	approve := func(call string) harness.CallDecision {
		return harness.CallDecision{ToolCallID: call, Verdict: harness.Approve}
	}
	for name, d := range map[string]harness.Decision{
		"a form":      {Form: json.RawMessage(`{}`)},
		"another":     calls(approve("b")),
		"too many":    calls(approve("a"), approve("b")),
		"not allowed": calls(harness.CallDecision{ToolCallID: "a", Verdict: harness.Edit, Arguments: json.RawMessage(`{}`)}),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "")
			b.play(t, `{"approval":{"calls":[{"id":"a","name":"x","allowed":["approve"]}]}}`)
			all := show(b.decide(t, d, "a"))
			if !strings.Contains(all, `"code":"decision_mismatch"`) || strings.Contains(all, "tool.finished") {
				t.Fatalf("got\n%s", all)
			}
		})
	}
}

// TestLostInterrupt: nothing waits for the decision, because it was never there or something came in between.
func TestLostInterrupt(t *testing.T) {
	b := newBench(t, "")
	lost := func(what string) {
		t.Helper()
		steps := b.decide(t, calls(harness.CallDecision{ToolCallID: "a", Verdict: harness.Approve}), "a")
		events := steps[len(steps)-1].Events
		if got, ok := events[len(events)-1].Data.(event.RunError); !ok || got.Code != worker.CodeRunInterruptLost {
			t.Fatalf("%s: got %+v", what, events)
		}
	}
	b.play(t, "no interrupt")
	lost("none")
	b.play(t, `{"approval":{"calls":[{"id":"a","name":"x"}]}}`)
	old := b.resumption(calls(harness.CallDecision{ToolCallID: "a", Verdict: harness.Approve}), "a")
	b.play(t, "something else")
	steps := b.turn(t, harness.Turn{Resume: old})
	if all := show(steps); !strings.Contains(all, worker.CodeRunInterruptLost) {
		t.Fatalf("superseded: got\n%s", all)
	}
}

func TestApprovalPolicies(t *testing.T) {
	const script = `[{"tool":{"id":"t","name":"look","result":"seen"}},{"approval":{"calls":[{"id":"a","name":"send"}]}}]`
	for policy, want := range map[harness.ApprovalPolicy]string{
		harness.ApproveNever:     "tool.started tool.finished tool.started tool.finished run.finished",
		harness.ApproveSensitive: "tool.started tool.finished tool.started interrupt.requested run.interrupted",
		"":                       "tool.started tool.finished tool.started interrupt.requested run.interrupted",
		harness.ApproveAlways:    "tool.started interrupt.requested run.interrupted",
	} {
		var types []string
		b := benchFrom(t, nil, "", policy)
		for _, s := range b.play(t, script) {
			for _, e := range s.Events {
				types = append(types, string(e.Type()))
			}
		}
		if got := strings.Join(types, " "); got != want {
			t.Errorf("%q: got %s, want %s", policy, got, want)
		}
		if policy == harness.ApproveAlways {
			steps := show(b.decide(t, calls(harness.CallDecision{ToolCallID: "t", Verdict: harness.Approve}), "t"))
			if !strings.Contains(steps, `{"toolCallId":"t","result":"seen"}`) || !strings.Contains(steps, `"name":"send"`) {
				t.Errorf("after the first approval:\n%s", steps)
			}
		}
	}
}

func TestFiles(t *testing.T) {
	b := newBench(t, "")
	steps := b.turn(t, harness.Turn{Text: "look", Files: []harness.File{
		{Name: "a b.png", MediaType: "image/png", Data: []byte("abc")}, {Name: "e.txt", MediaType: "text/plain", Data: []byte{}},
	}})
	const want = "a b.png: image/png, 3 bytes, sha256 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n" +
		"e.txt: text/plain, 0 bytes, sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855|look"
	if got := texts(steps, "|"); got != want {
		t.Fatalf("got %q", got)
	}
}

// TestSnapshotFail: the state cannot be packed, and what was not committed is not remembered.
func TestSnapshotFail(t *testing.T) {
	b := newBench(t, "")
	b.play(t, "kept")
	run := b.start(t, harness.Turn{Text: `[{"text":"lost"},{"snapshot_fail":true}]`})
	if all := show(b.read(t, run)); !strings.Contains(all, `"durability":"LOCAL"`) {
		t.Fatalf("got\n%s", all)
	}
	if _, err := b.State(t.Context(), run); !errors.Is(err, harness.ErrNoState) {
		t.Fatalf("state: %v, want ErrNoState", err)
	}
	if err := b.StartTurn(t.Context(), harness.Turn{RunID: "run_next", Head: b.head}); !errors.Is(err, harness.ErrStaleHead) {
		t.Fatalf("next turn: %v, want ErrStaleHead", err)
	}
	b = benchFrom(t, b, "", "")
	if got := texts(b.play(t, `{"recall":true}`), ""); got != "I remember 1 message:\n1. kept" {
		t.Fatalf("got %q", got)
	}
}

// TestHangBeforeEnd: what was said can be read, the end cannot, until the time is over or the run is cancelled.
func TestHangBeforeEnd(t *testing.T) {
	b := newBench(t, "")
	run := b.start(t, harness.Turn{Text: `[{"hang_before_end":5000},{"text":"x"}]`})
	s, err := b.Events(t.Context(), run, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 3 {
		if _, err := s.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.State(t.Context(), run); !errors.Is(err, harness.ErrConflict) {
		t.Fatalf("state before the end: %v, want ErrConflict", err)
	}
	if err := b.Cancel(t.Context(), run, event.CancelClientRequest); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Next(t.Context()); err != nil || e.Events[0].Type() != event.TypeRunFinished {
		t.Fatalf("got %+v %v", e, err)
	}
}

func TestWaitingThatCannotBeRead(t *testing.T) {
	for name, content := range map[string]string{"cut": `{"version":1,"ru`, "other version": `{"version":2,"run":"run_1"}`, "empty": ""} {
		s := store{dir: t.TempDir()}
		if err := os.WriteFile(filepath.Join(s.dir, fileWaiting), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := s.load()
		if f := new(worker.Failure); !errors.As(err, &f) || f.Category != event.CategoryPersistence {
			t.Errorf("%s: %v", name, err)
		}
	}
	if w, err := (store{dir: t.TempDir()}).load(); err != nil || w.Run != "" {
		t.Errorf("nothing: %+v %v", w, err)
	}
}

// TestWaitingIsKeptAsItIs: every kind of step survives being kept.
func TestWaitingIsKeptAsItIs(t *testing.T) {
	const script = `[{"text":"<a>"},{"reasoning":{"value":"r","chunk":0,"every_ms":1}},{"tool":{"name":"x","arguments":{"a":[1e3]},"stream":true,"result":""}},
		{"tool":{"id":"i","name":"x","error":{"code":"c","message":"m","retryable":true}}},{"plan":[]},{"usage":{"input":0,"cost":0.5,"currency":"USD"}},
		{"warning":{"code":"w","message":"m","details":{"n":1}}},{"facts":{"a":"b"}},{"delay_ms":0},{"garbage":"no_data"},{"hang":true},{"exit":0},{"recall":true},
		{"repeat":{"times":3,"steps":[{"finish":"refusal"}]}},{"approval":{"calls":[{"name":"x","allowed":["edit"],"schema":{}}]}},
		{"form":{"fields":[{"name":"f","kind":"choice","choices":["a"]}]}},{"snapshot_fail":true},{"hang_before_end":1},
		{"error":{"category":"timeout","code":"c","message":"m","retry_after_ms":1}}]`
	steps, ok, err := parse(script)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	s := store{dir: t.TempDir()}
	if err := s.save(waiting{Run: "run_1", Rest: steps}); err != nil {
		t.Fatal(err)
	}
	w, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	if err := check(w.Rest); err != nil {
		t.Fatal(err)
	}
	if got, want := jsonOf(w.Rest), jsonOf(steps); got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
}
