package e2e

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// hostile is text that would command a terminal: a colour, the clipboard, and a carriage return (which the engine takes for a line feed).
const hostile = "red\x1b[31m clip\x1b]52;c;eA==\x07 over\rwritten"

func TestChatStreamsARun(t *testing.T) {
	e := sharedEngine(t)
	agent := newAgent(bounded(t), t, clientOf(t, e), scripted)
	s := openTerminal(t, e, []string{"chat", agent.Slug})
	s.say(enginetest.Script(
		enginetest.Reason("Let me look."),
		enginetest.Call("list_files", `{"in": "."}`, "a.txt\nb.txt"),
		enginetest.Step{"plan": []map[string]string{{"content": "look", "status": "completed"}, {"content": "tell", "status": "in_progress"}}},
		enginetest.Say(hostile),
		enginetest.Step{"usage": map[string]any{"input": 120, "output": 30, "final": true}},
	))
	s.expect("Let me look.\n")
	s.expect(`● list_files(in: ".") → a.txt b.txt` + "\n")
	s.expect("✓ look\n")
	s.expect("▸ tell\n")
	s.expect("red␛[31m clip␛]52;c;eA==␇ over\nwritten\n")
	s.expect("120 in · 30 out")
	s.say("//slashed")
	s.expect("/slashed\n")
	s.say("/nonsense")
	s.expect("No such command")
	s.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	if raw := string(s.raw); strings.Contains(raw, "\x1b[31m clip") || strings.Contains(raw, "\x1b]52") || strings.Contains(raw, "\x07") {
		t.Errorf("the model commands the terminal: %q", raw)
	}
}

