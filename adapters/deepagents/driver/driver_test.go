package driver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/adapters/acp"
	"github.com/harness-engine/harness-engine/adapters/drivertest"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/internal/fakemodel"
	"github.com/harness-engine/harness-engine/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a driver with the real agent, the real process tree and the fake model.
type rig struct {
	t     *testing.T
	model *fakemodel.Server
	env   worker.Environment
	c     harness.Construction
	d     worker.Driver
}

func newRig(t *testing.T, provider, options string) *rig {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	model := fakemodel.New(fakemodel.Options{})
	// The model proxy has a path for each provider.
	proxy := http.NewServeMux()
	for _, name := range providers {
		proxy.Handle("/"+name+"/", http.StripPrefix("/"+name, model))
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	tree, err := worker.NewProcessTree(worker.TreeOptions{Mark: t.Name(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Errorf("failed to close the process tree: %v", err)
		}
	})
	r := &rig{
		t: t, model: model,
		env: worker.Environment{Workspace: t.TempDir(), State: t.TempDir(), ModelURL: server.URL, Tree: tree, Log: log},
		c: harness.Construction{
			Harness: harness.Default, SystemPrompt: "You are terse.",
			Model: harness.ModelRef{Provider: provider, ID: "fake-model"}, Options: []byte(options),
		},
	}
	r.open()
	t.Cleanup(r.close)
	return r
}

func (r *rig) open() {
	r.t.Helper()
	p := Profile(Options{AgentDir: filepath.Join("..", "..", "..", "worker", "node")})
	p.StartTimeout, p.CancelGrace = 5*time.Minute, time.Minute // a slow machine is no failure, and what obeys is not killed
	r.d = acp.New(p)
	if err := r.d.Open(r.t.Context(), r.env, r.c); err != nil {
		r.t.Fatalf("failed to open (is `npm ci` done in worker/node?): %v", err)
	}
}

func (r *rig) close() {
	if err := r.d.Close(context.Background()); err != nil {
		r.t.Errorf("failed to close: %v", err)
	}
}

// turn runs a turn with a message.
func (r *rig) turn(ctx context.Context, text string, onEvent func(event.Event)) *drivertest.Run {
	r.t.Helper()
	return r.play(ctx, harness.Turn{Text: text}, onEvent)
}

// play runs a turn to its terminal.
func (r *rig) play(ctx context.Context, t harness.Turn, onEvent func(event.Event)) *drivertest.Run {
	r.t.Helper()
	return drivertest.Play(ctx, r.t, r.d, t, onEvent)
}

var providers = []string{"anthropic", "openai"}

func TestOneConversation(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			r := newRig(t, provider, `{"recursionLimit":40}`)

			c := r.turn(t.Context(), "The password is swordfish. [[think]] [[text]]", nil)
			if _, ok := c.Terminal().(event.RunFinished); !ok || c.Text() != "Hello from the fake model." {
				t.Fatalf("%q, %+v", c.Text(), c.Terminal())
			}
			if len(drivertest.Of[event.ReasoningDelta](c)) == 0 {
				t.Error("no reasoning")
			}
			usage := drivertest.Of[event.UsageUpdated](c)
			if len(usage) == 0 || !usage[len(usage)-1].Final || *usage[len(usage)-1].OutputTokens == 0 {
				t.Errorf("usage %+v", usage)
			}
			session := c.Facts["native_session_id"]
			if session == "" {
				t.Error("no native session id")
			}

			c = r.turn(t.Context(), `[[tool write_file {"file_path":"/notes.md","content":"kept words"}]] [[then]] [[tool read_file {"file_path":"/notes.md"}]]`, nil)
			var names []string
			for _, s := range drivertest.Of[event.ToolStarted](c) {
				names = append(names, s.Name)
				if len(s.Arguments) == 0 {
					t.Errorf("%s has no arguments", s.Name)
				}
			}
			if !slices.Equal(names, []string{"write_file", "read_file"}) || len(drivertest.Of[event.ToolFinished](c)) != 2 {
				t.Errorf("tools %v, finished %d", names, len(drivertest.Of[event.ToolFinished](c)))
			}
			if raw, err := os.ReadFile(filepath.Join(r.env.Workspace, "notes.md")); err != nil || string(raw) != "kept words" {
				t.Errorf("file %q, %v", raw, err)
			}

			for status, category := range map[string]event.Category{
				"400": event.CategoryConfiguration, "401": event.CategoryAuthentication, "403": event.CategoryAuthorization,
				"429": event.CategoryThrottled, "500": event.CategoryUnavailable, "529": event.CategoryUnavailable,
			} {
				before := len(r.model.Requests())
				c = r.turn(t.Context(), "[[http "+status+"]]", nil)
				e, ok := c.Terminal().(event.RunError)
				if !ok || e.Category != category {
					t.Errorf("HTTP %s: %+v", status, c.Terminal())
				}
				if n := len(r.model.Requests()) - before; n != 1 {
					t.Errorf("HTTP %s: %d calls of the model", status, n)
				}
			}
			before := len(r.model.Requests())
			c = r.turn(t.Context(), "[[slow 3 1]] [[cut]]", nil)
			if n := len(r.model.Requests()) - before; n != 3 {
				t.Errorf("cut: %d calls of the model", n)
			}
			if e, ok := c.Terminal().(event.RunError); !ok || e.Category != event.CategoryUnavailable || e.Code != "model_stream_cut" {
				t.Errorf("cut: %+v", c.Terminal())
			}

			ctx, cancel := context.WithCancelCause(t.Context())
			c = r.turn(ctx, "[[slow 5 10]] [[hang]]", func(e event.Event) {
				if e.Type() == event.TypeTextDelta {
					cancel(&worker.Cancelled{Reason: event.CancelClientRequest})
				}
			})
			if e, ok := c.Terminal().(event.RunCancelled); !ok || e.Reason != event.CancelClientRequest {
				t.Errorf("cancel: %+v", c.Terminal())
			}

			// Another worker of the same conversation.
			r.close()
			r.open()
			c = r.turn(t.Context(), "[[recall]]", nil)
			if !strings.Contains(c.Text(), "swordfish") {
				t.Errorf("recalled %q", c.Text())
			}
			if c.Facts["native_session_id"] != session {
				t.Errorf("session %q became %q", session, c.Facts["native_session_id"])
			}
			for _, e := range c.Events {
				if d, ok := e.Data.(event.RunFinished); ok && d.Thread.Durability != event.DurabilityLocal {
					t.Errorf("durability %s", d.Thread.Durability)
				}
			}
		})
	}
}

