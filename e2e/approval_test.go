package e2e

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// TestApproval has a person approve, edit and reject a call, on each harness that lets them.
func TestApproval(t *testing.T) {
	cases := []struct {
		name    string
		decide  func(m manner, file string) func(enginetest.ApprovalCall) enginetest.Verdict
		end     string // how the call ends
		content string // of the file afterwards
	}{
		{
			name:   "approve",
			decide: func(manner, string) func(enginetest.ApprovalCall) enginetest.Verdict { return approve },
			end:    enginetest.ToolFinished, content: "kept words",
		},
		{
			name: "edit",
			decide: func(m manner, file string) func(enginetest.ApprovalCall) enginetest.Verdict {
				return edit(m.arguments(file, "edited words"))
			},
			end: enginetest.ToolFinished, content: "edited words",
		},
		{
			name:   "reject",
			decide: func(manner, string) func(enginetest.ApprovalCall) enginetest.Verdict { return reject("Not today.") },
			end:    enginetest.ToolError,
		},
	}
	onEach(t, nil, func(t *testing.T, m manner) {
		engine := sharedEngine(t)
		c := clientOf(t, engine)
		agent := asking(bounded(t), t, c, m.harness, nil)
		for _, tc := range cases {
			if !slices.Contains(m.verdicts, tc.name) {
				continue
			}
			t.Run(tc.name, func(t *testing.T) {
				ctx := bounded(t)
				file := tc.name + ".md"
				first, q := interrupted(ctx, t, c, agent.ID, "talk about "+tc.name, m.ask(file))
				if q.Kind != enginetest.KindApproval || len(q.Calls) != 1 || q.Calls[0].Name != m.tool || !slices.Equal(q.Calls[0].Allowed, m.verdicts) {
					t.Fatalf("the question is %+v, want one about a call of %s with verdicts %v", q, m.tool, m.verdicts)
				}
				m.wantFile(t, engine, first.SessionID, file, "")

				second, events := decide(ctx, t, c, q, verdict(q, tc.decide(m, file)))
				wantFinished(t, events)
				end := wantCallEnded(t, events, q.Calls[0].ToolCallID, tc.end)
				if tc.end == enginetest.ToolError && end.Code != "rejected" {
					t.Fatalf("the rejected call ends with %s, want the code rejected", end)
				}
				if enginetest.Text(events) == "" {
					t.Fatal("the agent says nothing afterwards")
				}
				if last := enginetest.Last(events); last.Thread.Durability != "COMMITTED" || *last.Thread.Revision < 2 {
					t.Fatalf("the run ends with %s, want its thread committed anew", last)
				}
				m.wantFile(t, engine, first.SessionID, file, tc.content)
				wantIdle(ctx, t, c, first.SessionID)
				wantInterrupt(ctx, t, c, first.ID, "RESUMED", second.ID)
				p, err := c.Place(ctx, second.ID)
				if err != nil || p.ContinuesID != first.ID || p.Ord != 2 {
					t.Fatalf("the second run is %+v (%v), want it the session's second, continuing %s", p, err, first.ID)
				}

				// The same decision again, its calls spelt otherwise or not, is the same run; another is refused.
				again, err := c.Resume(ctx, q, verdict(q, tc.decide(m, file)))
				if err != nil || again == nil || again.ID != second.ID {
					t.Fatalf("the same decision again gives %+v (%v), want run %s", again, err, second.ID)
				}
				_, err = c.Resume(ctx, q, verdict(q, reject("Another word.")))
				wantConflict(t, err, "RESUMED")
				_, err = c.Resume(ctx, q, enginetest.Decision{Dismiss: true})
				wantConflict(t, err, "RESUMED")
			})
		}
	})
}

