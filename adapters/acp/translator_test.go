package acp

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/worker"
)

// metaProfile reads namespaces and names as an agent of ours sends them.
func metaProfile() Profile {
	type ours struct {
		Namespace []Delegate `json:"namespace"`
		Tool      string     `json:"tool"`
		Parent    string     `json:"parent"`
	}
	read := func(raw json.RawMessage) (m ours) {
		_ = json.Unmarshal(raw, &m)
		return m
	}
	return Profile{
		Namespace:     func(raw json.RawMessage) []Delegate { return read(raw).Namespace },
		ToolName:      func(raw json.RawMessage) string { return read(raw).Tool },
		ParentMessage: func(raw json.RawMessage) string { return read(raw).Parent },
	}.withDefaults()
}

// translated runs updates through a translator and judges what comes out, with a run.finished behind it.
func translated(t *testing.T, p Profile, updates ...string) (*recorder, *translator) {
	t.Helper()
	tr := newTranslator(p, "run_1")
	r := newRecorder()
	yield := func(steps []worker.Step) {
		for _, s := range steps {
			if err := r.Yield(s); err != nil {
				t.Fatalf("the validator refused %v: %v", s.Events, err)
			}
		}
	}
	for _, u := range updates {
		steps, err := tr.update(json.RawMessage(u))
		if err != nil {
			t.Fatalf("update %s: %v", u, err)
		}
		yield(steps)
	}
	yield(steps(tr.finish()))
	yield([]worker.Step{{Events: []event.Event{{Data: event.RunFinished{Outcome: "success", StopReason: "end_turn"}}}}})
	return r, tr
}

func chunk(kind, id, text string) string {
	return fmt.Sprintf(`{"sessionUpdate":"agent_%s_chunk","messageId":%q,"content":{"type":"text","text":%q}}`, kind, id, text)
}

// TestNoticeBetweenMessages: a notice with a code ends the message in front of it; one whose code has no form is an ordinary
// one.
func TestNoticeBetweenMessages(t *testing.T) {
	notice := func(code string) string {
		return fmt.Sprintf(`{"sessionUpdate":"notice","title":"again","_meta":{"harness-engine":{"notice":%q}}}`, code)
	}
	r, _ := translated(t, Own(Profile{}).withDefaults(), chunk("message", "a", "half"), notice("model_call_retried"), chunk("message", "a", "whole"), notice("No Code"))
	var got []string
	for _, e := range r.events {
		got = append(got, string(e.Type()))
		if w, ok := e.Data.(event.Warning); ok {
			got = append(got, w.Code)
		}
	}
	want := "text.started text.delta text.finished warning model_call_retried text.started text.delta warning harness_notice text.finished run.finished"
	if strings.Join(got, " ") != want {
		t.Errorf("got %s", strings.Join(got, " "))
	}
}

const finished = `run.finished {"outcome":"success","stopReason":"end_turn","thread":{"durability":""}}`

