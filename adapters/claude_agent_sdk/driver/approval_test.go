package driver

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/adapters/acp"
	"github.com/harness-engine/harness-engine/adapters/drivertest"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

func TestApproval(t *testing.T) {
	r := newRig(t, harness.ApproveAlways, "")
	write := func(name string) string {
		return fmt.Sprintf(`[[tool Write {"file_path":%q,"content":"x"}]] [[then]] [[text]]`, name)
	}
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(r.env.Workspace, name))
		return err == nil
	}
	c := r.say(write("yes.md"))
	asked := c.Asked()
	if len(asked.Calls) != 1 || asked.Calls[0].Name != "Write" || strings.Join(asked.Calls[0].Allowed, " ") != "approve reject" ||
		!strings.Contains(string(asked.Calls[0].Arguments), "yes.md") {
		t.Fatalf("asked %+v", asked)
	}
	if exists("yes.md") || !r.d.(worker.Parker).Parked() {
		t.Fatal("the call did not wait")
	}
	c = r.decide(c, all(harness.Approve, asked)).Finished()
	if len(drivertest.Of[event.ToolStarted](c)) != 0 || len(drivertest.Of[event.ToolFinished](c)) != 1 || c.Text() != "Hello from the fake model." || !exists("yes.md") {
		t.Errorf("approved: %+v", c.Events)
	}

	c = r.say(write("no.md"))
	c = r.decide(c, all(harness.Reject, c.Asked())).Finished()
	failures := drivertest.Of[event.ToolError](c)
	if len(failures) != 1 || failures[0].Code != worker.CodeRejected || len(drivertest.Of[event.ToolFinished](c)) != 0 || exists("no.md") {
		t.Errorf("rejected: %+v", c.Events)
	}
	if c.Text() != "Hello from the fake model." {
		t.Errorf("the turn did not go on: %q", c.Text())
	}

	// Two calls at once: the harness asks for one after the other.
	c = r.say(`[[tool Write {"file_path":"1.md","content":"x"}]] [[tool Write {"file_path":"2.md","content":"x"}]]`)
	for n := range 2 {
		if asked := c.Asked(); len(asked.Calls) != 1 {
			t.Fatalf("asked %d: %+v", n, asked)
		}
		c = r.decide(c, all(harness.Approve, c.Asked()))
	}
	if c.Finished(); !exists("1.md") || !exists("2.md") {
		t.Error("not both calls have run")
	}

	// A message instead of a decision: the call is dropped, and the conversation goes on.
	r.say(write("never.md")).Asked()
	c = r.say("[[text]]").Finished()
	if exists("never.md") || c.Text() != "Hello from the fake model." || len(drivertest.Of[event.ToolStarted](c)) != 0 || r.tree.starts != 1 {
		t.Errorf("superseded: %+v, %d processes", c.Events, r.tree.starts)
	}
}

func TestAForm(t *testing.T) {
	r := newRig(t, harness.ApproveSensitive, "")
	c := r.say(`[[tool AskUserQuestion {"questions":[{"question":"Which colour?","header":"Colour","multiSelect":false,` +
		`"options":[{"label":"Red","description":"warm"},{"label":"Blue","description":"cold"}]},` +
		`{"question":"Which extras?","header":"Extras","multiSelect":true,"options":[{"label":"A","description":"a"},{"label":"B","description":"b"}]}]}]]`)
	asked := c.Asked()
	kinds := ""
	for _, f := range asked.Fields {
		kinds += f.Name + ":" + f.Kind + " "
	}
	if asked.Kind != event.InterruptForm || kinds != "question_0:choice question_0_custom:string question_1.1:boolean question_1.2:boolean question_1_custom:string " {
		t.Fatalf("asked %+v", asked)
	}
	c = r.decide(c, harness.Decision{Form: json.RawMessage(`{"question_0":"Blue","question_1.1":true,"question_1.2":true}`)}).Finished()
	requests := r.model.Requests()
	results := strings.Join(requests[len(requests)-1].ToolResults, "\n")
	if !strings.Contains(results, "Blue") || !strings.Contains(results, "A, B") || len(drivertest.Of[event.ToolFinished](c)) != 1 {
		t.Errorf("the model got %q; events %+v", results, c.Events)
	}
}

// TestAKilledProcessLosesWhatWaits, says so, and the conversation goes on.
func TestAKilledProcessLosesWhatWaits(t *testing.T) {
	r := newRig(t, harness.ApproveAlways, "")
	r.say("The password is swordfish. [[text]]").Finished()
	c := r.say(`[[tool Write {"file_path":"a.md","content":"x"}]]`)
	asked := c.Asked()
	r.tree.last.Kill()
	<-r.tree.last.Done()
	c = r.decide(c, all(harness.Approve, asked))
	c.Failed(event.CategoryUnavailable, worker.CodeRunInterruptLost)
	if e := drivertest.Of[event.ToolError](c); len(e) != 1 || e[0].Code != event.CodeRunEnded {
		t.Errorf("the call ended as %+v", e)
	}
	c = r.say("[[recall]]").Finished()
	if !strings.Contains(c.Text(), "swordfish") {
		t.Errorf("recalled %q", c.Text())
	}
	if _, err := os.Stat(filepath.Join(r.env.Workspace, "a.md")); err == nil {
		t.Error("the lost call has run")
	}
}