func TestChatCancels(t *testing.T) {
	e := sharedEngine(t)
	agent := newAgent(bounded(t), t, clientOf(t, e), scripted)
	s := openTerminal(t, e, []string{"chat", agent.Slug})
	s.say(enginetest.Script(enginetest.Say("working"), enginetest.Hang()))
	s.expect("working\n")
	s.typed(ctrlC)
	s.expect("cancelling")
	s.expect("cancelled (client_request)")
	s.say("are you there")
	s.expect("are you there\n")
	s.expect("> ")
	s.typed("given up" + ctrlC)
	s.expect("(Ctrl-D or /quit leaves)")
	s.expect("> ")
	s.typed(ctrlD)
	s.comeBack()
	if code := s.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Ctrl-C cannot cancel while the engine is away; a second one leaves the run, which goes on and is found again.
func TestChatLeavesARunAndComesBack(t *testing.T) {
	e := ownEngine(t)
	agent := newAgent(bounded(t), t, clientOf(t, e), scripted)
	s := openTerminal(t, e, []string{"chat", agent.Slug})
	const n = 30
	s.say(enginetest.Script(enginetest.CountHeld(n, 50*time.Millisecond)))
	s.expect("5 6 7 ")
	e.Kill()
	s.expect("connection lost")
	s.typed(ctrlC)
	s.expect("cancelling")
	s.typed(ctrlC)
	s.expect("left run")
	session := s.comeBack()
	if code := s.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if err := e.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = openTerminal(t, e, []string{"chat", agent.ID, "--resume", session})
	s.expect(`"}}]` + "\n") // what was asked
	text := s.expect("8 9 ") + "8 9 "
	release(t.Context(), t, e, session)
	wantCount(t, text+s.expect("— "), n)
	s.leave()
}

// wantCount fails unless the text, without the program's own notes, is a whole count to n.
func wantCount(t *testing.T, text string, n int) {
	t.Helper()
	var numbers []string
	for l := range strings.Lines(text) {
		if !strings.HasPrefix(l, "(") && !strings.HasPrefix(l, "!") {
			numbers = append(numbers, strings.Fields(l)...)
		}
	}
	if got := strings.Join(numbers, " ") + " "; got != enginetest.Counted(n) {
		t.Errorf("got %q, want %q", got, enginetest.Counted(n))
	}
}

// A chat that loses its engine goes on where it was, also when the engine comes back elsewhere.
func TestChatReconnectsAtItsCursor(t *testing.T) {
	e := ownEngine(t)
	agent := newAgent(bounded(t), t, clientOf(t, e), scripted)
	s := openTerminal(t, e, []string{"chat", agent.Slug})
	const n = 40
	s.say(enginetest.Script(enginetest.CountHeld(n, 50*time.Millisecond)))
	text := s.expect("8 9 ") + "8 9 "
	e.Kill()
	text += s.expect("! connection lost")
	s.expect("\n") // of the reason
	if err := e.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.expect("connected again\n")
	release(t.Context(), t, e, "")
	text += s.expect("— ")
	wantCount(t, text, n)
	s.leave()
}

// SIGTERM and a closed terminal leave the run as it is.
func TestChatLeavesWhenItIsTold(t *testing.T) {
	e := sharedEngine(t)
	ctx := bounded(t)
	c := clientOf(t, e)
	agent := newAgent(ctx, t, c, scripted)
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		s := openTerminal(t, e, []string{"chat", agent.Slug})
		s.say(enginetest.Script(enginetest.Say("working"), enginetest.Hang()))
		s.expect("working\n")
		if err := s.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		s.expect("left run ")
		run := s.expect(" ")
		session := s.comeBack()
		if code := s.code(); code != 0 {
			t.Errorf("%v: exit code %d", signal, code)
		}
		if r, err := c.Run(ctx, run); err != nil || r.Status != "RUNNING" || r.CancelReason != "" || r.SessionID != session {
			t.Errorf("%v: the run is %+v, %v", signal, r, err)
		}
		if _, err := c.Cancel(ctx, run); err != nil {
			t.Error(err)
		}
	}
	// At a prompt, too; and the terminal is as it was before.
	s := openTerminal(t, e, []string{"chat", agent.Slug})
	before := s.before
	s.expect("> ")
	if s.modes() == before {
		t.Error("the terminal is not raw at a prompt")
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := s.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if after := s.modes(); after != before {
		t.Errorf("the terminal's modes are %+v, were %+v", after, before)
	}
}

func TestChatComesBackToWhatWasSaid(t *testing.T) {
	e := sharedEngine(t)
	ctx := bounded(t)
	c := clientOf(t, e)
	agent := newAgent(ctx, t, c, scripted)
	r, _ := complete(ctx, t, c, agent.ID, "kept", "first words")
	s := openTerminal(t, e, []string{"chat", agent.Slug, "--resume", r.SessionID})
	s.expect("> first words\n")
	s.expect("first words\n")
	s.say("second words")
	s.expect("second words\n")
	s.say("/clear")
	s.expect("cleared; the agent remembers nothing (epoch 2)")
	if got := s.leave(); got != r.SessionID {
		t.Errorf("the session is %s, was %s", got, r.SessionID)
	}
	other := newAgent(ctx, t, c, scripted)
	if _, errs, code := piped(t, e, "", "chat", other.Slug, "--resume", r.SessionID); code != 1 || !strings.Contains(errs, "another agent") {
		t.Errorf("another agent's session: %d, %s", code, errs)
	}
	if _, errs, code := piped(t, e, "", "chat", agent.Slug, "--resume", "ses_nothing"); code != 1 || !strings.Contains(errs, "NOT_FOUND") {
		t.Errorf("no session: %d, %s", code, errs)
	}
}

// Two chats of one conversation: the later message follows the earlier.
func TestChatWaitsForTheConversation(t *testing.T) {
	e := sharedEngine(t)
	ctx := bounded(t)
	c := clientOf(t, e)
	agent := newAgent(ctx, t, c, scripted)
	first, _ := complete(ctx, t, c, agent.ID, "shared", "hello")
	s := openTerminal(t, e, []string{"chat", agent.Slug, "--resume", first.SessionID})
	s.expect("> hello\n")
	s.expect("> ")
	start(ctx, t, c, agent.ID, "shared", enginetest.Script(enginetest.CountHeld(20, 50*time.Millisecond)))
	s.typed("my turn" + enter)
	s.expect("at work on another message; yours follows")
	release(ctx, t, e, first.SessionID)
	s.expect(enginetest.Counted(20))
	s.expect("my turn\n")
	s.leave()
}

func TestChatForScripts(t *testing.T) {
	e := sharedEngine(t)
	agent := newAgent(bounded(t), t, clientOf(t, e), scripted)
	for _, tc := range []struct {
		name, input string
		args        []string
		out, errs   string
		code        int
	}{
		{"one message", "", []string{"-m", "hello world"}, "hello world\n", "", 0},
		{"message from the input", "hello\nworld\n", []string{"-m", "-"}, "hello\nworld\n", "", 0},
		{"the answer alone", "", []string{"-m", enginetest.Script(enginetest.Reason("thinking"), enginetest.Call("look", "{}", "seen"), enginetest.Say(hostile))},
			"red␛[31m clip␛]52;c;eA==␇ over\nwritten\n", "thinking\n● look() → seen\n", 0},
		{"failure", "", []string{"-m", enginetest.Script(enginetest.Fail("internal", "broken"))}, "", "✗ broken: The script says so.\n", 3},
		{"lines", "one\n\ntwo\n/quit\nthree\n", nil, "one\n", "", 0},
		{"last line fails", "one\n" + enginetest.Script(enginetest.Fail("internal", "broken")), nil, "✗ broken: The script says so.\n", "", 3},
		{"refused message", "", []string{"-m", ""}, "", "input.message.text", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, errs, code := piped(t, e, tc.input, append([]string{"chat", agent.Slug}, tc.args...)...)
			if !strings.Contains(out, tc.out) || !strings.Contains(errs, tc.errs) || code != tc.code {
				t.Errorf("got %q, %q, exit code %d; want %q, %q, %d", out, errs, code, tc.out, tc.errs, tc.code)
			}
			if strings.Contains(out+errs, "three") || strings.ContainsAny(out+errs, "\x1b\x07\r") {
				t.Errorf("got %q, %q", out, errs)
			}
		})
	}
}