func TestUpdates(t *testing.T) {
	for name, tc := range map[string]struct {
		updates []string
		want    []string
		facts   map[string]string
	}{
		"a message in pieces": {
			updates: []string{chunk("message", "a", "x"), chunk("message", "a", ""), chunk("message", "a", "y")},
			want: []string{
				`text.started {"messageId":"run_1-m1","role":"assistant"}`,
				`text.delta {"messageId":"run_1-m1","delta":"x"}`,
				`text.delta {"messageId":"run_1-m1","delta":"y"}`,
				`text.finished {"messageId":"run_1-m1"}`,
			},
		},
		"another id is another message": {
			updates: []string{chunk("message", "a", "x"), chunk("message", "b", "y"), chunk("message", "", "z"), chunk("message", "a", "again")},
			want: []string{
				`text.started {"messageId":"run_1-m1","role":"assistant"}`,
				`text.delta {"messageId":"run_1-m1","delta":"x"}`,
				`text.finished {"messageId":"run_1-m1"}`,
				`text.started {"messageId":"run_1-m2","role":"assistant"}`,
				`text.delta {"messageId":"run_1-m2","delta":"y"}`,
				`text.delta {"messageId":"run_1-m2","delta":"z"}`,
				`text.finished {"messageId":"run_1-m2"}`,
				`text.started {"messageId":"run_1-m3","role":"assistant"}`,
				`text.delta {"messageId":"run_1-m3","delta":"again"}`,
				`text.finished {"messageId":"run_1-m3"}`,
			},
		},
		"thoughts end where text begins, without ids": {
			updates: []string{
				`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"}}`,
				`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"so"}}`,
			},
			want: []string{
				`reasoning.started {"messageId":"run_1-m1"}`,
				`reasoning.delta {"messageId":"run_1-m1","delta":"hm"}`,
				`reasoning.finished {"messageId":"run_1-m1"}`,
				`text.started {"messageId":"run_1-m2","role":"assistant"}`,
				`text.delta {"messageId":"run_1-m2","delta":"so"}`,
				`text.finished {"messageId":"run_1-m2"}`,
			},
		},
		"content that is not text": {
			updates: []string{`{"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"AA=="}}`},
			facts:   map[string]string{"acp.skipped_content": "image=1"},
		},
		"a call from start to end": {
			updates: []string{
				chunk("message", "a", "x"),
				`{"sessionUpdate":"tool_call","toolCallId":"c","title":"Run ls","name":"bash","kind":"execute","status":"pending","rawInput":{},"_meta":{"parent":"a"}}`,
				`{"sessionUpdate":"tool_call_update","toolCallId":"c","rawInput":{"command":"l"}}`,
				`{"sessionUpdate":"tool_call_update","toolCallId":"c","rawInput":{"command":"ls"},"status":"in_progress"}`,
				`{"sessionUpdate":"tool_call_update","toolCallId":"c","rawInput":{"command":"ls -l"},"status":"in_progress"}`,
				`{"sessionUpdate":"tool_call_update","toolCallId":"c","content":[{"type":"content","content":{"type":"text","text":"a.txt"}}]}`,
				`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed"}`,
			},
			want: []string{
				`text.started {"messageId":"run_1-m1","role":"assistant"}`,
				`text.delta {"messageId":"run_1-m1","delta":"x"}`,
				`text.finished {"messageId":"run_1-m1"}`,
				`tool.started {"toolCallId":"c","name":"bash","kind":"execute","title":"Run ls","parentMessageId":"run_1-m1"}`,
				`tool.arguments.delta {"toolCallId":"c","delta":"{\"command\":\"ls\"}"}`,
				`tool.finished {"toolCallId":"c","result":"a.txt"}`,
			},
		},
		"input that grows is shown once, when the call ends": {
			updates: []string{
				`{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","name":"n","status":"pending","rawInput":{"cwd":"/w"}}`,
				`{"sessionUpdate":"tool_call_update","toolCallId":"c","rawInput":{"cwd":"/w","command":"ls"}}`,
				`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"failed","content":[{"type":"content","content":{"type":"text","text":"no"}}]}`,
			},
			want: []string{
				`tool.started {"toolCallId":"c","name":"n","title":"t"}`,
				`tool.arguments.delta {"toolCallId":"c","delta":"{\"command\":\"ls\",\"cwd\":\"/w\"}"}`,
				`tool.error {"toolCallId":"c","code":"tool_failed","message":"no","retryable":false}`,
			},
		},
		"only an update, already completed": {
			updates: []string{`{"sessionUpdate":"tool_call_update","toolCallId":"c","title":"touch x","kind":"execute","status":"completed","rawInput":{"a":1},"rawOutput":{"exit":0}}`},
			want: []string{
				`tool.started {"toolCallId":"c","name":"execute","kind":"execute","title":"touch x","arguments":{"a":1}}`,
				`tool.finished {"toolCallId":"c","result":"{\"exit\":0}"}`,
			},
		},
		"repeated and late updates": {
			updates: []string{
				`{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","status":"in_progress"}`,
				`{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","status":"in_progress"}`,
				`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","rawOutput":"one"}`,
				`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","rawOutput":"two"}`,
				`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"failed"}`,
				`{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","status":"pending"}`,
			},
			want: []string{
				`tool.started {"toolCallId":"c","name":"tool","title":"t"}`,
				`tool.finished {"toolCallId":"c","result":"one"}`,
			},
			facts: map[string]string{"acp.late_updates": "tool_call=3"},
		},
		"a call that never ends": {
			updates: []string{`{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","status":"in_progress"}`},
			want: []string{
				`tool.started {"toolCallId":"c","name":"tool","title":"t"}`,
				`tool.error {"toolCallId":"c","code":"outcome_unknown","message":"The harness ended the turn without telling the outcome of this call.","retryable":false}`,
			},
		},
		"the name from the profile, input that is no object": {
			updates: []string{`{"sessionUpdate":"tool_call","toolCallId":"c","title":"","kind":"weird","status":"completed","rawInput":"ls","_meta":{"tool":"Bash"}}`},
			want: []string{
				`tool.started {"toolCallId":"c","name":"Bash","arguments":{"input":"ls"}}`,
				`tool.finished {"toolCallId":"c","result":""}`,
			},
		},
		"the outcome is what comes with the end": {
			updates: []string{
				`{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","status":"pending","content":[{"type":"content","content":{"type":"text","text":"what it will do"}}]}`,
				`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","rawOutput":"what it did"}`,
			},
			want: []string{
				`tool.started {"toolCallId":"c","name":"tool","title":"t"}`,
				`tool.finished {"toolCallId":"c","result":"what it did"}`,
			},
		},
		"content of other types": {
			updates: []string{`{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","status":"completed","content":[{"type":"diff","path":"a.go"},{"type":"terminal","terminalId":"x"},{"type":"content","content":{"type":"image","data":""}},7]}`},
			want: []string{
				`tool.started {"toolCallId":"c","name":"tool","title":"t"}`,
				`tool.finished {"toolCallId":"c","result":"[diff of a.go]\n[image]"}`,
			},
		},
		"a plan": {
			updates: []string{`{"sessionUpdate":"plan","entries":[{"content":"look","status":"completed","priority":"high"},{"content":"leap","status":"pending","priority":"?"}]}`},
			want:    []string{`plan.updated {"entries":[{"content":"look","status":"completed","priority":"high"},{"content":"leap","status":"pending"}]}`},
		},
		"a notice": {
			updates: []string{`{"sessionUpdate":"notice","severity":"warning","title":"careful"}`},
			want:    []string{`warning {"code":"harness_notice","message":"careful"}`},
		},
		"facts": {
			updates: []string{
				`{"sessionUpdate":"usage_update","used":20,"size":1000,"cost":{"amount":0.5,"currency":"USD"}}`,
				`{"sessionUpdate":"current_mode_update","currentModeId":"plan"}`,
				`{"sessionUpdate":"available_commands_update","availableCommands":[{},{}]}`,
				`{"sessionUpdate":"session_info_update","title":"about\nfish"}`,
				`{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"echo"}}`,
			},
			facts: map[string]string{
				"acp.context_used": "20", "acp.context_size": "1000", "acp.session_cost": "0.5 USD",
				"acp.mode": "plan", "acp.commands": "2",
			},
		},
		"kinds that nobody knows": {
			updates: []string{`{"sessionUpdate":"dance","step":1}`, `{"sessionUpdate":"dance","step":2}`, `{"sessionUpdate":"compaction_update"}`},
			facts:   map[string]string{"acp.unknown_updates": "compaction_update=1,dance=2"},
		},
		"updates without the protocol's form": {
			updates: []string{
				`7`, `null`, `{}`, `{"sessionUpdate":3}`, `{"sessionUpdate":"tool_call"}`, `{"sessionUpdate":"agent_message_chunk"}`,
				`{"sessionUpdate":"agent_message_chunk","content":"x"}`, `{"sessionUpdate":"plan","entries":[{"content":"x","status":"?"}]}`,
				`{"sessionUpdate":"plan","entries":7}`, `{"sessionUpdate":"notice"}`,
			},
			facts: map[string]string{"acp.malformed_updates": "update=10"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, tr := translated(t, metaProfile(), tc.updates...)
			compare(t, r.shapes(), append(tc.want, finished))
			got := tr.facts.take()
			if len(got) != len(tc.facts) {
				t.Errorf("facts %v, want %v", got, tc.facts)
			}
			for k, v := range tc.facts {
				if got[k] != v {
					t.Errorf("fact %s is %q, want %q", k, got[k], v)
				}
			}
		})
	}
}