// TestPolicies with the real harness: what asks, what runs, and what never does.
func TestPolicies(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.md")
	for policy, asks := range map[harness.ApprovalPolicy]string{
		harness.ApproveNever: "", harness.ApproveSensitive: "Bash", harness.ApproveAlways: "Write Bash",
	} {
		t.Run(string(policy), func(t *testing.T) {
			r := newRig(t, policy, `{"tools":["Read","Write","Bash"]}`)
			if err := os.Symlink(filepath.Dir(outside), filepath.Join(r.env.Workspace, "link")); err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, call := range []string{`Read {"file_path":"a.md"}`, `Write {"file_path":"a.md","content":"x"}`, `Bash {"command":"touch b.md","description":"d"}`} {
				c := r.say("[[tool " + call + "]] [[then]] [[text]]")
				if _, waits := c.Terminal().(event.RunInterrupted); waits {
					got = strings.TrimSpace(got + " " + c.Asked().Calls[0].Name)
					c = r.decide(c, all(harness.Approve, c.Asked()))
				}
				c.Finished()
			}
			if got != asks {
				t.Errorf("asked for %q, want %q", got, asks)
			}
			for _, name := range []string{"a.md", "b.md"} {
				if _, err := os.Stat(filepath.Join(r.env.Workspace, name)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			for _, path := range []string{outside, "link/outside.md", "../outside.md"} {
				c := r.say(fmt.Sprintf(`[[tool Write {"file_path":%q,"content":"x"}]] [[tool Read {"file_path":"/etc/hostname"}]] [[then]] [[text]]`, path)).Finished()
				if len(drivertest.Of[event.ToolFinished](c)) != 0 || len(drivertest.Of[event.ToolError](c)) != 2 {
					t.Errorf("%s: %+v", path, c.Events)
				}
			}
			if _, err := os.Stat(outside); err == nil {
				t.Error("a file outside of the workspace was written")
			}
		})
	}
}

func TestInside(t *testing.T) {
	workspace, elsewhere := t.TempDir(), t.TempDir()
	for name, target := range map[string]string{"away": elsewhere, "nowhere": filepath.Join(elsewhere, "none"), "home": ".", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(workspace, name)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]bool{
		"a.md": true, "new/folder/a.md": true, "./a/../b": true, workspace: true, workspace + "/x": true, "home/a": true, "..a": true,
		"..": false, "../x": false, "a/../../x": false, workspace + "x": false, "/": false, "/etc/passwd": false, elsewhere: false,
		"away": false, "away/x": false, "nowhere": false, "nowhere/x": false, "loop": false, "loop/x": false,
	} {
		raw, err := json.Marshal(map[string]string{"file_path": path})
		if err != nil {
			t.Fatal(err)
		}
		if got := inside(workspace, raw, "file_path"); got != want {
			t.Errorf("%q: %v", path, got)
		}
	}
	for input, want := range map[string]bool{`{}`: true, `{"file_path":7}`: false, `[]`: false, ``: false, `{"file_path":null}`: true} {
		if got := inside(workspace, json.RawMessage(input), "file_path"); got != want {
			t.Errorf("%s: %v", input, got)
		}
	}
}

// TestPermit: the decision for every policy and kind of tool.
func TestPermit(t *testing.T) {
	options := []acp.PermissionOption{{ID: "y", Kind: "allow_once"}, {ID: "n", Kind: "reject_once"}}
	for _, tc := range []struct {
		tool                     string
		never, sensitive, always string // y, n or ask
	}{
		{"Write", "y", "y", "ask"}, {"Edit", "y", "y", "ask"}, {"NotebookEdit", "y", "y", "ask"},
		{"Read", "y", "y", "y"}, {"Glob", "y", "y", "y"}, {"Grep", "y", "y", "y"},
		{"Bash", "y", "ask", "ask"}, {"mcp__x__y", "y", "ask", "ask"}, {"Unheard", "y", "ask", "ask"},
	} {
		for policy, want := range map[harness.ApprovalPolicy]string{
			harness.ApproveNever: tc.never, harness.ApproveSensitive: tc.sensitive, harness.ApproveAlways: tc.always, "": tc.sensitive, "NEW": tc.sensitive,
		} {
			p := acp.Permission{Tool: tc.tool, Workspace: t.TempDir(), Options: options, ToolCall: acp.ToolCall{RawInput: json.RawMessage(`{}`)}}
			got := permit(harness.Construction{Approval: policy}, p)
			if (got.Ask && want != "ask") || (!got.Ask && got.Option != want) {
				t.Errorf("%s under %q: %+v, want %s", tc.tool, policy, got, want)
			}
			if p.ToolCall.RawInput = json.RawMessage(`{"file_path":"/x","path":"/x","notebook_path":"/x"}`); pathArguments[tc.tool] != "" {
				if got := permit(harness.Construction{Approval: policy}, p); got.Ask || got.Option != "n" {
					t.Errorf("%s outside under %q: %+v", tc.tool, policy, got)
				}
			}
		}
	}
}
