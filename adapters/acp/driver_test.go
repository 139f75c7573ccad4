package acp

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/worker"
)

const hello = `{"sessionUpdate":"agent_message_chunk","messageId":"a","content":{"type":"text","text":"hello"}}`

func TestTurnEndsAsTheAgentSays(t *testing.T) {
	for name, tc := range map[string]struct {
		play func(p *program, m message)
		want event.Data
	}{
		"end_turn": {
			func(p *program, m message) { p.result(m.ID, `{"stopReason":"end_turn"}`) },
			event.RunFinished{Outcome: "success", StopReason: "end_turn", Thread: local},
		},
		"max_tokens": {
			func(p *program, m message) { p.result(m.ID, `{"stopReason":"max_tokens"}`) },
			event.RunFinished{Outcome: "success", StopReason: "max_tokens", Thread: local},
		},
		"max_turn_requests": {
			func(p *program, m message) { p.result(m.ID, `{"stopReason":"max_turn_requests"}`) },
			event.RunFinished{Outcome: "success", StopReason: "max_turn_requests", Thread: local},
		},
		"refusal": {
			func(p *program, m message) { p.result(m.ID, `{"stopReason":"refusal"}`) },
			event.RunFinished{Outcome: "success", StopReason: "refusal", Thread: local},
		},
		"cancelled by itself": {
			func(p *program, m message) { p.result(m.ID, `{"stopReason":"cancelled"}`) },
			runError(event.CategoryCancelled, "harness_cancelled", "The harness ended the turn by itself.", false),
		},
		"unknown stop reason": {
			func(p *program, m message) { p.result(m.ID, `{"stopReason":"tired"}`) },
			runError(event.CategoryProtocol, "harness_protocol_violation", "The harness sent what its protocol does not allow.", false),
		},
		"no result": {
			func(p *program, m message) { p.result(m.ID, `[]`) },
			runError(event.CategoryProtocol, "harness_protocol_violation", "The harness sent what its protocol does not allow.", false),
		},
		"error": {
			func(p *program, m message) { p.fail(m.ID, -32603, "secret /srv/path", `{"stack":"secret"}`) },
			runError(event.CategoryInternal, "harness_failed", "The harness failed.", false),
		},
		"no login": {
			func(p *program, m message) { p.fail(m.ID, -32000, "secret", `null`) },
			runError(event.CategoryAuthentication, "harness_login_required", "The harness has no valid login.", false),
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := opened(t, fakeProfile(), func(_ int, p *program) { p.serve(tc.play) })
			r := newRecorder()
			if err := d.Turn(t.Context(), turnOf("hi"), r); err != nil {
				t.Fatal(err)
			}
			if got := r.terminal(t); got != tc.want {
				t.Errorf("terminal %+v, want %+v", got, tc.want)
			}
			if r.facts[FactSessionID] != fakeSession || r.facts[FactAgentVersion] != "9.9" {
				t.Errorf("facts %v", r.facts)
			}
		})
	}
}

var local = event.ThreadState{Durability: event.DurabilityLocal}

func runError(c event.Category, code, message string, retryable bool) event.RunError {
	return event.RunError{Code: code, Message: message, Category: c, Retryable: retryable, SideEffects: event.SideEffectsNone, Thread: local}
}

func TestThePromptIsWhatTheUserSaid(t *testing.T) {
	var got promptParams
	d, _ := opened(t, fakeProfile(), func(_ int, p *program) {
		p.serve(func(p *program, m message) {
			if err := json.Unmarshal(m.Params, &got); err != nil {
				t.Error(err)
			}
			p.update(hello)
			p.result(m.ID, `{"stopReason":"end_turn","usage":{"inputTokens":3,"outputTokens":4,"cachedReadTokens":0}}`)
		})
	})
	r := newRecorder()
	text := "line one\nwith \"quotes\" and 🙂"
	if err := d.Turn(t.Context(), turnOf(text), r); err != nil {
		t.Fatal(err)
	}
	if got.SessionID != fakeSession || len(got.Prompt) != 1 || got.Prompt[0].Text != text {
		t.Errorf("prompt %+v", got)
	}
	want := []string{
		`text.started {"messageId":"run_1-m1","role":"assistant"}`,
		`text.delta {"messageId":"run_1-m1","delta":"hello"}`,
		`usage.updated {"inputTokens":3,"outputTokens":4,"cachedInputTokens":0,"final":true}`,
		`text.finished {"messageId":"run_1-m1"}`,
		`run.finished {"outcome":"success","stopReason":"end_turn","thread":{"durability":"LOCAL"}}`,
	}
	compare(t, r.shapes(), want)
}

