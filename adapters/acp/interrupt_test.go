package acp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

// continuing is the recorder of the run that goes on after the one that r recorded.
func (r *recorder) continuing(t *testing.T) *recorder {
	t.Helper()
	next := &recorder{validator: event.NewValidator(event.Bounds{}), facts: map[string]string{}}
	if err := next.validator.Inherit(r.validator.Inheritance()); err != nil {
		t.Fatal(err)
	}
	if _, err := next.validator.Accept(event.Event{Data: event.RunStarted{Harness: "fake", AdapterVersion: "1", Continues: "run_1"}}); err != nil {
		t.Fatal(err)
	}
	return next
}

// resume is the turn that goes on after the run that r recorded.
func (r *recorder) resume(runID, after string, d harness.Decision) harness.Turn {
	return harness.Turn{RunID: runID, Resume: &harness.Resume{
		RunID: after, InterruptID: r.validator.Interrupt(), Revision: 1, Decision: d, Inherit: r.validator.Inheritance(),
	}}
}

func decide(verdicts ...string) harness.Decision {
	var d harness.Decision
	for _, v := range verdicts {
		callID, verdict, _ := strings.Cut(v, "=")
		d.Calls = append(d.Calls, harness.CallDecision{ToolCallID: callID, Verdict: harness.Verdict(verdict)})
	}
	return d
}

func nativeProfile() Profile {
	p := Own(fakeProfile())
	p.Namespace = metaProfile().Namespace
	return p
}

const approvalMeta = `{"harness-engine/interrupt":{"kind":"tool_approval","reason":"sensitive","calls":[` +
	`{"toolCallId":"a","name":"delete","arguments":{"path":"x"},"allowed":["approve","edit","reject"],"schema":{"type":"object"}},` +
	`{"toolCallId":"b","name":"delete","arguments":{"path":"y"},"allowed":["approve","reject"]}]}}`

func TestAnAgentThatKeepsItsInterrupts(t *testing.T) {
	var prompts []json.RawMessage
	program := func(n int, p *program) {
		p.serve(func(p *program, m message) {
			prompts = append(prompts, m.Params)
			if n == 0 {
				p.update(hello)
				p.update(`{"sessionUpdate":"tool_call","toolCallId":"a","name":"delete","title":"a","status":"pending","rawInput":{"path":"x"}}`)
				p.update(`{"sessionUpdate":"tool_call","toolCallId":"b","name":"delete","title":"b","status":"pending","rawInput":{"path":"y"}}`)
				p.result(m.ID, `{"stopReason":"end_turn","usage":{"inputTokens":1},"_meta":`+approvalMeta+`}`)
				return
			}
			p.update(`{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"in_progress","rawInput":{"path":"z"}}`)
			p.update(`{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed","content":[{"type":"content","content":{"type":"text","text":"gone"}}]}`)
			p.update(`{"sessionUpdate":"tool_call_update","toolCallId":"b","status":"failed","_meta":{"harness-engine/rejected":true}}`)
			p.result(m.ID, `{"stopReason":"end_turn"}`)
		})
	}
	d, env := opened(t, nativeProfile(), program)
	first := newRecorder()
	if err := d.Turn(t.Context(), turnOf("hi"), first); err != nil {
		t.Fatal(err)
	}
	first.terminal(t)
	compare(t, first.shapes()[3:], []string{
		`tool.started {"toolCallId":"a","name":"delete","title":"a","arguments":{"path":"x"}}`,
		`tool.started {"toolCallId":"b","name":"delete","title":"b","arguments":{"path":"y"}}`,
		`usage.updated {"inputTokens":1,"final":true}`,
		`interrupt.requested {"interruptId":"int_1","kind":"tool_approval","calls":[` +
			`{"toolCallId":"a","name":"delete","arguments":{"path":"x"},"allowed":["approve","edit","reject"],"schema":{"type":"object"}},` +
			`{"toolCallId":"b","name":"delete","arguments":{"path":"y"},"allowed":["approve","reject"]}],"revision":1}`,
		`run.interrupted {"interruptId":"int_1","reason":"sensitive","thread":{"durability":"LOCAL"}}`,
	})
	if (parker{d}).Parked() {
		t.Error("parked, though the agent keeps the interrupt")
	}

	// Another process goes on: what was decided reaches it, and the calls end in the new run.
	d.agent.Load().kill()
	second := first.continuing(t)
	decision := decide("a=edit", "b=reject")
	decision.Calls[0].Arguments = json.RawMessage(`{"path":"z"}`)
	decision.Calls[1].Message = "keep it"
	if err := d.Turn(t.Context(), first.resume("run_2", "run_1", decision), second); err != nil {
		t.Fatal(err)
	}
	second.terminal(t)
	compare(t, second.shapes(), []string{
		`tool.arguments.delta {"toolCallId":"a","delta":"{\"path\":\"z\"}"}`,
		`tool.finished {"toolCallId":"a","result":"gone"}`,
		`tool.error {"toolCallId":"b","code":"rejected","message":"The call was rejected.","retryable":false}`,
		finishedLocal,
	})
	want := `{"sessionId":"native-1","prompt":[],"_meta":{"harness-engine/resume":{"decision":{"calls":[` +
		`{"toolCallId":"a","verdict":"edit","arguments":{"path":"z"}},{"toolCallId":"b","verdict":"reject","message":"keep it"}]}}}}`
	if string(prompts[1]) != want {
		t.Errorf("prompt %s\nwant %s", prompts[1], want)
	}
	if starts := env.Tree.(*fakeTree).starts; starts != 2 {
		t.Errorf("%d processes, want 2", starts)
	}
}

