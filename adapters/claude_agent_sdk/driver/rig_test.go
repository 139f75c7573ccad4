package driver

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
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

var claudeDir = filepath.Join("..", "..", "..", "worker", "node-claude")

// rig is a driver with the real bridge, the real process tree and the fake model.
type rig struct {
	t     *testing.T
	model *fakemodel.Server
	tree  *watchedTree
	env   worker.Environment
	c     harness.Construction
	d     worker.Driver

	mu     sync.Mutex
	astray []string // requests to anything but the model
}

// watchedTree remembers the process that it started last.
type watchedTree struct {
	worker.Tree
	last   worker.Process
	starts int
}

func (w *watchedTree) Start(ctx context.Context, c worker.Command) (worker.Process, error) {
	p, err := w.Tree.Start(ctx, c)
	w.last = p
	w.starts++
	return p, err
}

func installed(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(claudeDir, bridge)); err != nil {
		t.Fatal("the Claude bridge is not installed: run `make node`")
	}
}

// newRig gives a rig; with options it is open.
func newRig(t *testing.T, approval harness.ApprovalPolicy, options string) *rig {
	t.Helper()
	installed(t)
	r := &rig{t: t, model: fakemodel.New(fakemodel.Options{})}
	// The model proxy has a path for each provider.
	proxy := http.NewServeMux()
	proxy.Handle("/anthropic/", http.StripPrefix("/anthropic", r.model))
	proxy.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.astray = append(r.astray, req.Method+" "+req.URL.Path)
		http.NotFound(w, req)
	})
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
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.astray) > 0 {
			t.Errorf("requests to what is not the model: %v", r.astray)
		}
	})
	r.tree = &watchedTree{Tree: tree}
	r.env = worker.Environment{Workspace: t.TempDir(), State: t.TempDir(), ModelURL: server.URL, Tree: r.tree, Log: log}
	r.c = harness.Construction{
		Harness: "claude_agent_sdk", SystemPrompt: "You are terse.", Approval: approval,
		Model: harness.ModelRef{Provider: "anthropic", ID: "claude-sonnet-5-5"}, Options: []byte(options),
	}
	r.open()
	t.Cleanup(r.close)
	return r
}

func (r *rig) open() {
	r.t.Helper()
	p := Profile(Options{ClaudeDir: claudeDir})
	p.StartTimeout, p.CancelGrace = 5*time.Minute, time.Minute // a slow machine is no failure, and what obeys is not killed
	r.d = acp.New(p)
	if err := r.d.Open(r.t.Context(), r.env, r.c); err != nil {
		r.t.Fatalf("failed to open: %v", err)
	}
}

func (r *rig) close() {
	if err := r.d.Close(context.Background()); err != nil {
		r.t.Errorf("failed to close: %v", err)
	}
}

// move gives the conversation to another driver, on another host as it were: nothing is left but what StatePaths name, as
// it was when the turn had ended.
func (r *rig) move() {
	r.t.Helper()
	state := drivertest.MoveState(r.t, r.d, r.env.State)
	r.close()
	if err := os.RemoveAll(r.env.State); err != nil {
		r.t.Fatal(err)
	}
	r.env.State, r.env.Workspace = state, r.t.TempDir()
	r.open()
}

// say runs a turn with a message.
func (r *rig) say(text string) *drivertest.Run {
	r.t.Helper()
	return r.turn(r.t.Context(), harness.Turn{Text: text}, nil)
}

// decide goes on after a run that was interrupted.
func (r *rig) decide(after *drivertest.Run, d harness.Decision) *drivertest.Run {
	r.t.Helper()
	return r.turn(r.t.Context(), after.Resume(d), nil)
}

func (r *rig) turn(ctx context.Context, t harness.Turn, onEvent func(event.Event)) *drivertest.Run {
	r.t.Helper()
	return drivertest.Play(ctx, r.t, r.d, t, onEvent)
}

func all(v harness.Verdict, asked event.InterruptRequested) harness.Decision {
	var d harness.Decision
	for _, c := range asked.Calls {
		d.Calls = append(d.Calls, harness.CallDecision{ToolCallID: c.ToolCallID, Verdict: v})
	}
	return d
}

// processes counts the processes of this machine that the rig's harness has started, or what that has started, and
// whose command line holds the words.
func (r *rig) processes(words string) int {
	r.t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		r.t.Fatal(err)
	}
	n := 0
	for _, f := range folders { // any may have ended
		command, _ := os.ReadFile(filepath.Join(f, "cmdline"))
		environment, _ := os.ReadFile(filepath.Join(f, "environ"))
		if bytes.Contains(environment, []byte(r.env.State)) && bytes.Contains(bytes.ReplaceAll(command, []byte{0}, []byte{' '}), []byte(words)) {
			n++
		}
	}
	return n
}

// gone waits until no process runs the words. The native program kills its shell a moment after it has answered.
func (r *rig) gone(words string) {
	r.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	patience := time.After(time.Minute)
	for r.processes(words) > 0 {
		select {
		case <-tick.C:
		case <-patience:
			r.t.Fatalf("%d processes still run %q", r.processes(words), words)
		}
	}
}
