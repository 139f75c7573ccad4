package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// manner is how one harness is brought to do what a test needs.
type manner struct {
	harness  string
	survives bool     // an interrupt outlives the worker in which it was asked
	verdicts []string // that a call allows
	tool     string   // the one that writes a file
	acts     bool     // the tool really writes; a script only shows calls
	together bool     // calls of one turn are asked about at once

	ask    func(files ...string) string                                   // calls of tool, "kept words" into each file, then a word
	inTurn func(first, second string) string                              // a call of tool, and after it another
	shell  string                                                         // runs a shell command for ten minutes; "" where there is no shell
	form   func(prompt string, fields ...enginetest.FormField) string     // nil: the harness has no forms
	slow   func(note string) string                                       // speaks for long, without an end
	long   func(note string) string                                       // nil is slow; with an end, where a turn that was cancelled is heard with the next one
	say    func(note string) string                                       // says something short
	shown  string                                                         // a message to send files along with
	seen   func(t *testing.T, text string, files []enginetest.Attachment) // fails unless the agent has the files
	recall string                                                         // says what was said in earlier turns
}

// arguments of the tool that writes a file.
func (m manner) arguments(file, content string) json.RawMessage {
	return enginetest.WriteArguments("/"+file, content)
}

// slowPause is the time between two words of a slow turn.
const slowPause = 25 * time.Millisecond

// scriptedManner needs no model.
var scriptedManner = manner{
	harness: scripted, survives: true, verdicts: []string{"approve", "edit", "reject"}, tool: "write_file", together: true,
	ask: func(files ...string) string {
		for i, f := range files {
			files[i] = "/" + f
		}
		return enginetest.Script(enginetest.Ask(files...), enginetest.Say("done"))
	},
	inTurn: func(first, second string) string {
		return enginetest.Script(enginetest.Ask("/"+first), enginetest.Ask("/"+second), enginetest.Say("done"))
	},
	form: func(prompt string, fields ...enginetest.FormField) string {
		return enginetest.Script(enginetest.AskForm(prompt, fields...), enginetest.Say("done"))
	},
	slow: func(note string) string {
		return enginetest.Script(enginetest.Say(note+" "), enginetest.SayOften("word ", 200, slowPause), enginetest.Hang())
	},
	say:    func(note string) string { return enginetest.Script(enginetest.Say(note)) },
	recall: enginetest.Script(enginetest.Recall()),
	shown:  enginetest.Script(enginetest.Say("seen")),
	seen: func(t *testing.T, text string, files []enginetest.Attachment) {
		t.Helper()
		for _, f := range files {
			if want := fmt.Sprintf("%s: %s, %d bytes, sha256 %s", f.Name, f.MediaType, f.Size, f.SHA256); !strings.Contains(text, want) {
				t.Fatalf("the agent says %q, want %q in it", text, want)
			}
		}
	},
}

// deepagentsManner speaks to the fake model in its markers.
var deepagentsManner = manner{
	harness: deepagents, survives: true, verdicts: []string{"approve", "edit", "reject"}, tool: "write_file", acts: true, together: true,
	ask: func(files ...string) string { return modelWrites("write_file", "/", "", files) },
	inTurn: func(first, second string) string {
		return modelWrites("write_file", "/", "[[then]] ", []string{first, second})
	},
	form: func(prompt string, fields ...enginetest.FormField) string {
		raw, err := json.Marshal(struct {
			Prompt string      `json:"prompt"`
			Fields []toolField `json:"fields"`
		}{prompt, toolFields(fields)})
		if err != nil {
			panic(err) // strings always encode
		}
		return fmt.Sprintf("[[tool request_input %s]]", raw)
	},
	slow:   func(note string) string { return note + " [[slow 200 25]] [[hang]]" },
	say:    func(note string) string { return note + " [[text 2]]" },
	recall: "[[recall]]",
	shown:  "Look at these. [[text 2]]",
	seen:   seenByModel,
}

// claudeManner speaks to the fake model too.
var claudeManner = manner{
	harness: claudeAgentSDK, verdicts: []string{"approve", "reject"}, tool: "Write", acts: true,
	ask: func(files ...string) string { return modelWrites("Write", "", "", files) },
	inTurn: func(first, second string) string {
		return modelWrites("Write", "", "[[then]] ", []string{first, second})
	},
	shell:  `[[tool Bash {"command":"sleep 600","description":"wait"}]]`,
	slow:   func(note string) string { return note + " [[slow 200 25]] [[hang]]" },
	long:   func(note string) string { return note + " [[slow 600 25]]" },
	say:    func(note string) string { return note + " [[text 2]]" },
	recall: "[[recall]]",
	shown:  "Look at these. [[text 2]]",
	seen:   seenByModel,
}

// modelWrites has the model call the tool that writes for each file, with something between the calls.
func modelWrites(tool, folder, between string, files []string) string {
	var b strings.Builder
	for i, f := range files {
		if i > 0 {
			b.WriteString(between)
		}
		fmt.Fprintf(&b, "[[tool %s %s]] ", tool, enginetest.WriteArguments(folder+f, "kept words"))
	}
	return b.String()
}