func TestInputIsCompleteWhereTheProfileSaysSo(t *testing.T) {
	p := metaProfile()
	p.InputComplete = true
	r, _ := translated(t, p,
		`{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","name":"n","status":"pending","rawInput":{"a":1}}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"c","rawInput":{"a":2},"status":"completed"}`,
	)
	compare(t, r.shapes(), []string{
		`tool.started {"toolCallId":"c","name":"n","title":"t","arguments":{"a":1}}`,
		`tool.finished {"toolCallId":"c","result":""}`,
		finished,
	})
}

// inside gives the `_meta` of a path of delegates, each written id=call.
func inside(path ...string) string {
	var ds []string
	for _, d := range path {
		id, call, _ := strings.Cut(d, "=")
		ds = append(ds, fmt.Sprintf(`{"id":%q,"name":"worker","toolCallId":%q}`, id, call))
	}
	return `"_meta":{"namespace":[` + strings.Join(ds, ",") + `]}`
}

func TestNamespaces(t *testing.T) {
	call := func(id, meta string) string {
		return `{"sessionUpdate":"tool_call","toolCallId":"` + id + `","title":"t","name":"task","status":"in_progress",` + meta + `}`
	}
	done := func(id, status string) string {
		return `{"sessionUpdate":"tool_call_update","toolCallId":"` + id + `","status":"` + status + `"}`
	}
	say := func(text, meta string) string {
		return `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + text + `"},` + meta + `}`
	}
	root := inside()
	t.Run("two at once, one inside of another, closed with their calls", func(t *testing.T) {
		r, tr := translated(t, metaProfile(),
			say("root", root), call("p", root), call("q", root),
			say("a1", inside("A=p")), say("b1", inside("B=q")), say("a2", inside("A=p")),
			call("i", inside("A=p")), say("deep", inside("A=p", "C=i")), call("x", inside("A=p", "C=i")),
			done("q", "failed"), done("p", "completed"),
			say("late", inside("A=p")),
		)
		compare(t, r.shapes(), []string{
			`text.started {"messageId":"run_1-m1","role":"assistant"}`, `text.delta {"messageId":"run_1-m1","delta":"root"}`,
			`text.finished {"messageId":"run_1-m1"}`,
			`tool.started {"toolCallId":"p","name":"task","title":"t"}`,
			`tool.started {"toolCallId":"q","name":"task","title":"t"}`,
			`namespace.entered {"id":"A","name":"worker","parentToolCallId":"p"}`,
			`A/text.started {"messageId":"run_1-m2","role":"assistant"}`, `A/text.delta {"messageId":"run_1-m2","delta":"a1"}`,
			`namespace.entered {"id":"B","name":"worker","parentToolCallId":"q"}`,
			`B/text.started {"messageId":"run_1-m3","role":"assistant"}`, `B/text.delta {"messageId":"run_1-m3","delta":"b1"}`,
			`A/text.delta {"messageId":"run_1-m2","delta":"a2"}`, `A/text.finished {"messageId":"run_1-m2"}`,
			`A/tool.started {"toolCallId":"i","name":"task","title":"t"}`,
			`A/namespace.entered {"id":"C","name":"worker","parentToolCallId":"i"}`,
			`A/C/text.started {"messageId":"run_1-m4","role":"assistant"}`, `A/C/text.delta {"messageId":"run_1-m4","delta":"deep"}`,
			`A/C/text.finished {"messageId":"run_1-m4"}`,
			`A/C/tool.started {"toolCallId":"x","name":"task","title":"t"}`,
			`B/text.finished {"messageId":"run_1-m3"}`, `namespace.exited {"id":"B","outcome":"error"}`,
			`tool.error {"toolCallId":"q","code":"tool_failed","message":"","retryable":false}`,
			`A/C/tool.error {"toolCallId":"x","code":"outcome_unknown","message":"The harness ended the turn without telling the outcome of this call.","retryable":false}`,
			`A/namespace.exited {"id":"C","outcome":"success"}`,
			`A/tool.error {"toolCallId":"i","code":"outcome_unknown","message":"The harness ended the turn without telling the outcome of this call.","retryable":false}`,
			`namespace.exited {"id":"A","outcome":"success"}`,
			`tool.finished {"toolCallId":"p","result":""}`,
			finished,
		})
		if got := tr.facts.take()["acp.unplaced_updates"]; got != "namespace=1" {
			t.Errorf("unplaced %q", got)
		}
	})
	t.Run("what cannot be placed is not shown", func(t *testing.T) {
		r, tr := translated(t, metaProfile(),
			say("no such call", inside("A=p")), call("p", root), say("no outer", inside("A=p", "B=p")),
			say("no id", inside("=p")), say("wrong parent", inside("A=q")),
		)
		compare(t, r.shapes()[:1], []string{`tool.started {"toolCallId":"p","name":"task","title":"t"}`})
		if got := tr.facts.take()["acp.unplaced_updates"]; got != "namespace=4" {
			t.Errorf("unplaced %q", got)
		}
	})
	t.Run("no more than can be open", func(t *testing.T) {
		updates := []string{call("p", root)}
		for i := range maxOpenSpaces + 5 {
			updates = append(updates, say("x", inside(fmt.Sprintf("N%d=p", i))))
		}
		_, tr := translated(t, metaProfile(), updates...)
		if got := tr.facts.take()["acp.unplaced_updates"]; got != "namespace=5" {
			t.Errorf("unplaced %q", got)
		}
	})
}

