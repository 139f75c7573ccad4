package driver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/adapters/drivertest"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

func TestOneConversation(t *testing.T) {
	r := newRig(t, harness.ApproveSensitive, "")
	c := r.say("The password is swordfish. [[think]] [[text]]").Finished()
	if c.Text() != "Hello from the fake model." || len(drivertest.Of[event.ReasoningDelta](c)) == 0 {
		t.Errorf("text %q, %d thoughts", c.Text(), len(drivertest.Of[event.ReasoningDelta](c)))
	}
	usage := drivertest.Of[event.UsageUpdated](c)
	if len(usage) == 0 || !usage[len(usage)-1].Final || *usage[len(usage)-1].OutputTokens == 0 {
		t.Errorf("usage %+v", usage)
	}
	session := c.Facts["native_session_id"]

	c = r.say(`[[tool Write {"file_path":"notes.md","content":"kept words"}]] [[then]] [[tool Read {"file_path":"notes.md"}]]`).Finished()
	var names []string
	for _, s := range drivertest.Of[event.ToolStarted](c) {
		names = append(names, s.Name)
	}
	if !slices.Equal(names, []string{"Write", "Read"}) || len(drivertest.Of[event.ToolFinished](c)) != 2 || len(drivertest.Of[event.ToolArgumentsDelta](c)) != 2 {
		t.Errorf("tools %v, events %+v", names, c.Events)
	}
	if raw, err := os.ReadFile(filepath.Join(r.env.Workspace, "notes.md")); err != nil || string(raw) != "kept words" {
		t.Errorf("file %q, %v", raw, err)
	}

	// A message is a message: no command of the harness, and no file of the host.
	for _, text := range []string{"/compact", "/model other", "!ls", "@/etc/passwd what is it", "/usage"} {
		if c = r.say(text).Finished(); !strings.HasSuffix(c.Text(), "You said: "+text) {
			t.Errorf("%q was answered with %q", text, c.Text())
		}
	}
	// The harness calls the model for nothing but the agent's own work, each call once.
	if n := len(r.model.Requests()); n != 9 {
		t.Errorf("%d calls of the model", n)
	}
	for _, req := range r.model.Requests() {
		if req.Model != "claude-sonnet-5-5" || !strings.HasSuffix(req.System, "You are terse.") || slices.Contains(req.Tools, "Bash") || slices.Contains(req.Tools, "WebFetch") {
			t.Errorf("model %s, tools %v", req.Model, req.Tools)
		}
		if strings.Contains(string(req.Body), "root:x:0") {
			t.Error("a file of the host reached the model")
		}
	}
	if c = r.say("[[recall]]").Finished(); !strings.Contains(c.Text(), "swordfish") || c.Facts["native_session_id"] != session {
		t.Errorf("recalled %q in session %s, was %s", c.Text(), c.Facts["native_session_id"], session)
	}
}

func TestErrorsOfTheModel(t *testing.T) {
	r := newRig(t, harness.ApproveSensitive, "")
	for _, tc := range []struct {
		marker   string
		category event.Category
		code     string
		calls    int
	}{
		{"[[http 400]]", event.CategoryConfiguration, "model_request_refused", 1},
		{"[[http 401]]", event.CategoryAuthentication, "model_authentication_failed", 1},
		{"[[http 403]]", event.CategoryAuthorization, "model_access_denied", 1},
		{"[[http 404]]", event.CategoryConfiguration, "model_not_found", 2}, // the harness tries once more without a stream
		{"[[http 413]]", event.CategoryConfiguration, "model_request_too_large", 1},
		{"[[http 429]]", event.CategoryThrottled, "model_throttled", 1},
		{"[[http 500]]", event.CategoryUnavailable, "model_unavailable", 1},
		{"[[http 529]]", event.CategoryUnavailable, "model_unavailable", 1},
		{"[[error]]", event.CategoryUnavailable, "model_unavailable", 1},
		{"[[slow 3 1]] [[cut]]", event.CategoryUnavailable, "model_stream_cut", 1},
	} {
		before := len(r.model.Requests())
		c := r.say(tc.marker)
		if e, ok := c.Terminal().(event.RunError); !ok || e.Category != tc.category || e.Code != tc.code {
			t.Errorf("%s: %+v", tc.marker, c.Terminal())
		}
		if n := len(r.model.Requests()) - before; n != tc.calls {
			t.Errorf("%s: %d calls of the model, want %d", tc.marker, n, tc.calls)
		}
		for _, e := range c.Events { // neither the provider's words nor the endpoint's address
			if raw, _ := json.Marshal(e.Data); strings.Contains(string(raw), "fake error") || strings.Contains(string(raw), "127.0.0.1") {
				t.Errorf("%s shows %s", tc.marker, raw)
			}
		}
		// A message that failed stays in the conversation, and the fake would fail it again.
		r.close()
		r.env.State = t.TempDir()
		r.open()
	}
	if c := r.say("[[text]] [[stop refusal]]").Finished(); c.Terminal().(event.RunFinished).StopReason != "refusal" {
		t.Errorf("refusal: %+v", c.Terminal())
	}
}