func TestAFormThatTheAgentKeeps(t *testing.T) {
	d, _ := opened(t, nativeProfile(), func(_ int, p *program) {
		p.serve(func(p *program, m message) {
			p.update(`{"sessionUpdate":"tool_call","toolCallId":"q","name":"request_input","title":"q","status":"pending","rawInput":{}}`)
			p.result(m.ID, `{"stopReason":"end_turn","_meta":{"harness-engine/interrupt":{"kind":"form_input","prompt":"Which?",`+
				`"fields":[{"name":"n","label":"N","kind":"number","required":true},{"name":"c","kind":"choice","choices":["a","b"]}]}}}`)
		})
	})
	r := newRecorder()
	if err := d.Turn(t.Context(), turnOf("hi"), r); err != nil {
		t.Fatal(err)
	}
	r.terminal(t)
	compare(t, r.shapes()[1:], []string{
		`interrupt.requested {"interruptId":"int_1","kind":"form_input","prompt":"Which?","fields":[` +
			`{"name":"n","label":"N","kind":"number","required":true},{"name":"c","kind":"choice","choices":["a","b"]}],"revision":1}`,
		`run.interrupted {"interruptId":"int_1","reason":"form_input","thread":{"durability":"LOCAL"}}`,
	})
}

// TestBadInterrupts: what an agent says of an interrupt that cannot be true ends the run as a violation, and an agent
// that is not of ours is not read for interrupts at all.
func TestBadInterrupts(t *testing.T) {
	const call = `{"toolCallId":"a","name":"n","allowed":["approve"]}`
	for name, meta := range map[string]string{
		"not an object":   `7`,
		"unknown kind":    `{"kind":"riddle","prompt":"x"}`,
		"no calls":        `{"kind":"tool_approval"}`,
		"nothing asked":   `{"kind":"form_input"}`,
		"unknown call":    `{"kind":"tool_approval","calls":[{"toolCallId":"z","name":"n","allowed":["approve"]}]}`,
		"ended call":      `{"kind":"tool_approval","calls":[{"toolCallId":"e","name":"n","allowed":["approve"]}]}`,
		"call twice":      `{"kind":"tool_approval","calls":[` + call + `,` + call + `]}`,
		"unknown verdict": `{"kind":"tool_approval","calls":[{"toolCallId":"a","name":"n","allowed":["maybe"]}]}`,
		"nothing allowed": `{"kind":"tool_approval","calls":[{"toolCallId":"a","name":"n"}]}`,
		"field twice":     `{"kind":"form_input","fields":[{"name":"x","kind":"string"},{"name":"x","kind":"string"}]}`,
		"unknown field":   `{"kind":"form_input","fields":[{"name":"x","kind":"password"}]}`,
	} {
		for _, own := range []bool{true, false} {
			p := fakeProfile()
			if own {
				p = nativeProfile()
			}
			d, _ := opened(t, p, func(_ int, p *program) {
				p.serve(func(p *program, m message) {
					p.update(`{"sessionUpdate":"tool_call","toolCallId":"e","name":"n","title":"a","status":"completed"}`)
					p.update(`{"sessionUpdate":"tool_call","toolCallId":"a","name":"n","title":"a","status":"pending"}`)
					p.result(m.ID, `{"stopReason":"end_turn","_meta":{"harness-engine/interrupt":`+meta+`}}`)
				})
			})
			r := newRecorder()
			if err := d.Turn(t.Context(), turnOf("hi"), r); err != nil {
				t.Fatal(err)
			}
			got, failed := r.terminal(t).(event.RunError)
			if own && got.Code != "harness_protocol_violation" || !own && failed {
				t.Errorf("%s, own %v: ended as %+v", name, own, r.terminal(t))
			}
		}
	}
}