// TestHostileValues gives every field values that events do not hold; the validator must take what comes of them.
func TestHostileValues(t *testing.T) {
	values := []string{
		`""`, `"\u0000\u001b[31m\u0085"`, `"\ud800"`, `"` + strings.Repeat("x", 300) + `"`, `"` + strings.Repeat("é", 100_000) + `"`,
		`"` + strings.Repeat(`\u0001`, 70_000) + `"`, `"` + strings.Repeat(`\"`, 70_000) + `"`, `"\u202e"`, `"a b/c"`,
	}
	for _, v := range values {
		translated(t, metaProfile(),
			`{"sessionUpdate":"agent_message_chunk","messageId":`+v+`,"content":{"type":"text","text":`+v+`}}`,
			`{"sessionUpdate":"tool_call","toolCallId":`+v+`,"title":`+v+`,"name":`+v+`,"kind":`+v+`,"status":"in_progress","rawInput":{`+v+`:`+v+`}}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":`+v+`,"status":"completed","content":[{"type":"content","content":{"type":"text","text":`+v+`}}]}`,
			`{"sessionUpdate":"tool_call","toolCallId":"f","title":"t","status":"failed","rawOutput":`+v+`}`,
			`{"sessionUpdate":"tool_call","toolCallId":"t","title":"t","status":"in_progress"}`,
			`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"x"},"_meta":{"namespace":[{"id":`+v+`,"name":`+v+`,"toolCallId":"t"}]}}`,
			`{"sessionUpdate":"plan","entries":[`+strings.TrimSuffix(strings.Repeat(`{"content":`+v+`,"status":"pending","priority":"low"},`, min(200, 2_000_000/len(v))), ",")+`]}`,
			`{"sessionUpdate":"notice","title":`+v+`}`,
			`{"sessionUpdate":`+v+`}`, `{"sessionUpdate":"current_mode_update","currentModeId":`+v+`}`,
		)
	}
}

