package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/internal/client"
)

// sensitive asks for a word on two calls; the second one can only be approved or rejected.
func sensitive() string {
	return enginetest.Script(
		enginetest.Say("before"),
		enginetest.Step{"approval": map[string]any{"prompt": "Shall I?", "calls": []map[string]any{
			{"name": "send", "arguments": map[string]string{"to": "alice"}, "result": "sent"},
			{"name": "wipe", "arguments": map[string]string{"what": hostile}, "allowed": []string{"approve", "reject"}, "result": "wiped"},
		}}},
		enginetest.Say("after"),
	)
}

func TestChatAsksForApproval(t *testing.T) {
	e := sharedEngine(t)
	agent := newAgent(bounded(t), t, clientOf(t, e), scripted)
	for _, tc := range []struct {
		name    string
		env     []string
		answers []string // in turn
		expect  []string
	}{
		{"approve both", nil, []string{"a", "approve"}, []string{"● send → sent", "● wipe → wiped", "after"}},
		{"approve all", nil, []string{"all"}, []string{"● send → sent", "● wipe → wiped", "after"}},
		{"an answer that is none", nil, []string{"perhaps", "a", "e", "y"}, []string{"● send → sent", "● wipe → wiped", "after"}},
		{"edit in place", nil, []string{`e {"to": "bob"}`, "r not on my disk"},
			[]string{`● send → sent arguments: {"to":"bob"}`, "● wipe → ERROR rejected: not on my disk", "after"}},
		{"edit in the editor", []string{"EDITOR=sed -i s/alice/carol/"}, []string{"e", "a"},
			[]string{`● send → sent arguments: {"to":"carol"}`, "● wipe → wiped", "after"}},
		{"an editor that changes nothing", []string{"VISUAL=true", "EDITOR=false"}, []string{"e", "a", "a"}, []string{"● send → sent", "after"}},
		{"edit to no object", nil, []string{"e [1]", "a", "a"}, []string{"● send → sent", "after"}},
		{"dismiss", nil, []string{"d"}, []string{"given up"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := openTerminal(t, e, []string{"chat", agent.Slug}, tc.env...)
			s.say(sensitive())
			s.expect("before\n")
			s.expect("Shall I?\n")
			s.expect("● send (1 of 2)\n")
			s.expect(`"to": "alice"`)
			s.expect("● wipe (2 of 2)\n")
			for _, a := range tc.answers {
				s.reply(a)
			}
			for _, want := range tc.expect {
				s.expect(want)
			}
			s.say("still there")
			s.expect("still there\n")
			s.leave()
		})
	}
}

// What is asked waits for the person through leaving, and through the engine's end.
func TestChatDecidesLater(t *testing.T) {
	e := ownEngine(t)
	agent := newAgent(bounded(t), t, clientOf(t, e), scripted)
	s := openTerminal(t, e, []string{"chat", agent.Slug})
	s.say(sensitive())
	s.expect("Shall I?\n")
	s.expect("? ")
	s.typed(ctrlC)
	s.expect("It waits")
	session := s.leave()
	e.Kill()
	if err := e.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = openTerminal(t, e, []string{"chat", agent.Slug, "--resume", session})
	s.expect("before\n")
	s.expect("Shall I?\n")
	s.reply("a")
	s.expect("? ")
	s.typed("r" + enter)
	s.expect("why? (may be empty) ")
	s.typed("too early" + enter)
	s.expect("● send → sent\n")
	s.expect("● wipe → ERROR rejected: too early\n")
	s.expect("after\n")
	s.leave()
	s = openTerminal(t, e, []string{"chat", agent.Slug, "--resume", session})
	s.expect("> (approve send; reject wipe: too early)\n")
	s.expect("after\n")
	s.leave()
}

func TestChatAsksForValues(t *testing.T) {
	e := sharedEngine(t)
	agent := newAgent(bounded(t), t, clientOf(t, e), scripted)
	form := enginetest.Script(enginetest.AskForm("Who are you?",
		enginetest.FormField{Name: "name", Label: "Your name", Kind: "string", Required: true},
		enginetest.FormField{Name: "age", Kind: "number"},
		enginetest.FormField{Name: "ok", Kind: "boolean", Required: true},
		enginetest.FormField{Name: "colour", Kind: "choice", Choices: []string{"red", "blue"}},
	), enginetest.Say("thanks"))
	s := openTerminal(t, e, []string{"chat", agent.Slug})
	s.say(form)
	s.expect("Who are you?\n")
	s.expect("Your name (string)\n")
	s.reply("")
	s.expect("a value is needed\n")
	s.reply("Ada Lovelace")
	s.expect("age (number, may be empty)\n")
	s.reply("old")
	s.expect(`"old" is no number`)
	s.reply("36.50")
	s.expect("ok (boolean)\n")
	s.reply("maybe")
	s.expect("please answer yes or no\n")
	s.reply("yes")
	s.expect("colour (choice, may be empty)\n")
	s.expect("1. red\n")
	s.expect("2. blue\n")
	s.reply("3")
	s.expect("one of the choices")
	s.reply("2")
	for _, want := range []string{"Ada Lovelace", "36.50", "true", "blue", "thanks"} {
		s.expect(want)
	}
	s.say(form)
	s.expect("Your name (string)\n")
	s.reply("/dismiss")
	s.expect("given up\n")
	s.leave()
}