// seenByModel fails unless the fake model has been shown the files: it tells an image by its digest, and a document
// is part of the text.
func seenByModel(t *testing.T, text string, files []enginetest.Attachment) {
	t.Helper()
	for _, f := range files {
		want := f.Name
		if strings.HasPrefix(f.MediaType, "image/") {
			want = fmt.Sprintf("[%s %d bytes %s]", f.MediaType, f.Size, f.SHA256[:16])
		}
		if !strings.Contains(text, want) {
			t.Fatalf("the model says %q, %s is not in it", text, want)
		}
	}
}

// toolField is a field as the model names it; what is empty must be left out.
type toolField struct {
	Name     string   `json:"name"`
	Label    string   `json:"label,omitempty"`
	Kind     string   `json:"kind"`
	Required bool     `json:"required,omitempty"`
	Choices  []string `json:"choices,omitempty"`
}

func toolFields(fields []enginetest.FormField) []toolField {
	out := make([]toolField, len(fields))
	for i, f := range fields {
		out[i] = toolField(f)
	}
	return out
}

// manners are the harnesses of the tests of conversations.
var manners = []manner{scriptedManner, deepagentsManner, claudeManner}

// onEach runs a test on each harness. A nil fit is every one.
func onEach(t *testing.T, fit func(manner) bool, test func(t *testing.T, m manner)) {
	t.Helper()
	for _, m := range manners {
		if fit != nil && !fit(m) {
			continue
		}
		t.Run(m.harness, func(t *testing.T) {
			needHarness(t, m.harness)
			test(t, m)
		})
	}
}