// TestACutAnswerIsAskedForAgain: the half answer is closed, a warning says so, and another message follows.
func TestACutAnswerIsAskedForAgain(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			r := newRig(t, provider, "")
			c := r.turn(t.Context(), "[[slow 2 1]] [[cut 1]] [[text]]", nil)
			var got []string
			for _, e := range c.Events {
				switch d := e.Data.(type) {
				case event.TextStarted, event.TextFinished, event.RunFinished:
					got = append(got, string(e.Type()))
				case event.Warning:
					got = append(got, d.Code)
				}
			}
			want := []string{"text.started", "text.finished", "model_call_retried", "text.started", "text.finished", "run.finished"}
			if !slices.Equal(got, want) {
				t.Errorf("got %v", got)
			}
			if c.Text() != "tick0 tick1 tick0 tick1 Hello from the fake model." {
				t.Errorf("text %q", c.Text())
			}
			if started := drivertest.Of[event.TextStarted](c); len(started) == 2 && started[0].MessageID == started[1].MessageID {
				t.Error("one message id for both")
			}
		})
	}
}

// watchedTree remembers the process that it started last.
type watchedTree struct {
	worker.Tree
	last worker.Process
}

func (w *watchedTree) Start(ctx context.Context, c worker.Command) (worker.Process, error) {
	p, err := w.Tree.Start(ctx, c)
	w.last = p
	return p, err
}

