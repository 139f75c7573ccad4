package transport_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/authz"
)

const resumeRun = `mutation($input: ResumeRunInput!) { resumeRun(input: $input) {
	__typename
	... on ResumeRunSuccess { run { id status continuesId } session { id status } }
	... on Problem { code message }
	... on InterruptConflict { status }
} }`

const readInterrupt = `query($s: ID!, $r: ID!) {
	session(id: $s) { status activeRunId pendingInterrupt { ...asked } messages { edges { node { role text runId decision { ...taken } } } } }
	run(id: $r) { status interrupt { ...asked } continuesId continues { id } continuedById continuedBy { id } decision { ...taken } input { text } }
}
fragment asked on Interrupt { __typename id runId run { id status } revision status expiresAt
	... on FormInterrupt { prompt fields { name kind required choices } }
	... on ToolApprovalInterrupt { calls { toolCallId name arguments allowed schema } } }
fragment taken on Decision { interrupt { ...asked } form calls { toolCallId verdict arguments message } }`

// asked starts a run that asks, and waits until its interrupt does.
func (w *world) asked(subject, agentID, conversation, text string) (runID, sessionID, interruptID string) {
	w.t.Helper()
	runID, sessionID = w.start(subject, agentID, conversation, text)
	w.until(func() bool {
		r := w.must(subject, readInterrupt, vars{"s": sessionID, "r": runID})
		interruptID, _ = r.at("session", "pendingInterrupt", "id").(string)
		return interruptID != "" && r.at("session", "activeRunId") == nil && r.at("run", "status") == "INTERRUPTED"
	})
	return runID, sessionID, interruptID
}

func (w *world) resume(subject, interruptID string, revision int, decision any) reply {
	w.t.Helper()
	return w.ask(subject, resumeRun, vars{"input": vars{"interruptId": interruptID, "revision": revision, "decision": decision}})
}

// idle waits until nothing of the session is active.
func (w *world) idle(subject, sessionID string) {
	w.t.Helper()
	w.until(func() bool {
		return w.must(subject, `query($s: ID!) { session(id: $s) { status } }`, vars{"s": sessionID}).at("session", "status") == "IDLE"
	})
}

func TestAnApprovalIsAskedAndDecided(t *testing.T) {
	w := newWorld(t, option{})
	runID, sessionID, interruptID := w.asked("alice", w.agent("alice", "helper"), "c", "approval")
	r := w.must("alice", readInterrupt, vars{"s": sessionID, "r": runID})
	for _, at := range [][]any{{"session", "pendingInterrupt"}, {"run", "interrupt"}} {
		v := func(path ...any) any { return r.at(append(append([]any{}, at...), path...)...) }
		if v("__typename") != "ToolApprovalInterrupt" || v("status") != "PENDING" || v("runId") != runID || v("run", "id") != runID || v("revision") != 1.0 || v("expiresAt") == nil ||
			v("calls", 0, "name") != "write_file" || v("calls", 0, "arguments", "path") != "a.txt" || v("calls", 0, "schema", "required", 0) != "path" ||
			v("calls", 1, "toolCallId") != "c2" || v("calls", 1, "schema") != nil || fmt.Sprint(v("calls", 1, "allowed")) != "[approve reject]" {
			t.Errorf("%v: %v", at, v())
		}
	}
	if r.at("session", "status") != "INTERRUPTED" {
		t.Errorf("session is %v", r.at("session", "status"))
	}

	decision := vars{"calls": []any{
		vars{"toolCallId": "c2", "decision": vars{"reject": vars{"message": "too bold"}}},
		vars{"toolCallId": "c1", "decision": vars{"edit": vars{"arguments": vars{"path": "b.txt"}}}},
	}}
	r = w.resume("alice", interruptID, 1, decision)
	next, _ := r.at("resumeRun", "run", "id").(string)
	if r.at("resumeRun", "__typename") != "ResumeRunSuccess" || next == "" || next == runID || r.at("resumeRun", "run", "continuesId") != runID || r.at("resumeRun", "session", "id") != sessionID {
		t.Fatalf("resumed: %+v", r)
	}
	if last := w.subscribe("alice", next, 0).toTheEnd(); last["type"] != "run.finished" {
		t.Fatalf("ended with %v", last)
	}
	w.idle("alice", sessionID)

	// The same decision is the same run; any other comes too late.
	if r := w.resume("alice", interruptID, 1, decision); r.at("resumeRun", "run", "id") != next {
		t.Errorf("again: %+v", r)
	}
	for _, other := range []any{vars{"dismiss": true}, vars{"calls": []any{
		vars{"toolCallId": "c1", "decision": vars{"approve": true}}, vars{"toolCallId": "c2", "decision": vars{"approve": true}},
	}}} {
		if r := w.resume("alice", interruptID, 1, other); r.at("resumeRun", "__typename") != "InterruptConflict" || r.at("resumeRun", "code") != "INTERRUPT_CONFLICT" || r.at("resumeRun", "status") != "RESUMED" {
			t.Errorf("another decision: %+v", r)
		}
	}

	r = w.must("alice", readInterrupt, vars{"s": sessionID, "r": runID})
	if r.at("session", "pendingInterrupt") != nil || r.at("run", "interrupt", "status") != "RESUMED" || r.at("run", "continuedById") != next || r.at("run", "continuedBy", "id") != next || r.at("run", "decision") != nil {
		t.Errorf("the interrupted run: %v", r.Data)
	}
	r = w.must("alice", readInterrupt, vars{"s": sessionID, "r": next})
	for _, at := range [][]any{{"run", "decision"}, {"session", "messages", "edges", 1, "node", "decision"}} {
		v := func(path ...any) any { return r.at(append(append([]any{}, at...), path...)...) }
		if v("interrupt", "id") != interruptID || v("interrupt", "status") != "RESUMED" || v("calls", 0, "verdict") != "REJECT" || v("calls", 0, "message") != "too bold" ||
			v("calls", 1, "verdict") != "EDIT" || v("calls", 1, "arguments", "path") != "b.txt" || v("form") != nil {
			t.Errorf("%v: %v", at, v())
		}
	}
	if r.at("run", "continues", "id") != runID || r.at("run", "interrupt") != nil || r.at("run", "input", "text") != "" {
		t.Errorf("the run that goes on: %v", r.at("run"))
	}
	var said []string
	edges, _ := r.at("session", "messages", "edges").([]any)
	for i := range edges {
		text, _ := r.at("session", "messages", "edges", i, "node", "text").(string)
		said = append(said, fmt.Sprint(r.at("session", "messages", "edges", i, "node", "role"), " ", text, r.at("session", "messages", "edges", i, "node", "decision") != nil))
	}
	if len(said) != 3 || said[0] != "USER approvalfalse" || said[1] != "USER true" || !strings.HasPrefix(said[2], "ASSISTANT Decided: ") || !strings.Contains(said[2], `"message":"too bold"`) {
		t.Errorf("transcript: %q", said)
	}
}