func compare(t *testing.T, got, want []string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("events\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestCancelIsObeyed(t *testing.T) {
	for _, answer := range []string{`"result":{"stopReason":"cancelled"}`, `"error":{"code":-32800,"message":"cancelled"}`} {
		d, _ := opened(t, fakeProfile(), func(_ int, p *program) {
			p.serve(func(p *program, m message) {
				p.update(hello)
				for {
					if next, _ := p.next(); next.Method == "session/cancel" {
						p.send(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID, answer)
						return
					}
				}
			})
		})
		for range 2 { // the same process serves the next turn
			ctx, cancel := context.WithCancelCause(t.Context())
			r := newRecorder()
			r.refuse = func(e event.Event) error {
				if e.Type() == event.TypeTextDelta {
					cancel(&worker.Cancelled{Reason: event.CancelSuperseded})
				}
				return nil
			}
			if err := d.Turn(ctx, turnOf("hi"), r); err != nil {
				t.Fatal(err)
			}
			want := event.RunCancelled{Reason: event.CancelSuperseded, SideEffects: event.SideEffectsNone, Thread: local}
			if got := r.terminal(t); got != want {
				t.Errorf("terminal %+v, want %+v", got, want)
			}
		}
		if starts := d.env.Tree.(*fakeTree).starts; starts != 1 {
			t.Errorf("%d processes, want 1", starts)
		}
	}
}

func TestAnAgentThatDoesNotObeyIsKilledAndStartedAgain(t *testing.T) {
	p := fakeProfile()
	p.CancelGrace = 20 * time.Millisecond
	var resumed sync.WaitGroup
	resumed.Add(1)
	d, _ := opened(t, p, func(n int, p *program) {
		p.serve(func(p *program, m message) {
			if n == 0 {
				p.update(hello)
				<-p.killed
				return
			}
			resumed.Done()
			p.result(m.ID, `{"stopReason":"end_turn"}`)
		})
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	r := newRecorder()
	r.refuse = func(e event.Event) error {
		cancel(&worker.Cancelled{Reason: event.CancelDeadline})
		return nil
	}
	if err := d.Turn(ctx, turnOf("hi"), r); err != nil {
		t.Fatal(err)
	}
	if got, ok := r.terminal(t).(event.RunCancelled); !ok || got.Reason != event.CancelDeadline {
		t.Errorf("terminal %+v", r.terminal(t))
	}
	after := newRecorder()
	if err := d.Turn(t.Context(), turnOf("again"), after); err != nil {
		t.Fatal(err)
	}
	resumed.Wait()
	if _, ok := after.terminal(t).(event.RunFinished); !ok {
		t.Errorf("terminal %+v", after.terminal(t))
	}
}

func TestACancelThatComesTooLateLeavesTheAnswer(t *testing.T) {
	d, _ := opened(t, fakeProfile(), func(_ int, p *program) {
		p.serve(func(p *program, m message) {
			p.update(hello)
			if next, _ := p.next(); next.Method == "session/cancel" {
				p.result(m.ID, `{"stopReason":"end_turn"}`)
			}
		})
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	r := newRecorder()
	r.refuse = func(event.Event) error { cancel(&worker.Cancelled{Reason: event.CancelClientRequest}); return nil }
	if err := d.Turn(ctx, turnOf("hi"), r); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.terminal(t).(event.RunFinished); !ok {
		t.Errorf("terminal %+v", r.terminal(t))
	}
}

func TestTheProcessDiesInMidTurn(t *testing.T) {
	d, env := opened(t, fakeProfile(), func(n int, p *program) {
		if n == 0 {
			p.serve(func(p *program, m message) {
				p.update(hello)
				p.update(`{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","name":"x","status":"in_progress","rawInput":{"a":1}}`)
				p.raw(`{"jsonrpc":"2.0","method":"sess`)
				panicked(p)
			})
			return
		}
		for {
			m, ok := p.next()
			switch {
			case !ok:
				return
			case m.Method == "initialize":
				p.result(m.ID, `{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}`)
			case m.Method == "session/load":
				p.update(hello) // the history, which is not of this run
				p.result(m.ID, `{}`)
			case m.Method == "session/prompt":
				p.result(m.ID, `{"stopReason":"end_turn"}`)
			default:
				t.Errorf("unexpected %s", m.Method)
			}
		}
	})
	r := newRecorder()
	if err := d.Turn(t.Context(), turnOf("hi"), r); err != nil {
		t.Fatal(err)
	}
	want := runError(event.CategoryUnavailable, "harness_exited", "The harness process ended.", true)
	want.SideEffects = event.SideEffectsPossible
	if got := r.terminal(t); got != want {
		t.Errorf("terminal %+v, want %+v", got, want)
	}
	after := newRecorder()
	if err := d.Turn(t.Context(), turnOf("again"), after); err != nil {
		t.Fatal(err)
	}
	compare(t, after.shapes(), []string{`run.finished {"outcome":"success","stopReason":"end_turn","thread":{"durability":"LOCAL"}}`})
	if id, err := loadSession(env.State); err != nil || id != fakeSession {
		t.Errorf("stored session %q, %v", id, err)
	}
}

// panicked ends the fake process as a crash does: its output ends in the middle of a line.
func panicked(p *program) { _ = p.out.Close() }

func TestRequestsOfTheAgent(t *testing.T) {
	ask := func(p *program, method, params string) message {
		p.send(`{"jsonrpc":"2.0","id":"q-1","method":%q,"params":%s}`, method, params)
		for {
			if m, ok := p.next(); !ok || string(m.ID) == `"q-1"` {
				return m
			}
		}
	}
	options := `"options":[{"optionId":"y","kind":"allow_once","name":"Yes"},{"optionId":"Y","kind":"allow_always","name":"Always"},{"optionId":"n","kind":"reject_once","name":"No"}]`
	for name, tc := range map[string]struct {
		policy         PermissionPolicy
		method, params string
		result         string
		code           int
	}{
		"reject by default": {nil, "session/request_permission", `{"toolCall":{"toolCallId":"t"},` + options + `}`, `{"outcome":{"outcome":"selected","optionId":"n"}}`, 0},
		"allow once only":   {Allow, "session/request_permission", `{"toolCall":{"toolCallId":"t"},` + options + `}`, `{"outcome":{"outcome":"selected","optionId":"y"}}`, 0},
		"nothing to choose": {nil, "session/request_permission", `{"toolCall":{"toolCallId":"t"},"options":[{"optionId":"Y","kind":"allow_always"}]}`, `{"outcome":{"outcome":"cancelled"}}`, 0},
		"malformed":         {nil, "session/request_permission", `{"toolCall":7}`, ``, codeInvalidParams},
		"read a file":       {nil, "fs/read_text_file", `{"path":"/etc/passwd"}`, ``, codeMethodNotFound},
		"write a file":      {nil, "fs/write_text_file", `{"path":"/x","content":""}`, ``, codeMethodNotFound},
		"run a command":     {nil, "terminal/create", `{"command":"sh"}`, ``, codeMethodNotFound},
		"anything else":     {nil, "no/such", `null`, ``, codeMethodNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			p := fakeProfile()
			p.Permission = tc.policy
			var answer message
			d, _ := opened(t, p, func(_ int, p *program) {
				p.serve(func(p *program, m message) {
					p.update(`{"sessionUpdate":"tool_call","toolCallId":"t","name":"sh","title":"t","status":"pending"}`)
					answer = ask(p, tc.method, tc.params)
					p.update(`{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"failed"}`)
					p.result(m.ID, `{"stopReason":"end_turn"}`)
				})
			})
			r := newRecorder()
			if err := d.Turn(t.Context(), turnOf("hi"), r); err != nil {
				t.Fatal(err)
			}
			r.terminal(t)
			if string(answer.Result) != tc.result {
				t.Errorf("result %s, want %s", answer.Result, tc.result)
			}
			if tc.code != 0 && (answer.Error == nil || answer.Error.Code != tc.code) {
				t.Errorf("error %v, want %d", answer.Error, tc.code)
			}
		})
	}
}

func TestAnErrorOfTheHostEndsTheTurn(t *testing.T) {
	full := errors.New("worker is shutting down")
	d, _ := opened(t, fakeProfile(), func(_ int, p *program) {
		p.serve(func(p *program, m message) {
			p.update(hello)
			if next, _ := p.next(); next.Method != "session/cancel" {
				t.Errorf("unexpected %s", next.Method)
			}
			p.result(m.ID, `{"stopReason":"cancelled"}`)
		})
	})
	r := newRecorder()
	r.refuse = func(event.Event) error { return full }
	if err := d.Turn(t.Context(), turnOf("hi"), r); !errors.Is(err, full) {
		t.Errorf("turn: %v", err)
	}
	if len(r.events) != 0 {
		t.Errorf("events after the refusal: %v", r.shapes())
	}
}

func TestASlowJournalPausesTheAgent(t *testing.T) {
	wrote := make(chan int, 100)
	d, _ := opened(t, fakeProfile(), func(_ int, p *program) {
		p.serve(func(p *program, m message) {
			for i := range 100 {
				p.update(hello)
				wrote <- i
			}
			p.result(m.ID, `{"stopReason":"end_turn"}`)
		})
	})
	release := make(chan struct{})
	blocked := make(chan struct{})
	r := newRecorder()
	var once sync.Once
	r.refuse = func(event.Event) error {
		once.Do(func() { close(blocked); <-release })
		return nil
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Turn(t.Context(), turnOf("hi"), r) }()
	<-blocked
	if n := len(wrote); n > 2 {
		t.Errorf("the agent wrote %d updates while the journal was full", n)
	}
	close(release)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if r.text() != strings.Repeat("hello", 100) {
		t.Errorf("text %q", r.text())
	}
}

func TestUpdatesOutsideOfATurnAndOfOtherSessionsAreNotShown(t *testing.T) {
	d, _ := opened(t, fakeProfile(), func(_ int, p *program) {
		p.serve(func(p *program, m message) {
			p.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"other","update":%s}}`, hello)
			p.send(`{"jsonrpc":"2.0","method":"_vendor/news","params":{"sessionId":"native-1"}}`)
			p.result(m.ID, `{"stopReason":"end_turn"}`)
			p.update(hello)
		})
	})
	for range 3 {
		r := newRecorder()
		if err := d.Turn(t.Context(), turnOf("hi"), r); err != nil {
			t.Fatal(err)
		}
		r.terminal(t)
		if r.facts["acp.other_session"] != "update=1" || r.facts["acp.unknown_notifications"] != "_vendor/news=1" {
			t.Errorf("facts %v", r.facts)
		}
	}
}