func TestInputThatDoesNotFitIsLeftOutWithAWarning(t *testing.T) {
	for name, input := range map[string]string{
		"large":  `{"a":"` + strings.Repeat("x", maxArguments+1) + `"}`,
		"deep":   strings.Repeat(`{"a":`, maxJSONDepth+1) + `1` + strings.Repeat(`}`, maxJSONDepth+1),
		"number": `{"a":1e999}`,
	} {
		for _, status := range []string{"pending", "in_progress"} {
			r, _ := translated(t, metaProfile(),
				`{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","status":"`+status+`","rawInput":`+input+`}`,
				`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed"}`,
			)
			compare(t, r.shapes(), []string{
				`tool.started {"toolCallId":"c","name":"tool","title":"t"}`,
				`warning {"code":"tool_input_omitted","message":"The input of a tool call is too large to be shown.","details":{"toolCallId":"c"}}`,
				`tool.finished {"toolCallId":"c","result":""}`,
				finished,
			})
			_ = name
		}
	}
}

func TestInputIsKeptExactly(t *testing.T) {
	input := `{"big":12345678901234567890,"small":1.10,"html":"<a & b>","null":null,"list":[1,"two",{}]}`
	r, _ := translated(t, metaProfile(), `{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","status":"completed","rawInput":`+input+`}`)
	started := r.events[0].Data.(event.ToolStarted)
	want := `{"big":12345678901234567890,"html":"<a & b>","list":[1,"two",{}],"null":null,"small":1.10}`
	if string(started.Arguments) != want {
		t.Errorf("arguments %s", started.Arguments)
	}
}

