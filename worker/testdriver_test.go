package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// testDriver is a driver made of functions; nil ones do nothing.
type testDriver struct {
	open  func(ctx context.Context, env Environment, c harness.Construction) error
	turn  func(ctx context.Context, t harness.Turn, sink Sink) error
	close func(ctx context.Context) error
}

func (d *testDriver) Open(ctx context.Context, env Environment, c harness.Construction) error {
	if d.open == nil {
		return nil
	}
	return d.open(ctx, env, c)
}

func (d *testDriver) Turn(ctx context.Context, t harness.Turn, sink Sink) error {
	return d.turn(ctx, t, sink)
}

func (d *testDriver) Close(ctx context.Context) error {
	if d.close == nil {
		return nil
	}
	return d.close(ctx)
}

const testSecret = "a test's secret"

var testBinding = harness.Binding{SessionID: "ses_1", Epoch: 1, SandboxGen: 1}

// testWorker is a host with its server on a real socket.
type testWorker struct {
	host   *Host
	socket string
}

func newWorker(t *testing.T, d Driver, change ...func(*HostOptions)) *testWorker {
	t.Helper()
	dir, err := os.MkdirTemp("", "w") // short: a socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	o := HostOptions{
		Drivers: map[string]func() Driver{"test": func() Driver { return d }}, Mark: t.Name(), Log: quiet,
		Workspace: dir, State: dir,
	}
	for _, f := range change {
		f(&o)
	}
	h, err := NewHost(o)
	if err != nil {
		t.Fatal(err)
	}
	w := &testWorker{host: h, socket: filepath.Join(dir, "s")}
	l, err := Listen(w.socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- NewServer(h, testSecret, quiet).Serve(l) }()
	t.Cleanup(func() {
		h.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(w.socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	})
	return w
}

func (w *testWorker) options() ClientOptions {
	return ClientOptions{Socket: w.socket, Secret: testSecret, Binding: testBinding, LeaseGen: 1, Isolation: event.IsolationNone}
}

func (w *testWorker) dial(t *testing.T, change ...func(*ClientOptions)) *Client {
	t.Helper()
	o := w.options()
	for _, f := range change {
		f(&o)
	}
	c, err := Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// bound returns a client that has bound the worker.
func (w *testWorker) bound(t *testing.T, limits ...Limits) *Client {
	t.Helper()
	c := w.dial(t)
	if err := c.Bind(t.Context(), bindRequest(limits...)); err != nil {
		t.Fatal(err)
	}
	return c
}

func bindRequest(limits ...Limits) BindRequest {
	r := BindRequest{Construction: &harness.Construction{Harness: "test", AgentID: "agt_1", AgentVersion: 1, Options: json.RawMessage(`{"a":1}`)}}
	for _, l := range limits {
		r.Limits = l
	}
	return r
}

func lease(n int64) func(*ClientOptions) { return func(o *ClientOptions) { o.LeaseGen = n } }

func startTurn(t *testing.T, c *Client, run, text string) {
	t.Helper()
	if err := c.StartTurn(t.Context(), harness.Turn{RunID: run, Text: text, Capability: "cap"}); err != nil {
		t.Fatal(err)
	}
}

func openEvents(t *testing.T, c *Client, run string, after int64) harness.Stream {
	t.Helper()
	s, err := c.Events(t.Context(), run, after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// drain reads a run from a number to its end.
func drain(t *testing.T, c *Client, run string, after int64) []harness.SourceEvent {
	t.Helper()
	s := openEvents(t, c, run, after)
	var out []harness.SourceEvent
	for {
		e, err := s.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("after %d steps: %v", len(out), err)
		}
		out = append(out, e)
	}
}

// show writes steps in a short form: "1[text.started text.delta] 2[]".
func show(steps []harness.SourceEvent) string {
	var b strings.Builder
	for i, s := range steps {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d[", s.Seq)
		for j, e := range s.Events {
			if j > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(string(e.Type()))
		}
		b.WriteByte(']')
	}
	return b.String()
}

// last is the last event, which must be the only terminal.
func last(t *testing.T, steps []harness.SourceEvent) event.Data {
	t.Helper()
	var all []event.Event
	for _, s := range steps {
		all = append(all, s.Events...)
	}
	if len(all) == 0 {
		t.Fatal("no events")
	}
	if i := slices.IndexFunc(all, func(e event.Event) bool { return e.Type().Terminal() }); i != len(all)-1 {
		t.Fatalf("terminal is event %d of %d", i+1, len(all))
	}
	return all[len(all)-1].Data
}

func yield(sink Sink, data ...event.Data) error {
	s := Step{}
	for _, d := range data {
		s.Events = append(s.Events, event.Event{Data: d})
	}
	return sink.Yield(s)
}

func finished() event.Data { return event.RunFinished{Outcome: "success", StopReason: "end_turn"} }

// echo is a turn of four steps.
func echo(_ context.Context, t harness.Turn, sink Sink) error {
	return errors.Join(
		yield(sink, event.TextStarted{MessageID: "m", Role: "assistant"}),
		yield(sink, event.TextDelta{MessageID: "m", Delta: t.Text}),
		yield(sink),
		yield(sink, finished()),
	)
}

const echoShape = "1[text.started] 2[text.delta] 3[] 4[text.finished run.finished]"

// untilCancelled blocks as a driver does that obeys a cancel.
func untilCancelled(ctx context.Context, _ harness.Turn, _ Sink) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// eventually polls for a state that another process or goroutine brings about, where nothing can be waited on.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func newLines(s string) *bufio.Reader { return bufio.NewReaderSize(strings.NewReader(s), 64<<10) }
