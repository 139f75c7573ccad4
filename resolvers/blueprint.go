package resolvers

import (
	"fmt"
	"maps"
	"slices"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/graph/model"
)

// blueprintModel shows a blueprint; blueprintOf of the same values gives it back.
func blueprintModel(b agent.Blueprint) model.Blueprint {
	m := model.Blueprint{
		Name: b.Name, Slug: b.Slug, Description: b.Description,
		Harness: model.HarnessChoice{ID: optional(b.Harness.ID), ProfileID: optional(b.Harness.ProfileID), Options: b.Harness.Options},
		Prompt:  model.Prompt{System: b.Prompt.System, Variables: []model.PromptVariable{}},
		Model:   model.ModelChoice{Policy: model.ModelPolicy(b.Model.Policy), Provider: optional(b.Model.Provider), ID: optional(b.Model.ID)},
		Tools:   model.ToolUse{Approval: model.ApprovalPolicy(b.Tools.Approval)},
		Limits:  model.RunLimits{MaxRunSeconds: optional(b.Limits.MaxRunSeconds), InterruptSeconds: optional(b.Limits.InterruptSeconds)},
	}
	if m.Tools.Approval == "" {
		m.Tools.Approval = model.ApprovalPolicySensitiveOnly
	}
	if m.Model.Policy == "" {
		m.Model.Policy = model.ModelPolicyHarnessDefault
	}
	for _, name := range slices.Sorted(maps.Keys(b.Prompt.Variables)) {
		m.Prompt.Variables = append(m.Prompt.Variables, model.PromptVariable{Name: name, Value: b.Prompt.Variables[name]})
	}
	return m
}

// blueprintOf reads a draft. Only what the engine cannot see any more is checked here: a variable given twice, a bound
// given as the 0 that means none. The engine checks the rest.
func blueprintOf(path string, in model.BlueprintInput) (agent.Blueprint, error) {
	b := agent.Blueprint{Name: in.Name, Slug: in.Slug, Description: in.Description, Model: agent.Model{Policy: agent.ModelHarnessDefault}, Tools: agent.Tools{Approval: harness.ApproveSensitive}}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	if h := in.Harness; h != nil {
		b.Harness = agent.Harness{ID: text(h.ID), ProfileID: text(h.ProfileID), Options: h.Options}
	}
	if p := in.Prompt; p != nil {
		b.Prompt.System = p.System
		if len(p.Variables) > agent.MaxVariables {
			return b, problem.Field(path+".prompt.variables", "has %d variables, at most %d", len(p.Variables), agent.MaxVariables)
		}
		for i, v := range p.Variables {
			if _, twice := b.Prompt.Variables[v.Name]; twice {
				return b, problem.Field(fmt.Sprintf("%s.prompt.variables[%d].name", path, i), "names a variable a second time")
			}
			if b.Prompt.Variables == nil {
				b.Prompt.Variables = make(map[string]string, len(p.Variables))
			}
			b.Prompt.Variables[v.Name] = v.Value
		}
	}
	if m := in.Model; m != nil {
		b.Model = agent.Model{Policy: agent.ModelPolicy(m.Policy), Provider: text(m.Provider), ID: text(m.ID)}
	}
	if t := in.Tools; t != nil {
		b.Tools.Approval = harness.ApprovalPolicy(t.Approval)
	}
	if l := in.Limits; l != nil {
		var err error
		if b.Limits.MaxRunSeconds, err = limitFrom(path+".limits.maxRunSeconds", l.MaxRunSeconds); err != nil {
			return b, err
		}
		if b.Limits.InterruptSeconds, err = limitFrom(path+".limits.interruptSeconds", l.InterruptSeconds); err != nil {
			return b, err
		}
	}
	return b, nil
}

// limitFrom reads a bound that may be absent.
func limitFrom(path string, seconds *int64) (int64, error) {
	switch {
	case seconds == nil:
		return 0, nil
	case *seconds < 1:
		return 0, problem.Field(path, "must be 1 or more; leave it out for the operator's default")
	}
	return *seconds, nil
}
