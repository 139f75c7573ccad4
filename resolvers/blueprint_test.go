package resolvers

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/graph/model"
)

// What is shown of a blueprint can be handed back as it is: the input has the output's fields, and gives the same
// blueprint. So edit and clone lose nothing.
func TestBlueprintRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 20, 60)
		b := agent.Blueprint{
			Name: text.Draw(t, "name"), Slug: text.Draw(t, "slug"), Description: text.Draw(t, "description"),
			Harness: agent.Harness{ID: rapid.SampledFrom([]string{"", "scripted", "gone"}).Draw(t, "harness"), ProfileID: rapid.SampledFrom([]string{"", "fast"}).Draw(t, "profile")},
			Prompt:  agent.Prompt{System: text.Draw(t, "system"), Variables: rapid.MapOfN(rapid.StringMatching(`[a-z]{1,5}`), text, 1, 4).Draw(t, "variables")},
			Model:   agent.Model{Policy: rapid.SampledFrom([]agent.ModelPolicy{agent.ModelHarnessDefault, agent.ModelConfigured}).Draw(t, "policy"), Provider: text.Draw(t, "provider"), ID: text.Draw(t, "model")},
			Tools:   agent.Tools{Approval: rapid.SampledFrom([]harness.ApprovalPolicy{harness.ApproveNever, harness.ApproveSensitive, harness.ApproveAlways}).Draw(t, "approval")},
			Limits: agent.Limits{
				MaxRunSeconds:    int64(rapid.IntRange(0, agent.MaxRunSeconds).Draw(t, "seconds")),
				InterruptSeconds: int64(rapid.IntRange(0, 2_592_000).Draw(t, "interrupt seconds")),
			},
		}
		if rapid.Bool().Draw(t, "options") {
			b.Harness.Options = json.RawMessage(`{"temperature":0.5,"nested":{"a":[1,2]}}`)
		}
		raw, err := json.Marshal(blueprintModel(b))
		if err != nil {
			t.Fatal(err)
		}
		var in model.BlueprintInput
		if err := json.Unmarshal(raw, &in); err != nil {
			t.Fatal(err)
		}
		if string(in.Harness.Options) == "null" { // the executor reads null as absent
			in.Harness.Options = nil
		}
		back, err := blueprintOf("draft", in)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(b, back) {
			t.Fatalf("%+v became %+v", b, back)
		}
	})
}

// The output type and the input type have the same fields at every level.
func TestBlueprintInputHasTheOutputsFields(t *testing.T) {
	s := schemaOf()
	for out, in := range map[string]string{
		"Blueprint": "BlueprintInput", "HarnessChoice": "HarnessChoiceInput", "Prompt": "PromptInput",
		"PromptVariable": "PromptVariableInput", "ModelChoice": "ModelChoiceInput", "RunLimits": "RunLimitsInput", "ToolUse": "ToolUseInput",
	} {
		have := s.Types[in].Fields
		for _, f := range s.Types[out].Fields {
			if f.Name[0] != '_' && have.ForName(f.Name) == nil {
				t.Errorf("%s.%s has no counterpart in %s", out, f.Name, in)
			}
		}
		if len(have) != len(s.Types[out].Fields) {
			t.Errorf("%s has %d fields, %s %d", out, len(s.Types[out].Fields), in, len(have))
		}
	}
}

func TestBlueprintInputIsRefusedWithItsField(t *testing.T) {
	many := make([]model.PromptVariableInput, agent.MaxVariables+1)
	for name, c := range map[string]struct {
		in    model.BlueprintInput
		field string
	}{
		"variable twice":    {model.BlueprintInput{Prompt: &model.PromptInput{Variables: []model.PromptVariableInput{{Name: "a"}, {Name: "a"}}}}, "input.draft.prompt.variables[1].name"},
		"many variables":    {model.BlueprintInput{Prompt: &model.PromptInput{Variables: many}}, "input.draft.prompt.variables"},
		"no time to decide": {model.BlueprintInput{Limits: &model.RunLimitsInput{InterruptSeconds: new(int64)}}, "input.draft.limits.interruptSeconds"},
		"zero seconds":      {model.BlueprintInput{Limits: &model.RunLimitsInput{MaxRunSeconds: new(int64)}}, "input.draft.limits.maxRunSeconds"},
	} {
		_, err := blueprintOf("input.draft", c.in)
		p, ok := problem.As(err)
		if !ok || p.Error()[:len(c.field)] != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
}