// TestLargeApprovals: schemas go first, then arguments; the calls stay.
func TestLargeApprovals(t *testing.T) {
	long := func(n int) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", n)))
	}
	for name, tc := range map[string]struct {
		calls           int
		args, schema    json.RawMessage
		argsIn, formsIn bool
	}{
		"small":               {2, long(100), long(100), true, true},
		"a schema too long":   {1, long(100), long(maxAskedForm), true, false},
		"arguments too long":  {1, long(maxAskedArgs), long(100), false, true},
		"schemas together":    {30, long(100), long(4 << 10), true, false},
		"all of it":           {30, long(4 << 10), long(4 << 10), false, false},
		"as much as can wait": {maxAskedCalls, nil, nil, false, false},
	} {
		tr := newTranslator(nativeProfile().withDefaults(), "run_1")
		d := event.InterruptRequested{Kind: event.InterruptApproval}
		for i := range tc.calls {
			d.Calls = append(d.Calls, event.ApprovalCall{
				ToolCallID: fmt.Sprint("c", i), Name: "n", Arguments: tc.args, Schema: tc.schema, Allowed: []string{"approve"},
			})
		}
		got, ok := tr.showable(d)
		if !ok || len(got.Calls) != tc.calls {
			t.Fatalf("%s: %v with %d calls", name, ok, len(got.Calls))
		}
		for _, c := range got.Calls {
			if (c.Arguments != nil) != tc.argsIn || (c.Schema != nil) != tc.formsIn {
				t.Errorf("%s: arguments %d bytes, schema %d bytes", name, len(c.Arguments), len(c.Schema))
			}
		}
		if d.Calls[0].Schema == nil && tc.schema != nil {
			t.Errorf("%s: the caller's calls were changed", name)
		}
	}
}

func TestALostNativeInterrupt(t *testing.T) {
	for name, data := range map[string]string{
		"as a class": `{"code":"interrupt_lost","category":"unavailable"}`, "bare": `{"code":"interrupt_lost"}`,
	} {
		d, _ := opened(t, nativeProfile(), func(_ int, p *program) {
			p.serve(func(p *program, m message) { p.fail(m.ID, -32602, "nothing is pending", data) })
		})
		r := newRecorder()
		if err := d.Turn(t.Context(), r.resume("run_2", "run_1", decide("a=approve")), r); err != nil {
			t.Fatal(err)
		}
		if got, ok := r.terminal(t).(event.RunError); !ok || got.Code != worker.CodeRunInterruptLost || got.Category != event.CategoryUnavailable || got.Retryable {
			t.Errorf("%s: %+v", name, r.terminal(t))
		}
	}
}