func TestAFormIsAskedAndDecidedOrDismissed(t *testing.T) {
	w := newWorld(t, option{})
	a := w.agent("alice", "helper")
	runID, sessionID, interruptID := w.asked("alice", a, "c", "form")
	r := w.must("alice", readInterrupt, vars{"s": sessionID, "r": runID})
	if r.at("run", "interrupt", "__typename") != "FormInterrupt" || r.at("run", "interrupt", "prompt") != "Who are you?" || r.at("run", "interrupt", "fields", 0, "required") != true ||
		fmt.Sprint(r.at("run", "interrupt", "fields", 2, "choices")) != "[red blue]" {
		t.Errorf("form: %v", r.at("run", "interrupt"))
	}
	r = w.resume("alice", interruptID, 1, vars{"form": vars{"name": "Ada", "age": 36.5, "colour": "red"}})
	next, _ := r.at("resumeRun", "run", "id").(string)
	if next == "" {
		t.Fatalf("resumed: %+v", r)
	}
	w.subscribe("alice", next, 0).toTheEnd()
	w.idle("alice", sessionID)
	if r = w.must("alice", readInterrupt, vars{"s": sessionID, "r": next}); r.at("run", "decision", "form", "age") != 36.5 || len(r.at("run", "decision", "calls").([]any)) != 0 {
		t.Errorf("decision: %v", r.at("run", "decision"))
	}

	runID, _, interruptID = w.asked("alice", a, "c", "form")
	r = w.resume("alice", interruptID, 1, vars{"dismiss": true})
	if r.at("resumeRun", "__typename") != "ResumeRunSuccess" || r.at("resumeRun", "run") != nil || r.at("resumeRun", "session", "status") != "IDLE" {
		t.Errorf("dismissed: %+v", r)
	}
	if r := w.resume("alice", interruptID, 1, vars{"form": vars{"name": "Ada"}}); r.at("resumeRun", "__typename") != "InterruptConflict" || r.at("resumeRun", "status") != "DISMISSED" {
		t.Errorf("decided after it was dismissed: %+v", r)
	}
	r = w.must("alice", readInterrupt, vars{"s": sessionID, "r": runID})
	edges, _ := r.at("session", "messages", "edges").([]any)
	if last := len(edges) - 1; r.at("session", "messages", "edges", last, "node", "decision", "interrupt", "status") != "DISMISSED" || r.at("session", "messages", "edges", last, "node", "runId") != runID {
		t.Errorf("transcript: %v", edges)
	}

	// A new run takes the place of a question that waits.
	_, _, interruptID = w.asked("alice", a, "c", "form")
	answered, _ := w.start("alice", a, "c", "answer")
	w.subscribe("alice", answered, 0).toTheEnd()
	if r := w.resume("alice", interruptID, 1, vars{"form": vars{"name": "Ada"}}); r.at("resumeRun", "status") != "SUPERSEDED" {
		t.Errorf("decided after it was superseded: %+v", r)
	}
}

