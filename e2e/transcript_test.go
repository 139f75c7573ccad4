package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// TestTranscript reads a conversation as it was said: messages of both sides in order, each decision at the place where
// it was taken, also over a restart of the engine and in pages of any size.
func TestTranscript(t *testing.T) {
	ctx := bounded(t)
	engine := ownEngine(t)
	c := clientOf(t, engine)
	m := scriptedManner
	agent := asking(ctx, t, c, m.harness, nil)
	r, _ := complete(ctx, t, c, agent.ID, "talk", m.say("note-one"))
	_, approval := interrupted(ctx, t, c, agent.ID, "talk", m.ask("one.md", "two.md"))
	arguments := m.arguments("one.md", "edited words")
	decide(ctx, t, c, approval, enginetest.Decision{Calls: []enginetest.CallDecision{
		{ToolCallID: approval.Calls[0].ToolCallID, Verdict: edit(arguments)(approval.Calls[0])},
		{ToolCallID: approval.Calls[1].ToolCallID, Verdict: reject("Not this one.")(approval.Calls[1])},
	}})
	_, form := interrupted(ctx, t, c, agent.ID, "talk", m.form("Which?", order...))
	decide(ctx, t, c, form, enginetest.Decision{Form: json.RawMessage(`{"name":"Ada","count":2}`)})
	_, dropped := interrupted(ctx, t, c, agent.ID, "talk", m.ask("three.md"))
	if _, err := c.Resume(ctx, dropped, enginetest.Decision{Dismiss: true}); err != nil {
		t.Fatal(err)
	}
	complete(ctx, t, c, agent.ID, "talk", m.say("note-last"))

	want := []string{
		"USER " + m.say("note-one"), "ASSISTANT note-one",
		"USER " + m.ask("one.md", "two.md"),
		"USER  RESUMED TOOL_APPROVAL EDIT edited words, REJECT Not this one.", "ASSISTANT done",
		"USER " + m.form("Which?", order...),
		"USER  RESUMED FORM_INPUT Ada 2", "ASSISTANT *", "ASSISTANT done",
		"USER " + m.ask("three.md"),
		"USER  DISMISSED TOOL_APPROVAL",
		"USER " + m.say("note-last"), "ASSISTANT note-last",
	}
	read := func(page int) []enginetest.TranscriptEntry {
		t.Helper()
		entries, err := c.Entries(ctx, r.SessionID, page)
		if err != nil {
			t.Fatal(err)
		}
		return entries
	}
	for _, page := range []int{100, 1, 3} {
		entries := read(page)
		if len(entries) != len(want) {
			t.Fatalf("in pages of %d the transcript has %d entries, want %d: %v", page, len(entries), len(want), spell(entries))
		}
		for i, got := range spell(entries) {
			if strings.HasSuffix(want[i], "*") { // words of the harness's own
				if !strings.HasPrefix(got, strings.TrimSuffix(want[i], "*")) {
					t.Fatalf("in pages of %d entry %d is %q, want %q", page, i, got, want[i])
				}
			} else if got != want[i] {
				t.Fatalf("in pages of %d entry %d is %q, want %q", page, i, got, want[i])
			}
		}
	}
	before := spell(read(100))
	engine.Kill()
	if err := engine.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	c = clientOf(t, engine)
	if after := spell(read(100)); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Fatalf("after a restart the transcript is %v, it was %v", after, before)
	}
	if _, err := c.Clear(ctx, r.SessionID); err != nil {
		t.Fatal(err)
	}
	if left := read(100); len(left) != 0 {
		t.Fatalf("after a clear the transcript has %v", spell(left))
	}
}

// spell is what the entries say, one line each.
func spell(entries []enginetest.TranscriptEntry) []string {
	out := make([]string, len(entries))
	for i, e := range entries {
		s := e.Role + " " + e.Text
		if d := e.Decision; d != nil {
			s += " " + d.Interrupt.Status + " " + d.Interrupt.Kind
			for j, call := range d.Calls {
				s += strings.Repeat(",", min(j, 1)) + " " + call.Verdict
				if call.Arguments != nil {
					s += fmt.Sprint(" ", call.Arguments["content"])
				}
				if call.Message != "" {
					s += " " + call.Message
				}
			}
			for _, f := range order {
				if v, ok := d.Form[f.Name]; ok {
					s += fmt.Sprint(" ", v)
				}
			}
		}
		out[i] = s
	}
	return out
}
