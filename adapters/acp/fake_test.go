package acp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// fakeTree starts programs that are functions of this test.
type fakeTree struct {
	mu     sync.Mutex
	starts int
	// program plays the nth process, from 0, until it returns.
	program func(n int, p *program)
}

func (t *fakeTree) Start(ctx context.Context, c worker.Command) (worker.Process, error) {
	t.mu.Lock()
	n := t.starts
	t.starts++
	t.mu.Unlock()
	if c.Path == "missing" {
		return nil, errors.New("no such program")
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &fakeProcess{stdin: inW, stdout: outR, done: make(chan struct{}), killed: make(chan struct{})}
	p.end = func() { _ = inR.Close(); _ = outW.Close() }
	lines := bufio.NewScanner(inR)
	lines.Buffer(nil, maxLine)
	go func() {
		defer close(p.done)
		defer p.end()
		t.program(n, &program{lines: lines, out: outW, killed: p.killed})
	}()
	return p, nil
}

type fakeProcess struct {
	stdin  io.WriteCloser
	stdout io.ReadCloser
	done   chan struct{}
	killed chan struct{}
	once   sync.Once
	end    func()
}

func (p *fakeProcess) Pid() int              { return 1 }
func (p *fakeProcess) Stdin() io.WriteCloser { return p.stdin }
func (p *fakeProcess) Stdout() io.ReadCloser { return p.stdout }
func (p *fakeProcess) StderrTail() string    { return "" }
func (p *fakeProcess) Done() <-chan struct{} { return p.done }
func (p *fakeProcess) Wait() error           { <-p.done; return nil }
func (p *fakeProcess) Kill()                 { p.once.Do(func() { close(p.killed); p.end() }) }

// program is the agent's side of a fake process.
type program struct {
	lines  *bufio.Scanner
	out    io.WriteCloser
	killed <-chan struct{}
}

// next reads the next message; false at the end of input.
func (p *program) next() (message, bool) {
	if !p.lines.Scan() {
		return message{}, false
	}
	var m message
	if err := json.Unmarshal(p.lines.Bytes(), &m); err != nil {
		panic("the driver wrote what is not JSON: " + err.Error())
	}
	return m, true
}

func (p *program) raw(s string) { _, _ = io.WriteString(p.out, s) }

func (p *program) send(format string, args ...any) { p.raw(fmt.Sprintf(format, args...) + "\n") }

func (p *program) result(id json.RawMessage, result string) {
	p.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func (p *program) fail(id json.RawMessage, code int, message, data string) {
	p.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q,"data":%s}}`, id, code, message, data)
}

func (p *program) update(u string) {
	p.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":%s}}`, fakeSession, u)
}

const fakeSession = "native-1"

// serve answers the opening of a session and gives every prompt to play, which answers it.
func (p *program) serve(play func(p *program, prompt message)) {
	for {
		m, ok := p.next()
		if !ok {
			return
		}
		switch m.Method {
		case "initialize":
			p.result(m.ID, `{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"resume":{}}},"agentInfo":{"name":"fake","version":"9.9"}}`)
		case "session/new":
			p.result(m.ID, `{"sessionId":"`+fakeSession+`"}`)
		case "session/prompt":
			play(p, m)
		case "session/cancel":
		default:
			p.result(m.ID, `{}`)
		}
	}
}

// recorder is a sink that judges as the engine does.
type recorder struct {
	mu        sync.Mutex
	validator *event.Validator
	events    []event.Event
	facts     map[string]string
	steps     int
	refuse    func(event.Event) error // an error of the host
	err       error                   // of the validator
}

func newRecorder() *recorder {
	r := &recorder{validator: event.NewValidator(event.Bounds{}), facts: map[string]string{}}
	if _, err := r.validator.Accept(event.Event{Data: event.RunStarted{Harness: "fake", AdapterVersion: "1"}}); err != nil {
		panic(err)
	}
	return r
}

func (r *recorder) Yield(s worker.Step) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps++
	for k, v := range s.Facts {
		r.facts[k] = v
	}
	for _, e := range s.Events {
		if r.refuse != nil {
			if err := r.refuse(e); err != nil {
				return err
			}
		}
		out, err := r.validator.Accept(e)
		if err != nil {
			r.err = err
			return err
		}
		r.events = append(r.events, out...)
	}
	return nil
}

// shapes gives the events as short lines that tests compare.
func (r *recorder) shapes() []string {
	var out []string
	for _, e := range r.events {
		out = append(out, shape(e))
	}
	return out
}

func shape(e event.Event) string {
	raw, err := json.Marshal(e.Data)
	if err != nil {
		panic(err)
	}
	at := ""
	for _, id := range e.Namespace {
		at += id + "/"
	}
	return fmt.Sprintf("%s%s %s", at, e.Type(), raw)
}

func (r *recorder) terminal(t *testing.T) event.Data {
	t.Helper()
	if r.err != nil {
		t.Fatalf("the validator refused an event: %v", r.err)
	}
	if len(r.events) == 0 {
		t.Fatal("no event")
	}
	last := r.events[len(r.events)-1]
	if !last.Type().Terminal() {
		t.Fatalf("the last event is %s", last.Type())
	}
	return last.Data
}

func (r *recorder) text() string {
	s := ""
	for _, e := range r.events {
		if d, ok := e.Data.(event.TextDelta); ok {
			s += d.Delta
		}
	}
	return s
}

func fakeProfile() Profile {
	return Profile{
		Command: func(worker.Environment, harness.Construction) (worker.Command, error) {
			return worker.Command{Path: "fake"}, nil
		},
		Durability: event.DurabilityLocal,
	}
}

// opened gives an open driver whose processes play the program.
func opened(t *testing.T, p Profile, prog func(n int, p *program)) (*Driver, worker.Environment) {
	t.Helper()
	env := worker.Environment{Workspace: t.TempDir(), State: t.TempDir(), Tree: &fakeTree{program: prog}, Log: quiet}
	d := newDriver(p)
	if err := d.Open(t.Context(), env, harness.Construction{}); err != nil {
		t.Fatalf("failed to open: %v", err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Errorf("failed to close: %v", err)
		}
	})
	return d, env
}

func turnOf(text string) harness.Turn { return harness.Turn{RunID: "run_1", Text: text} }
