package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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

// move gives the conversation to another worker, which has nothing but what StatePaths name.
func (r *rig) move() {
	r.t.Helper()
	state := drivertest.MoveState(r.t, r.d, r.env.State)
	r.close()
	if err := os.RemoveAll(r.env.State); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Mkdir(r.env.State, 0o700); err != nil { // the test's own cleanup wants it
		r.t.Fatal(err)
	}
	r.env.State = state
	r.open()
}

// interrupted runs a turn that has to end with an interrupt.
func (r *rig) interrupted(turn harness.Turn) (*drivertest.Run, event.InterruptRequested) {
	r.t.Helper()
	c := r.play(r.t.Context(), turn, nil)
	return c, c.Asked()
}

func verdicts(calls []event.ApprovalCall, verdict func(c event.ApprovalCall) harness.CallDecision) harness.Decision {
	var d harness.Decision
	for _, c := range calls {
		v := verdict(c)
		v.ToolCallID = c.ToolCallID
		d.Calls = append(d.Calls, v)
	}
	return d
}

func file(t *testing.T, c event.ApprovalCall) string {
	t.Helper()
	var args struct {
		Path string `json:"file_path"`
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		t.Fatalf("arguments %s: %v", c.Arguments, err)
	}
	return strings.TrimPrefix(args.Path, "/")
}

func (r *rig) files() []string {
	var out []string
	entries, err := os.ReadDir(r.env.Workspace)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestApproveEditRejectOnAnotherHost(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			r := newRig(t, provider, "")
			r.c.Approval = harness.ApproveAlways
			r.move()
			write := func(name string) string {
				return fmt.Sprintf(`[[tool write_file {"file_path":"/%s","content":"%[1]s"}]]`, name)
			}
			first, asked := r.interrupted(harness.Turn{Text: "Remember swordfish. " + write("kept") + write("edited") + write("refused")})
			if asked.Kind != event.InterruptApproval || len(asked.Calls) != 3 {
				t.Fatalf("asked %+v", asked)
			}
			for _, c := range asked.Calls {
				var schema struct {
					Properties map[string]json.RawMessage `json:"properties"`
				}
				if err := json.Unmarshal(c.Schema, &schema); err != nil || schema.Properties["file_path"] == nil {
					t.Errorf("schema %s", c.Schema)
				}
				if !slices.Equal(c.Allowed, []string{"approve", "edit", "reject"}) {
					t.Errorf("allowed %v", c.Allowed)
				}
			}
			if got := r.files(); len(got) > 0 {
				t.Fatalf("files before the decision: %v", got)
			}
			r.move()
			c := r.play(t.Context(), first.Resume(verdicts(asked.Calls, func(c event.ApprovalCall) harness.CallDecision {
				switch file(t, c) {
				case "edited":
					return harness.CallDecision{Verdict: harness.Edit, Arguments: json.RawMessage(`{"file_path":"/other","content":"changed"}`)}
				case "refused":
					return harness.CallDecision{Verdict: harness.Reject, Message: "not now"}
				}
				return harness.CallDecision{Verdict: harness.Approve}
			})), nil)
			if _, ok := c.Terminal().(event.RunFinished); !ok {
				t.Fatalf("ended as %+v", c.Terminal())
			}
			if got := r.files(); !slices.Equal(got, []string{"kept", "other"}) {
				t.Errorf("files %v", got)
			}
			if started, finished, failed := drivertest.Of[event.ToolStarted](c), drivertest.Of[event.ToolFinished](c), drivertest.Of[event.ToolError](c); len(started) != 0 ||
				len(finished) != 2 || len(failed) != 1 || failed[0].Code != "rejected" {
				t.Errorf("started %+v, finished %+v, failed %+v", started, finished, failed)
			}
			if !strings.Contains(c.Text(), "They said: not now") {
				t.Errorf("the model was told %q", c.Text())
			}
			r.move()
			if c = r.turn(t.Context(), "[[recall]]", nil); !strings.Contains(c.Text(), "swordfish") {
				t.Errorf("recalled %q", c.Text())
			}
			if c = r.play(t.Context(), first.Resume(harness.Decision{}), nil); !lost(c) {
				t.Errorf("a decision twice: %+v", c.Terminal())
			}
		})
	}
}

func lost(c *drivertest.Run) bool {
	e, ok := c.Terminal().(event.RunError)
	return ok && e.Code == worker.CodeRunInterruptLost
}

