package run_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/run"
)

// TestConstruction looks at what a worker is told of its agent: everything of the version that says how it works.
func TestConstruction(t *testing.T) {
	w := newWorld(t)
	full := agent.Version{AgentID: w.agent.ID, Number: 2, Blueprint: agent.Blueprint{
		Name: "Ada", Harness: agent.Harness{ID: "scripted", Options: json.RawMessage(`{"chunk":3}`)},
		Prompt: agent.Prompt{System: "You are {{agent.name}}."},
		Model:  agent.Model{Policy: agent.ModelConfigured, Provider: "anthropic", ID: "m-1"},
		Tools:  agent.Tools{Approval: harness.ApproveAlways},
	}}
	if err := w.store.InsertVersion(w.ctx, full); err != nil {
		t.Fatal(err)
	}
	common := harness.Construction{Harness: "scripted", AgentID: w.agent.ID}
	before, after := common, common
	before.AgentVersion, before.Approval = 1, harness.ApproveSensitive // a version that says nothing
	after.AgentVersion, after.SystemPrompt, after.Approval = 2, "You are Ada.", harness.ApproveAlways
	after.Model, after.Options = harness.ModelRef{Provider: "anthropic", ID: "m-1"}, full.Blueprint.Harness.Options
	for version, want := range []harness.Construction{before, after} {
		if version == 1 {
			w.agent.Rev, w.agent.Version = w.agent.Rev+1, 2
			if err := w.store.UpdateAgent(w.ctx, w.agent); err != nil {
				t.Fatal(err)
			}
		}
		e := w.boot(run.Limits{})
		e.events(w.start(e, run.StartRequest{Text: "hello"}).ID)
		w.host.mu.Lock()
		got := w.host.built
		w.host.mu.Unlock()
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("the worker was built from\n%+v, want\n%+v", got, want)
		}
	}
}