// asking is an agent that asks a person before it writes.
func asking(ctx context.Context, t *testing.T, c *enginetest.Client, harness string, limits *enginetest.Limits) enginetest.Agent {
	t.Helper()
	needHarness(t, harness)
	slug := fmt.Sprintf("asks-%d", names.Add(1))
	a, err := c.Save(ctx, enginetest.SaveInput{Draft: enginetest.Draft{
		Name: slug, Slug: slug, Harness: &enginetest.HarnessChoice{ID: harness},
		Tools: &enginetest.Tools{Approval: "ALWAYS"}, Limits: limits,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// interrupted plays a turn up to its question, and waits until that can be decided.
func interrupted(ctx context.Context, t *testing.T, c *enginetest.Client, agentID, conversation, text string) (enginetest.Run, enginetest.Interrupt) {
	t.Helper()
	r := start(ctx, t, c, agentID, conversation, text)
	return r, awaitQuestion(ctx, t, c, r)
}

// awaitQuestion follows a run to the question that it ends in, and checks that log, run and session say the same of it.
func awaitQuestion(ctx context.Context, t *testing.T, c *enginetest.Client, r enginetest.Run) enginetest.Interrupt {
	t.Helper()
	events, err := c.Follow(ctx, r.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := enginetest.CheckLog(events); err != nil {
		t.Fatal(err)
	}
	asked, end := enginetest.Find(events, enginetest.InterruptRequested), enginetest.Last(events)
	if end.Type != enginetest.RunInterrupted || len(asked) != 1 || asked[0].InterruptID != end.InterruptID {
		t.Fatalf("the run asks %v and ends with %s, want one question and an end that names it; its log: %s", asked, end, events)
	}
	if end.Thread == nil || end.Thread.Durability != "COMMITTED" {
		t.Fatalf("the run ends with %s, want its thread committed", end)
	}
	if asked[0].Deadline == nil || !asked[0].Deadline.After(asked[0].Time) {
		t.Fatalf("the question is %s, want a deadline behind its time", asked[0])
	}
	question := asked[0].Interrupt()
	lapsed := func() bool { return !time.Now().Before(*question.Deadline) } // which is short in some tests, and the machine may be slow
	talk, err := c.AwaitTalk(ctx, r.SessionID, func(t enginetest.Talk) bool { return t.Status == enginetest.SessionInterrupted || lapsed() })
	if err != nil {
		t.Fatal(err)
	}
	if lapsed() {
		return question
	}
	if talk.ActiveRunID != "" || talk.Pending == nil || !same(*talk.Pending, question) {
		t.Fatalf("the session is %+v with %+v, want it to wait for %+v", talk, talk.Pending, question)
	}
	p, err := c.AwaitPlace(ctx, r.ID, func(p enginetest.Place) bool { return p.Status == "INTERRUPTED" })
	if err != nil {
		t.Fatal(err)
	}
	if (p.Interrupt == nil || !same(*p.Interrupt, question)) && !lapsed() {
		t.Fatalf("the run's interrupt is %+v, want %+v", p.Interrupt, question)
	}
	return question
}

// same compares questions whole. Times come in one form, arguments in any order of keys.
func same(a, b enginetest.Interrupt) bool {
	return canonical(a) == canonical(b)
}

func canonical(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return err.Error()
	}
	raw, _ = json.Marshal(prune(tree)) // of what was decoded
	return string(raw)
}

// prune drops empty members, so that an absent list and an empty one are the same.
func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if x = prune(x); x == nil {
				delete(v, k)
			} else {
				v[k] = x
			}
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i := range v {
			v[i] = prune(v[i])
		}
	}
	return v
}

// decide takes a decision, follows the run that goes on to its end, and checks that it goes on from the question.
func decide(ctx context.Context, t *testing.T, c *enginetest.Client, q enginetest.Interrupt, d enginetest.Decision) (enginetest.Run, []enginetest.Event) {
	t.Helper()
	r, err := c.Resume(ctx, q, d)
	if err != nil {
		t.Fatal(err)
	}
	if r == nil || r.ID == q.RunID {
		t.Fatalf("the decision gives the run %+v, want a new one", r)
	}
	events, err := c.Follow(ctx, r.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := enginetest.CheckLog(events); err != nil {
		t.Fatal(err)
	}
	if events[0].Continues != q.RunID {
		t.Fatalf("the run begins with %s, want it to continue %s", events[0], q.RunID)
	}
	settled, err := c.Settled(ctx, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	wantReplays(ctx, t, c, r.ID, events)
	return settled, events
}

// verdict decides each call of a question in the same way.
func verdict(q enginetest.Interrupt, v func(enginetest.ApprovalCall) enginetest.Verdict) enginetest.Decision {
	var d enginetest.Decision
	for _, call := range q.Calls {
		d.Calls = append(d.Calls, enginetest.CallDecision{ToolCallID: call.ToolCallID, Verdict: v(call)})
	}
	return d
}

func approve(enginetest.ApprovalCall) enginetest.Verdict { return enginetest.Verdict{Approve: true} }

func reject(reason string) func(enginetest.ApprovalCall) enginetest.Verdict {
	return func(enginetest.ApprovalCall) enginetest.Verdict {
		return enginetest.Verdict{Reject: &enginetest.Reject{Message: reason}}
	}
}

func edit(arguments json.RawMessage) func(enginetest.ApprovalCall) enginetest.Verdict {
	return func(enginetest.ApprovalCall) enginetest.Verdict {
		return enginetest.Verdict{Edit: &enginetest.Edit{Arguments: arguments}}
	}
}

// wantCallEnded fails unless the events hold one end of the call, of the kind.
func wantCallEnded(t *testing.T, events []enginetest.Event, toolCallID, kind string) enginetest.Event {
	t.Helper()
	var ends []enginetest.Event
	for _, e := range events {
		if e.ToolCallID == toolCallID && (e.Type == enginetest.ToolFinished || e.Type == enginetest.ToolError) {
			ends = append(ends, e)
		}
	}
	if len(ends) != 1 || ends[0].Type != kind {
		t.Fatalf("call %s ends with %v, want one %s", toolCallID, ends, kind)
	}
	return ends[0]
}

// wantFile checks what a tool wrote into the conversation's workspace; "" is no file.
func (m manner) wantFile(t *testing.T, e *enginetest.Engine, sessionID, name, want string) {
	t.Helper()
	if !m.acts {
		return
	}
	var found []string
	err := filepath.WalkDir(e.Data(), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // workers come and go meanwhile
			return nil
		}
		if err == nil && d.Name() == name && strings.Contains(path, sessionID) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	if len(found) > 0 {
		raw, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		got = string(raw)
	}
	if len(found) > 1 || got != want || (len(found) == 0) != (want == "") {
		t.Fatalf("%s is there %d times and holds %q, want %q", name, len(found), got, want)
	}
}

// wantIdle fails unless the conversation waits for nothing.
func wantIdle(ctx context.Context, t *testing.T, c *enginetest.Client, sessionID string) {
	t.Helper()
	talk, err := c.AwaitStatus(ctx, sessionID, enginetest.SessionIdle)
	if err != nil {
		t.Fatal(err)
	}
	if talk.Pending != nil || talk.ActiveRunID != "" || len(talk.Queue) != 0 {
		t.Fatalf("the session is %+v, want it idle", talk)
	}
}

// wantConflict fails unless the error is INTERRUPT_CONFLICT that tells what became of the interrupt.
func wantConflict(t *testing.T, err error, statuses ...string) {
	t.Helper()
	var refused *enginetest.Refusal
	if !errors.As(err, &refused) || refused.Type != "InterruptConflict" || refused.Code != "INTERRUPT_CONFLICT" || !slices.Contains(statuses, refused.Status) {
		t.Fatalf("got %v (%+v), want InterruptConflict with status %v", err, refused, statuses)
	}
}

// wantInterrupt reads what became of a run's interrupt.
func wantInterrupt(ctx context.Context, t *testing.T, c *enginetest.Client, runID, status, continuedBy string) {
	t.Helper()
	p, err := c.Place(ctx, runID)
	if err != nil {
		t.Fatal(err)
	}
	if p.Status != "INTERRUPTED" || p.Interrupt == nil || p.Interrupt.Status != status || p.ContinuedByID != continuedBy {
		t.Fatalf("the run is %+v with interrupt %+v, want it %s and continued by %q", p, p.Interrupt, status, continuedBy)
	}
}