func TestFormAndDelegatedAgentsOnAnotherHost(t *testing.T) {
	r := newRig(t, "openai", "")
	r.c.Approval = harness.ApproveSensitive
	r.move()
	if err := os.WriteFile(filepath.Join(r.env.Workspace, "old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	child := `{"description":"[[tool delete {\"file_path\":\"/old\"}]]","subagent_type":"general-purpose"}`
	form := `{"prompt":"Which?","fields":[{"name":"colour","label":"Colour","kind":"choice","choices":["red","blue"],"required":true},{"name":"n","kind":"number"}]}`
	first, asked := r.interrupted(harness.Turn{Text: "[[tool task " + child + "]] [[tool request_input " + form + "]]"})
	if len(asked.Calls) != 1 || asked.Calls[0].Name != "delete" {
		t.Fatalf("asked %+v", asked)
	}
	entered := drivertest.Of[event.NamespaceEntered](first)
	if len(entered) != 1 {
		t.Fatalf("entered %+v", entered)
	}
	r.move()
	second, asked := r.interrupted(first.Resume(verdicts(asked.Calls, func(event.ApprovalCall) harness.CallDecision {
		return harness.CallDecision{Verdict: harness.Approve}
	})))
	if len(r.files()) > 0 {
		t.Errorf("files %v", r.files())
	}
	if exited := drivertest.Of[event.NamespaceExited](second); len(exited) != 1 || exited[0].ID != entered[0].ID || exited[0].Outcome != "success" {
		t.Errorf("exited %+v", exited)
	}
	want := []event.FormField{
		{Name: "colour", Label: "Colour", Kind: "choice", Choices: []string{"red", "blue"}, Required: true}, {Name: "n", Kind: "number"},
	}
	if asked.Kind != event.InterruptForm || asked.Prompt != "Which?" || fmt.Sprint(asked.Fields) != fmt.Sprint(want) {
		t.Errorf("asked %+v", asked)
	}
	r.move()
	c := r.play(t.Context(), second.Resume(harness.Decision{Form: json.RawMessage(`{"colour":"blue","n":3}`)}), nil)
	if _, ok := c.Terminal().(event.RunFinished); !ok || !strings.Contains(c.Text(), `{"colour":"blue","n":3}`) {
		t.Errorf("%q, ended as %+v", c.Text(), c.Terminal())
	}
}

func TestAnotherMessageInsteadOfADecision(t *testing.T) {
	r := newRig(t, "anthropic", "")
	r.c.Approval = harness.ApproveAlways
	r.move()
	first, _ := r.interrupted(harness.Turn{Text: `The password is swordfish. [[tool write_file {"file_path":"/a","content":"x"}]]`})
	c := r.turn(t.Context(), "[[recall]]", nil)
	if _, ok := c.Terminal().(event.RunFinished); !ok || !strings.Contains(c.Text(), "swordfish") {
		t.Errorf("%q, ended as %+v", c.Text(), c.Terminal())
	}
	// What the agent tells of the call belongs to the run that was interrupted.
	if failed := drivertest.Of[event.ToolError](c); len(failed) > 0 || !strings.Contains(c.Facts["acp.late_updates"], "tool_call=1") {
		t.Errorf("failed %+v, facts %v", failed, c.Facts)
	}
	if got := r.files(); len(got) > 0 {
		t.Errorf("files %v", got)
	}
	if c = r.play(t.Context(), first.Resume(harness.Decision{}), nil); !lost(c) {
		t.Errorf("a late decision: %+v", c.Terminal())
	}
}

func TestAttachmentsReachTheModelAndMove(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			r := newRig(t, provider, "")
			files := []harness.File{
				{Name: "cat.png", MediaType: "image/png", Data: []byte{1, 2, 3}},
				{Name: "notes.md", MediaType: "text/markdown", Data: []byte("the word is swordfish")},
			}
			c := r.play(t.Context(), harness.Turn{Text: "look", Files: files}, nil)
			const seen = "[image/png 3 bytes 039058c6f2c0cb49]"
			if !strings.Contains(c.Text(), "swordfish") || !strings.Contains(c.Text(), seen) {
				t.Errorf("the model saw %q", c.Text())
			}
			r.move()
			c = r.turn(t.Context(), "[[recall]]", nil)
			if !strings.Contains(c.Text(), "swordfish") || !strings.Contains(c.Text(), seen) || !strings.Contains(c.Text(), "notes.md") {
				t.Errorf("recalled %q", c.Text())
			}
		})
	}
}

// TestACancelledTurnLeavesTheStateAtRest compares the state when a cancelled turn has ended with that when the agent has
// ended too, and whatever the turn still did has had its time.
func TestACancelledTurnLeavesTheStateAtRest(t *testing.T) {
	r := newRig(t, "anthropic", "")
	r.turn(t.Context(), "The password is swordfish. [[text]]", nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	child := `{"description":"[[slow 3 5]] [[hang]]","subagent_type":"general-purpose"}`
	r.turn(ctx, "[[tool task "+child+"]] [[tool ls {\"path\":\"/\"}]]", func(e event.Event) {
		if e.Type() == event.TypeTextDelta {
			cancel(&worker.Cancelled{Reason: event.CancelClientRequest})
		}
	})
	before := r.snapshot()
	r.close()
	if after := r.snapshot(); !slices.Equal(before, after) {
		t.Errorf("state when the turn had ended\n%q\nand later\n%q", before, after)
	}
	r.open()
	r.move()
	if c := r.turn(t.Context(), "[[recall]]", nil); !strings.Contains(c.Text(), "swordfish") {
		t.Errorf("recalled %q", c.Text())
	}
}

// snapshot lists the files of the thread with their sizes.
func (r *rig) snapshot() []string {
	r.t.Helper()
	var out []string
	for _, path := range statePaths {
		root := filepath.Join(r.env.State, filepath.FromSlash(path))
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			out = append(out, fmt.Sprintf("%s %d", strings.TrimPrefix(name, r.env.State), info.Size()))
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.t.Fatal(err)
		}
	}
	return out
}