// TestTwoCallsTogether asks about two calls of one turn at once, and decides them differently.
func TestTwoCallsTogether(t *testing.T) {
	onEach(t, func(m manner) bool { return m.together }, func(t *testing.T, m manner) {
		ctx := bounded(t)
		engine := sharedEngine(t)
		c := clientOf(t, engine)
		agent := asking(ctx, t, c, m.harness, nil)
		first, q := interrupted(ctx, t, c, agent.ID, "", m.ask("one.md", "two.md"))
		if len(q.Calls) != 2 {
			t.Fatalf("the question is %+v, want it about both calls", q)
		}
		yes, no := q.Calls[0], q.Calls[1]
		if fileOf(t, yes) != "one.md" {
			yes, no = no, yes
		}
		// In another order than they were asked.
		_, events := decide(ctx, t, c, q, enginetest.Decision{Calls: []enginetest.CallDecision{
			{ToolCallID: no.ToolCallID, Verdict: reject("No.")(no)}, {ToolCallID: yes.ToolCallID, Verdict: approve(yes)},
		}})
		wantFinished(t, events)
		wantCallEnded(t, events, yes.ToolCallID, enginetest.ToolFinished)
		if end := wantCallEnded(t, events, no.ToolCallID, enginetest.ToolError); end.Code != "rejected" {
			t.Fatalf("the rejected call ends with %s", end)
		}
		m.wantFile(t, engine, first.SessionID, "one.md", "kept words")
		m.wantFile(t, engine, first.SessionID, "two.md", "")
		wantIdle(ctx, t, c, first.SessionID)
	})
}

// TestQuestionAfterQuestion ends the run that goes on from a question in another question: each run continues the one
// before, and inherits what that left open.
func TestQuestionAfterQuestion(t *testing.T) {
	onEach(t, nil, func(t *testing.T, m manner) {
		ctx := bounded(t)
		engine := sharedEngine(t)
		c := clientOf(t, engine)
		agent := asking(ctx, t, c, m.harness, nil)
		text := m.inTurn("one.md", "two.md")
		if !m.together { // two calls of one answer are asked about one after the other
			text = m.ask("one.md", "two.md")
		}
		first, q1 := interrupted(ctx, t, c, agent.ID, "", text)
		if len(q1.Calls) != 1 || fileOf(t, q1.Calls[0]) != "one.md" {
			t.Fatalf("the first question is %+v, want it about one.md", q1)
		}
		second, err := c.Resume(ctx, q1, verdict(q1, approve))
		if err != nil {
			t.Fatal(err)
		}
		q2 := awaitQuestion(ctx, t, c, *second)
		if len(q2.Calls) != 1 || fileOf(t, q2.Calls[0]) != "two.md" || q2.ID == q1.ID {
			t.Fatalf("the second question is %+v, want it about two.md", q2)
		}
		m.wantFile(t, engine, first.SessionID, "one.md", "kept words")
		_, err = c.Resume(ctx, q1, verdict(q1, reject("Too late.")))
		wantConflict(t, err, "RESUMED")
		third, events := decide(ctx, t, c, q2, verdict(q2, reject("No.")))
		wantFinished(t, events)
		wantCallEnded(t, events, q2.Calls[0].ToolCallID, enginetest.ToolError)
		m.wantFile(t, engine, first.SessionID, "two.md", "")
		wantInterrupt(ctx, t, c, first.ID, "RESUMED", second.ID)
		wantInterrupt(ctx, t, c, second.ID, "RESUMED", third.ID)
		wantIdle(ctx, t, c, first.SessionID)
	})
}

// fileOf is the file that a call wants to write.
func fileOf(t *testing.T, call enginetest.ApprovalCall) string {
	t.Helper()
	var args struct {
		Path string `json:"file_path"`
	}
	if err := json.Unmarshal(call.Arguments, &args); err != nil {
		t.Fatalf("the arguments of %+v: %v", call, err)
	}
	return args.Path[lastSlash(args.Path)+1:]
}

func lastSlash(s string) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '/' {
			return i
		}
	}
	return -1
}