// Nothing that does not answer the question decides it, and each refusal names what is wrong.
func TestBadDecisionsAreRefused(t *testing.T) {
	w := newWorld(t, option{})
	a := w.agent("alice", "helper")
	_, approvalSession, approval := w.asked("alice", a, "approval", "approval")
	_, formSession, form := w.asked("alice", a, "form", "form")
	call := func(id string, verdict any) vars { return vars{"toolCallId": id, "decision": verdict} }
	yes := vars{"approve": true}
	deep := any("leaf")
	for range 20 {
		deep = vars{"a": deep}
	}
	for _, c := range []struct {
		name      string
		interrupt string
		decision  any
		field     string
	}{
		{"nothing", form, vars{}, "input.decision"},
		{"null", form, vars{"form": nil}, "input.decision"},
		{"two kinds", form, vars{"form": vars{"name": "Ada"}, "dismiss": true}, "input.decision"},
		{"not dismissed", form, vars{"dismiss": false}, "input.decision.dismiss"},
		{"unknown key", form, vars{"approve": true}, "input.decision.approve"},
		{"no object", form, vars{"form": []any{1}}, "input.decision.form"},
		{"no value", form, vars{"form": vars{"age": 3}}, "input.decision.form.name"},
		{"another field", form, vars{"form": vars{"name": "Ada", "shoe": 1}}, "input.decision.form"},
		{"wrong type", form, vars{"form": vars{"name": 7}}, "input.decision.form.name"},
		{"no choice", form, vars{"form": vars{"name": "Ada", "colour": "green"}}, "input.decision.form.colour"},
		{"control character", form, vars{"form": vars{"name": "A\x00"}}, "input.decision.form.name"},
		{"too deep", form, vars{"form": vars{"name": deep}}, "input.decision.form"},
		{"too long", form, vars{"form": vars{"name": strings.Repeat("x", 70_000)}}, "input.decision.form"},
		{"calls for a form", form, vars{"calls": []any{call("c1", yes)}}, "input.decision"},
		{"a form for calls", approval, vars{"form": vars{"name": "Ada"}}, "input.decision"},
		{"no calls", approval, vars{"calls": []any{}}, "input.decision.calls"},
		{"a call is missing", approval, vars{"calls": []any{call("c1", yes)}}, "input.decision.calls"},
		{"a call too many", approval, vars{"calls": []any{call("c1", yes), call("c2", yes), call("c3", yes)}}, "input.decision.calls[2].toolCallId"},
		{"a call twice", approval, vars{"calls": []any{call("c1", yes), call("c1", yes)}}, "input.decision.calls[1].toolCallId"},
		{"an unprintable call", approval, vars{"calls": []any{call("c\n", yes)}}, "input.decision.calls[0].toolCallId"},
		{"no verdict", approval, vars{"calls": []any{call("c1", vars{}), call("c2", yes)}}, "input.decision.calls[0].decision"},
		{"a null verdict", approval, vars{"calls": []any{call("c1", vars{"edit": nil}), call("c2", yes)}}, "input.decision.calls[0].decision"},
		{"two verdicts", approval, vars{"calls": []any{call("c1", yes), call("c2", vars{"approve": true, "reject": vars{}})}}, "input.decision.calls[1].decision"},
		{"not approved", approval, vars{"calls": []any{call("c1", vars{"approve": false}), call("c2", yes)}}, "input.decision.calls[0].decision.approve"},
		{"not to be edited", approval, vars{"calls": []any{call("c1", yes), call("c2", vars{"edit": vars{"arguments": vars{"path": "x"}}})}}, "input.decision.calls[1].decision"},
		{"no arguments", approval, vars{"calls": []any{call("c1", vars{"edit": vars{}}), call("c2", yes)}}, "input.decision.calls[0].decision.edit.arguments"},
		{"arguments that are none", approval, vars{"calls": []any{call("c1", vars{"edit": vars{"arguments": "x"}}), call("c2", yes)}}, "input.decision.calls[0].decision.edit.arguments"},
		{"arguments off the schema", approval, vars{"calls": []any{call("c1", vars{"edit": vars{"arguments": vars{"path": 7}}}), call("c2", yes)}}, "input.decision.calls[0].decision.edit.arguments"},
		{"a long reason", approval, vars{"calls": []any{call("c1", yes), call("c2", vars{"reject": vars{"message": strings.Repeat("x", 5000)}})}}, "input.decision.calls[1].decision.reject.message"},
		{"a reason that is no text", approval, vars{"calls": []any{call("c1", yes), call("c2", vars{"reject": vars{"message": "\x07"}})}}, "input.decision.calls[1].decision.reject.message"},
	} {
		r := w.resume("alice", c.interrupt, 1, c.decision)
		if r.code() != "BAD_USER_INPUT" || !strings.HasPrefix(r.field(), c.field) {
			t.Errorf("%s: %s at %q: %+v", c.name, r.code(), r.field(), r.Errors)
		}
	}
	for name, input := range map[string]vars{
		"revision":                {"interruptId": form, "revision": 0, "decision": vars{"dismiss": true}},
		"empty idempotency key":   {"interruptId": form, "revision": 1, "idempotencyKey": "", "decision": vars{"dismiss": true}},
		"interrupt with controls": {"interruptId": "int_\n", "revision": 1, "decision": vars{"dismiss": true}},
	} {
		if r := w.ask("alice", resumeRun, vars{"input": input}); r.code() != "BAD_USER_INPUT" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := w.resume("alice", form, 2, vars{"form": vars{"name": "Ada"}}); r.at("resumeRun", "__typename") != "InterruptConflict" {
		t.Errorf("another revision: %+v", r)
	}
	for _, id := range []string{"int_none", strings.Replace(form, "int_", "run_", 1), "agt_1", "x", "int_" + strings.ToUpper(strings.TrimPrefix(form, "int_"))} {
		if r := w.resume("alice", id, 1, vars{"dismiss": true}); r.code() != "NOT_FOUND" {
			t.Errorf("interrupt %s: %+v", id, r)
		}
	}
	// In the document, the executor itself checks @oneOf.
	for _, decision := range []string{`{}`, `{form: null}`, `{form: {name: "Ada"}, dismiss: true}`, `{calls: [{toolCallId: "c1", decision: {approve: true, reject: {}}}]}`} {
		if r := w.ask("alice", `mutation { resumeRun(input: {interruptId: "`+form+`", revision: 1, decision: `+decision+`}) { __typename } }`, nil); r.code() != "BAD_USER_INPUT" {
			t.Errorf("%s: %+v", decision, r)
		}
	}
	// Whoever may not know of the run may not decide, and cannot tell what there is.
	stranger, nothing := w.resume("bob", form, 1, vars{"dismiss": true}), w.resume("bob", "int_none", 1, vars{"dismiss": true})
	if stranger.code() != "NOT_FOUND" || string(raw(stranger.Errors)) != string(raw(nothing.Errors)) {
		t.Errorf("a stranger: %+v, and %+v", stranger, nothing)
	}
	for _, s := range []string{approvalSession, formSession} {
		if r := w.must("alice", `query($s: ID!) { session(id: $s) { status pendingInterrupt { status } } }`, vars{"s": s}); r.at("session", "status") != "INTERRUPTED" || r.at("session", "pendingInterrupt", "status") != "PENDING" {
			t.Errorf("after all that: %v", r.Data)
		}
	}
}

// Whoever lost the agent keeps what was said, and can dismiss nothing and go on with nothing.
func TestDecidingNeedsTheAgent(t *testing.T) {
	w := newWorld(t, option{})
	a := w.agent("alice", "helper")
	w.share(a, "rita")
	runID, sessionID, interruptID := w.asked("rita", a, "c", "form")
	w.unshare(a)
	if r := w.resume("rita", interruptID, 1, vars{"form": vars{"name": "Rita"}}); r.code() != "NOT_FOUND" {
		t.Errorf("decided without the agent: %+v", r)
	}
	if r := w.must("rita", readInterrupt, vars{"s": sessionID, "r": runID}); r.at("session", "pendingInterrupt", "id") != interruptID {
		t.Errorf("read: %v", r.Data)
	}
}

// share lets the subject run the agent of alice; unshare takes that back.
func (w *world) share(agentID, subject string) {
	w.t.Helper()
	tuples := append(authz.AgentTuples(agentID, "alice"), authz.Tuple{User: "user:" + subject, Relation: authz.RelationRunner, Object: "agent:" + agentID})
	if err := w.client.Apply(w.ctx, authz.Agent(agentID), tuples); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) unshare(agentID string) {
	w.t.Helper()
	if err := w.client.Apply(w.ctx, authz.Agent(agentID), authz.AgentTuples(agentID, "alice")); err != nil {
		w.t.Fatal(err)
	}
}