func TestTheAgentIsKilledInMidTurn(t *testing.T) {
	r := newRig(t, "anthropic", "")
	r.close()
	tree := &watchedTree{Tree: r.env.Tree}
	r.env.Tree = tree
	r.open()
	r.turn(t.Context(), "The password is swordfish. [[text]]", nil)
	first := tree.last
	c := r.turn(t.Context(), "[[slow 5 10]] [[hang]]", func(e event.Event) {
		if e.Type() == event.TypeTextDelta {
			first.Kill()
		}
	})
	if e, ok := c.Terminal().(event.RunError); !ok || e.Category != event.CategoryUnavailable || e.Code != "harness_exited" {
		t.Errorf("terminal %+v", c.Terminal())
	}
	c = r.turn(t.Context(), "[[recall]]", nil)
	if !strings.Contains(c.Text(), "swordfish") {
		t.Errorf("recalled %q", c.Text())
	}
	if tree.last == first {
		t.Error("no other process was started")
	}
}

func TestDelegatedAgentsAndThePlan(t *testing.T) {
	r := newRig(t, "anthropic", "")
	c := r.turn(t.Context(), `[[tool task {"description":"say hello","subagent_type":"general-purpose"}]]`, nil)
	entered, exited := drivertest.Of[event.NamespaceEntered](c), drivertest.Of[event.NamespaceExited](c)
	if len(entered) != 1 || len(exited) != 1 || entered[0].ID != exited[0].ID || exited[0].Outcome != "success" {
		t.Fatalf("entered %+v, exited %+v", entered, exited)
	}
	if started := drivertest.Of[event.ToolStarted](c); len(started) != 1 || started[0].ToolCallID != entered[0].ParentToolCallID {
		t.Errorf("tools %+v", started)
	}
	inside := slices.ContainsFunc(c.Events, func(e event.Event) bool {
		return e.Type() == event.TypeTextDelta && slices.Equal(e.Namespace, []string{entered[0].ID})
	})
	if !inside {
		t.Error("no text inside of the namespace")
	}
	c = r.turn(t.Context(), `[[tool write_todos {"todos":[{"content":"look","status":"completed"},{"content":"leap","status":"pending"}]}]]`, nil)
	plan := drivertest.Of[event.PlanUpdated](c)
	if len(plan) != 1 || len(plan[0].Entries) != 2 || plan[0].Entries[1] != (event.PlanEntry{Content: "leap", Status: "pending"}) {
		t.Errorf("plan %+v", plan)
	}
}

func TestBadConstructionIsTold(t *testing.T) {
	for options, field := range map[string]string{
		`{"temperature":9}`:             "temperature",
		`{"thinkingBudgetTokens":2048}`: "thinkingBudgetTokens",
	} {
		r := newRig(t, "openai", "")
		r.close()
		r.c.Options = []byte(options)
		if err := os.RemoveAll(r.env.State); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(r.env.State, 0o700); err != nil {
			t.Fatal(err)
		}
		var f *worker.Failure
		err := New(Options{AgentDir: filepath.Join("..", "..", "..", "worker", "node")}).Open(t.Context(), r.env, r.c)
		if !errors.As(err, &f) || f.Category != event.CategoryConfiguration || !strings.Contains(f.Message, field) {
			t.Errorf("%s: %v", options, err)
		}
	}
}

func TestNotInstalled(t *testing.T) {
	env := worker.Environment{State: t.TempDir(), Workspace: t.TempDir(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	for name, o := range map[string]Options{
		"no agent": {AgentDir: t.TempDir(), NodePath: "/bin/sh"},
		"no node":  {AgentDir: filepath.Join("..", "..", "..", "worker", "node"), NodePath: filepath.Join(t.TempDir(), "node")},
	} {
		var f *worker.Failure
		if err := New(o).Open(t.Context(), env, harness.Construction{}); !errors.As(err, &f) || f.Code != "harness_not_installed" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