// badDecision is one that does not answer the question, and where it is wrong.
type badDecision struct {
	name  string
	d     enginetest.Decision
	field string
}

// TestBadDecisions refuses what does not answer the question, names the field, and leaves the question as it is.
func TestBadDecisions(t *testing.T) {
	onEach(t, nil, func(t *testing.T, m manner) {
		ctx := bounded(t)
		engine := sharedEngine(t)
		c := clientOf(t, engine)
		agent := asking(ctx, t, c, m.harness, nil)
		first, q := interrupted(ctx, t, c, agent.ID, "", m.ask("bad.md"))
		call := q.Calls[0]
		on := func(id string, v enginetest.Verdict) enginetest.CallDecision {
			return enginetest.CallDecision{ToolCallID: id, Verdict: v}
		}
		cases := []badDecision{
			{"a form", enginetest.Decision{Form: json.RawMessage(`{"a":1}`)}, "input.decision"},
			{"no call", enginetest.Decision{Calls: []enginetest.CallDecision{}}, "input.decision"},
			{"another call", enginetest.Decision{Calls: []enginetest.CallDecision{on("nobody", approve(call))}}, "input.decision.calls[0].toolCallId"},
			{"a call twice", enginetest.Decision{Calls: []enginetest.CallDecision{on(call.ToolCallID, approve(call)), on(call.ToolCallID, approve(call))}},
				"input.decision.calls[1].toolCallId"},
			{"edited into no object", enginetest.Decision{Calls: []enginetest.CallDecision{on(call.ToolCallID, edit(json.RawMessage(`[1]`))(call))}},
				"input.decision.calls[0].decision.edit.arguments"},
			{"two verdicts", enginetest.Decision{Calls: []enginetest.CallDecision{on(call.ToolCallID, enginetest.Verdict{Approve: true, Reject: &enginetest.Reject{}})}},
				"input.decision.calls[0].decision"},
			{"no verdict", enginetest.Decision{Calls: []enginetest.CallDecision{on(call.ToolCallID, enginetest.Verdict{})}}, "input.decision.calls[0].decision"},
			{"two kinds", enginetest.Decision{Calls: []enginetest.CallDecision{on(call.ToolCallID, approve(call))}, Dismiss: true}, "input.decision"},
		}
		if !slices.Contains(m.verdicts, "edit") {
			d := enginetest.Decision{Calls: []enginetest.CallDecision{on(call.ToolCallID, edit(m.arguments("bad.md", "edited words"))(call))}}
			cases = append(cases, badDecision{"a verdict that is not allowed", d, "input.decision.calls[0].decision"})
		}
		for _, tc := range cases {
			_, err := c.Resume(ctx, q, tc.d)
			if enginetest.Code(err) != "BAD_USER_INPUT" || enginetest.Field(err) != tc.field {
				t.Errorf("%s: got %v at %q, want BAD_USER_INPUT at %s", tc.name, err, enginetest.Field(err), tc.field)
			}
		}
		late := q
		late.Revision++
		if _, err := c.Resume(ctx, late, verdict(q, approve)); err == nil {
			t.Error("a decision on another revision is taken")
		} else {
			wantConflict(t, err, "", "PENDING")
		}
		stranger := clientAs(t, engine, "mallory")
		if _, err := stranger.Resume(ctx, q, verdict(q, approve)); enginetest.Code(err) != "NOT_FOUND" {
			t.Errorf("a stranger's decision gives %v, want NOT_FOUND", err)
		}
		if talk, err := c.Talk(ctx, first.SessionID); err != nil || talk.Pending == nil || !same(*talk.Pending, q) {
			t.Fatalf("afterwards the session is %+v (%v), want it to wait as before", talk, err)
		}
		_, events := decide(ctx, t, c, q, verdict(q, approve))
		wantFinished(t, events)
		m.wantFile(t, engine, first.SessionID, "bad.md", "kept words")
	})
}