// Ctrl-C of a script's shell cancels the run; the end of the script leaves it.
func TestChatOfAScriptIsSignalled(t *testing.T) {
	e := sharedEngine(t)
	agent := newAgent(bounded(t), t, clientOf(t, e), scripted)
	for signal, want := range map[syscall.Signal]struct {
		code int
		errs string
	}{syscall.SIGINT: {5, "cancelled (client_request)"}, syscall.SIGTERM: {6, "come back with: "}} {
		cmd := e.Command(t.Context(), []string{"chat", agent.Slug, "-m", enginetest.Script(enginetest.Say("working"), enginetest.Hang())})
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, len("working"))); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // its error is the exit code
		if code := cmd.ProcessState.ExitCode(); code != want.code || !strings.Contains(errs.String(), want.errs) {
			t.Errorf("%v: exit code %d, %q", signal, code, errs.String())
		}
	}
}

func TestChatWithoutAnEngine(t *testing.T) {
	e := sharedEngine(t)
	agent := newAgent(bounded(t), t, clientOf(t, e), scripted)
	if _, errs, code := piped(t, e, "", "chat", "no-such-agent"); code != 1 || !strings.Contains(errs, `there is no agent "no-such-agent"`) {
		t.Errorf("no agent: %d, %s", code, errs)
	}
	if _, errs, code := piped(t, e, "", "chat", agent.Slug, "--token", "nonsense"); code != 1 || !strings.Contains(errs, "UNAUTHENTICATED") {
		t.Errorf("bad token: %d, %s", code, errs)
	}
	cmd := e.Command(t.Context(), []string{"chat", agent.Slug})
	cmd.Args[len(cmd.Args)-1] = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no engine runs on") {
		t.Errorf("no engine: %v, %s", err, out)
	}
	if files, err := filepath.Glob(filepath.Join(cmd.Args[len(cmd.Args)-1], "*")); err != nil || len(files) > 0 {
		t.Errorf("left %v, %v", files, err)
	}
}