func TestLongInputArrivesWhole(t *testing.T) {
	content := strings.Repeat("é🙂\n", 20_000)
	raw, err := json.Marshal(map[string]string{"content": content})
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range []string{"pending", "in_progress"} {
		r, _ := translated(t, metaProfile(),
			`{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","status":"`+status+`","rawInput":`+string(raw)+`}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed"}`)
		var b strings.Builder
		for _, e := range r.events {
			switch d := e.Data.(type) {
			case event.ToolStarted:
				b.Write(d.Arguments)
			case event.ToolArgumentsDelta:
				b.WriteString(d.Delta)
			}
		}
		var got map[string]string
		if err := json.Unmarshal([]byte(b.String()), &got); err != nil || got["content"] != content {
			t.Errorf("%s: %v, %d bytes of %d", status, err, len(got["content"]), len(content))
		}
	}
}

func TestUsage(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	for name, tc := range map[string]struct {
		given []*tokens
		want  string // of the last
	}{
		"none":          {[]*tokens{nil}, ""},
		"nothing known": {[]*tokens{{}}, ""},
		"negative":      {[]*tokens{{Input: n(-1)}}, ""},
		"some":          {[]*tokens{{Input: n(1), Reason: n(0)}}, `usage.updated {"inputTokens":1,"reasoningTokens":0,"final":true}`},
		"what was known is final where the answer says nothing": {
			[]*tokens{{Output: n(5)}, nil}, `usage.updated {"outputTokens":5,"final":true}`,
		},
	} {
		tr := newTranslator(Profile{}.withDefaults(), "run_1")
		var last []event.Event
		for i, u := range tc.given {
			last = tr.tokensUsed(u, i == len(tc.given)-1)
		}
		got := ""
		if len(last) > 0 {
			got = shape(last[0])
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