// TestInheritedNamespaces: a delegated agent that was interrupted goes on in the next run and ends with its call.
func TestInheritedNamespaces(t *testing.T) {
	call := func(id, at string) string {
		return `{"sessionUpdate":"tool_call","toolCallId":"` + id + `","name":"n","title":"t","status":"in_progress",` + at + `}`
	}
	done := func(id string) string {
		return `{"sessionUpdate":"tool_call_update","toolCallId":"` + id + `","status":"completed"}`
	}
	inherit := event.Inheritance{
		Tools:      []event.OpenTool{{ID: "p"}, {ID: "q"}, {ID: "i", Namespace: []string{"A"}}},
		Namespaces: [][]string{{"A"}},
	}
	p := metaProfile().withDefaults()
	for name, tc := range map[string]struct {
		updates []string
		want    []string
	}{
		"the delegate ends first": {
			[]string{done("i"), call("j", inside("A=p")), done("j"), done("p"), done("q")},
			[]string{
				`A/tool.finished {"toolCallId":"i","result":""}`,
				`A/tool.started {"toolCallId":"j","name":"n","title":"t"}`,
				`A/tool.finished {"toolCallId":"j","result":""}`,
				`namespace.exited {"id":"A","outcome":"success"}`,
				`tool.finished {"toolCallId":"p","result":""}`,
				`tool.finished {"toolCallId":"q","result":""}`,
			},
		},
		"nothing is said of it": {
			nil,
			[]string{
				`A/tool.error {"toolCallId":"i","code":"outcome_unknown","message":"The harness ended the turn without telling the outcome of this call.","retryable":false}`,
				`namespace.exited {"id":"A","outcome":"error"}`,
				`tool.error {"toolCallId":"p","code":"outcome_unknown","message":"The harness ended the turn without telling the outcome of this call.","retryable":false}`,
				`tool.error {"toolCallId":"q","code":"outcome_unknown","message":"The harness ended the turn without telling the outcome of this call.","retryable":false}`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorder()
			r.validator = event.NewValidator(event.Bounds{})
			if err := r.validator.Inherit(inherit); err != nil {
				t.Fatal(err)
			}
			if _, err := r.validator.Accept(event.Event{Data: event.RunStarted{Harness: "x", Continues: "run_0"}}); err != nil {
				t.Fatal(err)
			}
			tr := newTranslator(p, "run_1")
			tr.inherit(harness.Resume{Inherit: inherit}, nil)
			for _, u := range tc.updates {
				out, err := tr.update(json.RawMessage(u))
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range out {
					_ = r.Yield(s)
				}
			}
			_ = r.Yield(steps(append(tr.finish(), event.Event{Data: event.RunFinished{Outcome: "success", StopReason: "end_turn"}}))[0])
			r.terminal(t)
			compare(t, r.shapes()[:len(r.shapes())-1], tc.want)
		})
	}
}

// TestAnyCallsCanBeInherited: whatever a run leaves open, and however strange the agent's ids, the next run's stream
// stays valid, and each call ends once.
func TestAnyCallsCanBeInherited(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.OneOf(
			rapid.SampledFrom([]string{"a", "b", "ü", "x\x00y", "tab\tid", strings.Repeat("l", 200)}), rapid.StringN(1, 20, 60),
		), 1, 8, rapid.ID).Draw(rt, "ids")
		p := nativeProfile().withDefaults()
		before := newRecorder()
		first := newTranslator(p, "run_1")
		feed := func(tr *translator, r *recorder, status, id string) {
			raw, _ := json.Marshal(map[string]any{"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status, "rawInput": map[string]int{"n": 1}})
			out, err := tr.update(raw)
			if err != nil {
				rt.Fatal(err)
			}
			for _, s := range out {
				if err := r.Yield(s); err != nil {
					rt.Fatalf("%s %q: %v", status, id, err)
				}
			}
		}
		for _, id := range ids {
			feed(first, before, rapid.SampledFrom([]string{"pending", "in_progress", "completed"}).Draw(rt, "before"), id)
		}
		open := before.validator.OpenTools()
		resume := harness.Resume{Inherit: before.validator.Inheritance()}
		for _, id := range open {
			resume.Decision.Calls = append(resume.Decision.Calls, harness.CallDecision{
				ToolCallID: id, Verdict: rapid.SampledFrom([]harness.Verdict{harness.Approve, harness.Edit, harness.Reject}).Draw(rt, "verdict"),
			})
		}
		prior := rapid.SampledFrom([]*translator{nil, first}).Draw(rt, "process") // another one, or the same
		after := before.continuing(t)
		second := newTranslator(p, "run_2")
		second.inherit(resume, prior)
		for _, id := range rapid.Permutation(ids).Draw(rt, "order") {
			if prior == nil && !slices.Contains(open, first.calls[id].id) {
				continue // another process says nothing of what ended
			}
			feed(second, after, rapid.SampledFrom([]string{"pending", "completed", "failed"}).Draw(rt, "after"), id)
		}
		for _, s := range steps(second.finish()) {
			_ = after.Yield(s)
		}
		for _, e := range after.events {
			if d, ok := e.Data.(event.ToolFinished); ok {
				for _, c := range resume.Decision.Calls {
					if c.ToolCallID == d.ToolCallID && c.Verdict == harness.Reject {
						rt.Fatalf("rejected call %s finished", d.ToolCallID)
					}
				}
			}
		}
		if left := after.validator.OpenTools(); len(left) > 0 || after.err != nil {
			rt.Fatalf("left open %v, %v", left, after.err)
		}
	})
}