// A question that somebody else answers meanwhile is not answered twice.
func TestChatFindsAQuestionAnswered(t *testing.T) {
	e := sharedEngine(t)
	ctx := bounded(t)
	c := clientOf(t, e)
	agent := newAgent(ctx, t, c, scripted)
	first, _ := complete(ctx, t, c, agent.ID, "answered", "hello")
	s := openTerminal(t, e, []string{"chat", agent.Slug, "--resume", first.SessionID})
	s.expect("> hello\n")
	s.say(sensitive())
	s.expect("Shall I?\n")
	s.expect("? ")
	pending := awaitPending(ctx, t, c, first.SessionID)
	var d client.Decision
	for _, call := range pending.Calls {
		d.Calls = append(d.Calls, client.CallDecision{ToolCallID: call.ToolCallID, Verdict: client.Verdict{Approve: true}})
	}
	if _, err := c.Resume(ctx, pending, d); err != nil {
		t.Fatal(err)
	}
	s.typed("r no" + enter)
	s.reply("r no")
	s.expect("INTERRUPT_CONFLICT")
	s.say("go on")
	s.expect("go on\n")
	s.leave()
}

// awaitPending waits until the session waits for a decision.
func awaitPending(ctx context.Context, t *testing.T, c *enginetest.Client, session string) client.Interrupt {
	t.Helper()
	talk, err := c.AwaitStatus(ctx, session, enginetest.SessionInterrupted)
	if err != nil || talk.Pending == nil {
		t.Fatalf("got %+v, %v", talk, err)
	}
	if _, err := c.Settled(ctx, talk.Pending.RunID); err != nil {
		t.Fatal(err)
	}
	return *talk.Pending
}

func TestChatQuestionsForScripts(t *testing.T) {
	e := sharedEngine(t)
	agent := newAgent(bounded(t), t, clientOf(t, e), scripted)
	out, errs, code := piped(t, e, "", "chat", agent.Slug, "-m", sensitive())
	if code != 4 || out != "before\n" || !strings.Contains(errs, "● wipe (2 of 2)") || !strings.Contains(errs, "Decide it with: harness-engine chat "+agent.Slug+" --resume ses_") {
		t.Errorf("one message: %d, %q, %q", code, out, errs)
	}
	_, session, _ := strings.Cut(errs, "--resume ")
	session, _, _ = strings.Cut(session, " ")
	if out, _, code = piped(t, e, "a\nr never\n", "chat", agent.Slug, "--resume", session); code != 0 || !strings.Contains(out, "● wipe → ERROR rejected: never\nafter\n") {
		t.Errorf("answers: %d, %q", code, out)
	}
	if out, _, code = piped(t, e, sensitive()+"\na\n", "chat", agent.Slug); code != 4 {
		t.Errorf("too few answers: %d, %q", code, out)
	}
}

func TestChatAttachesFiles(t *testing.T) {
	e := sharedEngine(t)
	agent := newAgent(bounded(t), t, clientOf(t, e), scripted)
	dir := t.TempDir()
	note, binary := filepath.Join(dir, "note.md"), filepath.Join(dir, "program")
	if err := os.WriteFile(note, []byte("# Words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, []byte("\x7fELF\x00\x01"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openTerminal(t, e, []string{"chat", agent.Slug, "--attach", note})
	s.expect("attached note.md (text/markdown, 8 bytes)\n")
	s.say("what is this")
	s.expect("note.md")
	s.expect("text/markdown")
	s.say("/attach " + binary)
	s.expect("✗ failed to attach")
	s.say("/attach " + filepath.Join(dir, "nothing"))
	s.expect("no such file")
	s.say("nothing was attached")
	if got := s.expect("> "); strings.Contains(got, "note.md") {
		t.Errorf("the file goes with a second message: %q", got)
	}
	s.typed("/quit" + enter)
	s.code()
	if _, errs, code := piped(t, e, "", "chat", agent.Slug, "-m", "hello", "--attach", binary); code != 1 || !strings.Contains(errs, "failed to attach") {
		t.Errorf("refused file: %d, %q", code, errs)
	}
}

func TestDoctor(t *testing.T) {
	e := sharedEngine(t)
	type report struct {
		OK       bool
		Findings []struct{ Check, Result, Detail, Help string }
	}
	ask := func(t *testing.T, args ...string) (r report, code int) {
		t.Helper()
		out, errs, code := piped(t, e, "", append([]string{"doctor", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%v: %s%s", err, out, errs)
		}
		return r, code
	}
	result := func(r report, check string) string {
		for _, f := range r.Findings {
			if f.Check == check {
				return f.Result
			}
		}
		return ""
	}
	node := programs(t).NodeDir
	r, code := ask(t, "--node-dir", node)
	for _, check := range []string{"worker program", "Node", "packages node", "harness scripted", "harness deepagents", "engine", "OpenFGA", "socket paths", "data folder"} {
		if got := result(r, check); got != "ok" {
			t.Errorf("%s is %q: %+v", check, got, r.Findings)
		}
	}
	if !r.OK || code != 0 || result(r, "model keys") != "note" {
		t.Errorf("healthy: exit code %d, %+v", code, r)
	}
	if r, code = ask(t, "--node-dir", t.TempDir()); r.OK || code != 1 || result(r, "harness deepagents") != "missing" {
		t.Errorf("without agents: exit code %d, %+v", code, r)
	}
	if r, code = ask(t, "--node-dir", node, "--openfga-url", "http://127.0.0.1:1"); r.OK || code != 1 || result(r, "OpenFGA") != "missing" {
		t.Errorf("without OpenFGA: exit code %d, %+v", code, r)
	}
}
