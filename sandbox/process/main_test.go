package process

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/sandbox"
)

// workerPath is the real harness-worker, built for these tests.
var workerPath string

func TestMain(m *testing.M) {
	if os.Getenv("SANDBOX_TEST_ENGINE") != "" {
		os.Exit(playEngine())
	}
	dir, err := os.MkdirTemp("", "hw")
	if err != nil {
		panic(err)
	}
	workerPath = filepath.Join(dir, "harness-worker")
	build := exec.Command("go", "build", "-o", workerPath, "github.com/harness-engine/harness-engine/cmd/harness-worker")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "failed to build the worker: %v\n%s", err, out)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

var (
	quiet   = slog.New(slog.NewTextHandler(io.Discard, nil))
	binding = harness.Binding{SessionID: "ses_1", Epoch: 1, SandboxGen: 1}
)

func construction(options string) harness.Construction {
	c := harness.Construction{Harness: "scripted", AgentID: "agt_1", AgentVersion: 1}
	if options != "" {
		c.Options = json.RawMessage(options)
	}
	return c
}

// shortDir is a folder whose path leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func newManager(data, workerProgram string, change ...func(*sandbox.Options)) (*sandbox.Manager, *Backend, error) {
	b, err := New(Options{AllowUnisolated: true, Worker: workerProgram})
	if err != nil {
		return nil, nil, err
	}
	o := sandbox.Options{
		Data: data, Backends: map[string]sandbox.Backend{Name: b}, Log: quiet,
		Profiles: []sandbox.Profile{{ID: "default", Backend: Name}},
	}
	for _, f := range change {
		f(&o)
	}
	m, err := sandbox.NewManager(o)
	return m, b, err
}

func manager(t *testing.T, data string, change ...func(*sandbox.Options)) *sandbox.Manager {
	t.Helper()
	m, _, err := newManager(data, workerPath, change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		all, err := m.List(ctx)
		if err != nil {
			t.Error(err)
		}
		for _, addr := range all {
			if err := m.Destroy(ctx, addr, sandbox.AnyLease); err != nil {
				t.Error(err)
			}
		}
	})
	return m
}

func startSandbox(t *testing.T, m *sandbox.Manager, b harness.Binding, lease int64, options string) harness.Runtime {
	t.Helper()
	r, err := m.Start(t.Context(), b, lease, m.Reserve(b), construction(options), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func play(t *testing.T, r harness.Runtime, run, text string) []event.Event {
	t.Helper()
	if err := r.StartTurn(t.Context(), harness.Turn{RunID: run, Text: text}); err != nil {
		t.Fatal(err)
	}
	return readAll(t, r, run, 0)
}

func readAll(t *testing.T, r harness.Runtime, run string, after int64) []event.Event {
	t.Helper()
	s, err := r.Events(t.Context(), run, after)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out []event.Event
	for {
		e, err := s.Next(t.Context())
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Events...)
	}
}

func texts(events []event.Event) string {
	s := ""
	for _, e := range events {
		if d, ok := e.Data.(event.TextDelta); ok {
			s += d.Delta
		}
	}
	return s
}

// longScript takes about a second and has 401 steps and a terminal.
const longScript = `[{"repeat":{"times":100,"steps":[{"text":"ab"},{"delay_ms":10}]}}]`

// playEngine is an engine that starts a sandbox and a run, reports what it reads, and is killed meanwhile.
func playEngine() int {
	ctx := context.Background()
	m, _, err := newManager(os.Getenv("SANDBOX_TEST_ENGINE"), os.Getenv("SANDBOX_TEST_WORKER"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r, err := m.Start(ctx, binding, 1, m.Reserve(binding), construction(""), nil)
	if err == nil {
		err = r.StartTurn(ctx, harness.Turn{RunID: "run_1", Text: longScript})
	}
	var s harness.Stream
	if err == nil {
		s, err = r.Events(ctx, "run_1", 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintln(out, r.Instance())
	for {
		e, err := s.Next(ctx)
		if err != nil {
			return 1
		}
		fmt.Fprintln(out, line(e))
		out.Flush()
	}
}

// line is a step as one line.
func line(e harness.SourceEvent) string {
	s := fmt.Sprint(e.Seq)
	for _, ev := range e.Events {
		raw, err := event.Encode(ev)
		if err != nil {
			return err.Error()
		}
		s += " " + string(raw)
	}
	return s
}
