package acp

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

func TestASessionThatIsGone(t *testing.T) {
	for name, prog := range map[string]func(p *program, m message){
		"agent says so": func(p *program, m message) {
			if m.Method == "session/resume" {
				p.fail(m.ID, -32002, "no such session", `null`)
				return
			}
			p.result(m.ID, `{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"resume":{}}}}`)
		},
		"agent cannot resume": func(p *program, m message) { p.result(m.ID, `{"protocolVersion":1}`) },
	} {
		t.Run(name, func(t *testing.T) {
			env := worker.Environment{State: t.TempDir(), Workspace: t.TempDir(), Log: quiet, Tree: &fakeTree{program: func(_ int, p *program) {
				for {
					m, ok := p.next()
					if !ok {
						return
					}
					prog(p, m)
				}
			}}}
			if err := saveSession(env.State, "native-7"); err != nil {
				t.Fatal(err)
			}
			var f *worker.Failure
			err := newDriver(fakeProfile()).Open(t.Context(), env, harness.Construction{})
			if !errors.As(err, &f) || f.Code != codeSessionLost || f.Category != event.CategoryPersistence {
				t.Errorf("open: %v", err)
			}
			if id, _ := loadSession(env.State); id != "native-7" {
				t.Errorf("the stored session became %q", id)
			}
		})
	}
}

func TestOpenFails(t *testing.T) {
	reply := func(result string) func(int, *program) {
		return func(_ int, p *program) {
			for {
				m, ok := p.next()
				if !ok {
					return
				}
				p.result(m.ID, result)
			}
		}
	}
	for name, tc := range map[string]struct {
		path    string
		state   func(folder string)
		program func(int, *program)
		code    string
	}{
		"program missing":     {path: "missing", code: "harness_not_started"},
		"exits at once":       {program: func(int, *program) {}, code: "harness_exited"},
		"silent":              {program: func(_ int, p *program) { <-p.killed }, code: "harness_timeout"},
		"other version":       {program: reply(`{"protocolVersion":2}`), code: "harness_protocol_violation"},
		"not an object":       {program: reply(`"hello"`), code: "harness_protocol_violation"},
		"no session id":       {program: reply(`{"protocolVersion":1}`), code: "harness_protocol_violation"},
		"hostile session id":  {program: reply(`{"protocolVersion":1,"sessionId":"a\u0000b"}`), code: "harness_protocol_violation"},
		"endless line":        {program: func(_ int, p *program) { p.raw(strings.Repeat("x", maxLine+1)) }, code: "harness_protocol_violation"},
		"garbage without end": {program: func(_ int, p *program) { p.raw(strings.Repeat("warning: hi\n", maxGarbage+1)); <-p.killed }, code: "harness_protocol_violation"},
		"damaged state": {
			state: func(folder string) { _ = os.WriteFile(filepath.Join(folder, sessionFile), []byte(`{"sess`), 0o600) },
			code:  "session_not_stored",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := fakeProfile()
			p.StartTimeout = time.Minute
			if tc.code == "harness_timeout" {
				p.StartTimeout = 200 * time.Millisecond
			}
			p.Command = func(worker.Environment, harness.Construction) (worker.Command, error) {
				return worker.Command{Path: tc.path}, nil
			}
			env := worker.Environment{State: t.TempDir(), Log: quiet, Tree: &fakeTree{program: tc.program}}
			if tc.state != nil {
				tc.state(env.State)
			}
			d := newDriver(p)
			var f *worker.Failure
			if err := d.Open(t.Context(), env, harness.Construction{}); !errors.As(err, &f) || f.Code != tc.code {
				t.Errorf("open: %v, want %s", err, tc.code)
			}
			// A turn on a driver that is not open tries again, and ends with the same failure as its terminal.
			r := newRecorder()
			if err := d.Turn(t.Context(), turnOf("hi"), r); err != nil {
				t.Fatal(err)
			}
			if got, ok := r.terminal(t).(event.RunError); !ok || got.Code != tc.code {
				t.Errorf("terminal %+v", r.terminal(t))
			}
			if err := d.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAFewLinesOfGarbageAreTolerated(t *testing.T) {
	d, _ := opened(t, fakeProfile(), func(_ int, p *program) {
		p.serve(func(p *program, m message) {
			p.raw("(node:1) Warning: something\n\n[]\n42\nnull\n{}\n" + `{"jsonrpc":"2.0","id":9999,"result":{}}` + "\n")
			p.update(hello)
			p.result(m.ID, `{"stopReason":"end_turn"}`)
		})
	})
	r := newRecorder()
	if err := d.Turn(t.Context(), turnOf("hi"), r); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.terminal(t).(event.RunFinished); !ok || r.text() != "hello" {
		t.Errorf("events %v", r.shapes())
	}
}

func TestViolationsInMidTurnEndTheProcess(t *testing.T) {
	for name, misbehave := range map[string]func(p *program){
		"endless line": func(p *program) { p.raw(strings.Repeat("x", maxLine+1)) },
		"garbage":      func(p *program) { p.raw(strings.Repeat("?\n", maxGarbage+1)) },
		"malformed updates": func(p *program) {
			for range maxMalformed + 1 {
				p.update(`{"sessionUpdate":7}`)
			}
		},
		"too many open calls": func(p *program) {
			for i := range maxOpenCalls + 1 {
				p.update(`{"sessionUpdate":"tool_call","toolCallId":"` + strings.Repeat("i", i+1) + `","title":"t"}`)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := opened(t, fakeProfile(), func(n int, p *program) {
				p.serve(func(p *program, m message) {
					if n == 0 {
						misbehave(p)
						<-p.killed
						return
					}
					p.result(m.ID, `{"stopReason":"end_turn"}`)
				})
			})
			r := newRecorder()
			if err := d.Turn(t.Context(), turnOf("hi"), r); err != nil {
				t.Fatal(err)
			}
			if got, ok := r.terminal(t).(event.RunError); !ok || got.Category != event.CategoryProtocol {
				t.Errorf("terminal %+v", r.terminal(t))
			}
			after := newRecorder()
			if err := d.Turn(t.Context(), turnOf("again"), after); err != nil {
				t.Fatal(err)
			}
			if _, ok := after.terminal(t).(event.RunFinished); !ok {
				t.Errorf("terminal %+v", after.terminal(t))
			}
		})
	}
}