func TestOptions(t *testing.T) {
	r := newRig(t, harness.ApproveAlways, `{"tools":["Glob","Bash"],"maxTurns":1,"systemPromptMode":"replace"}`)
	c := r.say(`[[tool Glob {"pattern":"*"}]]`).Finished()
	if c.Terminal().(event.RunFinished).StopReason != "max_turn_requests" {
		t.Errorf("ended as %+v", c.Terminal())
	}
	req := r.model.Requests()[0]
	if !slices.Equal(req.Tools, []string{"Bash", "Glob"}) || strings.Contains(req.System, "software engineering") || !strings.Contains(req.System, "You are terse.") {
		t.Errorf("tools %v, system prompt %q", req.Tools, req.System)
	}
}

func TestAttachments(t *testing.T) {
	r := newRig(t, harness.ApproveSensitive, "")
	image := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\x89\x99=\x1d\x00\x00\x00\x00IEND\xaeB`\x82")
	r.turn(t.Context(), harness.Turn{Text: "[[text]]", Files: []harness.File{
		{Name: "dot.png", MediaType: "image/png", Data: image}, {Name: "list.md", MediaType: "text/markdown", Data: []byte("bring swordfish")},
	}}, nil).Finished()
	body := string(r.model.Requests()[0].Body)
	if !strings.Contains(body, `"media_type":"image/png"`) || !strings.Contains(body, "bring swordfish") {
		t.Errorf("the model got %s", body)
	}
}

func TestCancelInMidTurn(t *testing.T) {
	r := newRig(t, harness.ApproveSensitive, "")
	ctx, cancel := context.WithCancelCause(t.Context())
	c := r.turn(ctx, harness.Turn{Text: "The password is swordfish. [[slow 5 10]] [[hang]]"}, func(e event.Event) {
		if e.Type() == event.TypeTextDelta {
			cancel(&worker.Cancelled{Reason: event.CancelClientRequest})
		}
	})
	if e, ok := c.Terminal().(event.RunCancelled); !ok || e.Reason != event.CancelClientRequest {
		t.Fatalf("ended as %+v", c.Terminal())
	}
	if c = r.say("[[recall]]").Finished(); !strings.Contains(c.Text(), "swordfish") || r.tree.starts != 1 {
		t.Errorf("recalled %q, %d processes", c.Text(), r.tree.starts)
	}
}

// TestNothingIsLeftRunning: the harness's own child and the shell's die with the turn, the process and the driver.
func TestNothingIsLeftRunning(t *testing.T) {
	r := newRig(t, harness.ApproveNever, `{"tools":["Bash"]}`)
	sleep := func(seconds string) string {
		return `[[tool Bash {"command":"touch running; sleep ` + seconds + `","description":"wait"}]]`
	}
	running := func(stop func()) func(event.Event) {
		return func(e event.Event) {
			if e.Type() == event.TypeToolArgumentsDelta {
				go func() {
					for { // the shell says so by a file
						if _, err := os.Stat(filepath.Join(r.env.Workspace, "running")); err == nil {
							stop()
							return
						}
						if t.Context().Err() != nil {
							return
						}
					}
				}()
			}
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	c := r.turn(ctx, harness.Turn{Text: sleep("98765431")}, running(func() { cancel(&worker.Cancelled{Reason: event.CancelClientRequest}) }))
	if _, ok := c.Terminal().(event.RunCancelled); !ok {
		t.Fatalf("ended as %+v", c.Terminal())
	}
	r.gone("sleep 98765431")
	if err := os.Remove(filepath.Join(r.env.Workspace, "running")); err != nil {
		t.Fatal(err)
	}
	bridge := r.tree.last
	c = r.turn(t.Context(), harness.Turn{Text: sleep("98765432")}, running(bridge.Kill))
	c.Failed(event.CategoryUnavailable, "harness_exited")
	if n := r.processes(""); n != 0 {
		t.Errorf("%d processes after the bridge was killed", n)
	}
	r.say("[[text]]").Finished()
	if n := r.processes(""); n < 2 { // the bridge and the native program
		t.Errorf("%d processes of the harness are found", n)
	}
	r.close()
	if n := r.processes(""); n != 0 {
		t.Errorf("%d processes after the driver was closed", n)
	}
}

func TestAConversationMoves(t *testing.T) {
	r := newRig(t, harness.ApproveAlways, "")
	session := r.say("The password is swordfish. [[text]]").Finished().Facts["native_session_id"]
	r.move()
	c := r.say(`[[recall]] [[tool Write {"file_path":"a.md","content":"x"}]]`)
	if !strings.Contains(c.Text(), "swordfish") || c.Facts["native_session_id"] != session {
		t.Errorf("recalled %q in session %s, was %s", c.Text(), c.Facts["native_session_id"], session)
	}
	c.Asked()
	r.move() // with a call that waits, which does not move with it
	if d := r.d.(worker.Parker); d.Parked() {
		t.Error("parked after the move")
	}
	c = r.say("[[recall]]").Finished()
	if !strings.Contains(c.Text(), "swordfish") {
		t.Errorf("recalled %q", c.Text())
	}
	if _, err := os.Stat(filepath.Join(r.env.Workspace, "a.md")); err == nil {
		t.Error("a call that nobody approved has run")
	}
}

func TestASessionThatIsGone(t *testing.T) {
	r := newRig(t, harness.ApproveSensitive, "")
	r.say("[[text]]").Finished()
	r.close()
	if err := os.RemoveAll(filepath.Join(r.env.State, configFolder)); err != nil {
		t.Fatal(err)
	}
	var f *worker.Failure
	err := New(Options{ClaudeDir: claudeDir}).Open(t.Context(), r.env, r.c)
	if !errors.As(err, &f) || f.Code != "native_session_lost" || f.Category != event.CategoryPersistence {
		t.Errorf("open: %v", err)
	}
}

func TestBadConstructions(t *testing.T) {
	installed(t)
	env := worker.Environment{State: t.TempDir(), Workspace: t.TempDir(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	for name, c := range map[string]harness.Construction{
		"provider":      {Model: harness.ModelRef{Provider: "openai", ID: "gpt-5"}},
		"unknown field": {Options: []byte(`{"env":{}}`)},
		"tool":          {Options: []byte(`{"tools":["WebFetch"]}`)},
		"turns":         {Options: []byte(`{"maxTurns":-1}`)},
		"prompt mode":   {Options: []byte(`{"systemPromptMode":"ignore"}`)},
		"not an object": {Options: []byte(`[]`)},
		"two objects":   {Options: []byte(`{} {}`)},
	} {
		var f *worker.Failure
		if err := New(Options{ClaudeDir: claudeDir}).Open(t.Context(), env, c); !errors.As(err, &f) || f.Category != event.CategoryConfiguration || f.Code != "harness_options_invalid" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNotInstalled(t *testing.T) {
	env := worker.Environment{State: t.TempDir(), Workspace: t.TempDir(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	for name, o := range map[string]Options{
		"no bridge": {ClaudeDir: t.TempDir(), NodePath: "/bin/sh"}, "no node": {ClaudeDir: claudeDir, NodePath: filepath.Join(t.TempDir(), "node")},
	} {
		var f *worker.Failure
		if err := New(o).Open(t.Context(), env, harness.Construction{}); !errors.As(err, &f) || f.Code != "harness_not_installed" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
