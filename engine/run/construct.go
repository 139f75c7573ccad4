package run

import (
	"cmp"
	"context"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/prompt"
)

// construction renders what the worker builds its harness from: the pinned version of the agent.
func (x *execution) construction(ctx context.Context) (harness.Construction, error) {
	v, err := x.c.Agents.Version(ctx, x.run.AgentID, x.run.AgentVersion)
	if err != nil {
		return harness.Construction{}, fmt.Errorf("failed to read version %d of agent %s: %w", x.run.AgentVersion, x.run.AgentID, err)
	}
	system, err := prompt.Render(v.Blueprint.Prompt.System, v.Blueprint.Prompt.Variables, prompt.Builtins{AgentName: v.Blueprint.Name})
	if err != nil {
		return harness.Construction{}, fmt.Errorf("failed to render the prompt of agent %s: %w", x.run.AgentID, err)
	}
	model := harness.ModelRef{Provider: v.Blueprint.Model.Provider, ID: v.Blueprint.Model.ID}
	if model == (harness.ModelRef{}) {
		model = x.c.Harnesses.DefaultModel(x.run.Harness)
	}
	return harness.Construction{
		Harness: x.run.Harness, AgentID: x.run.AgentID, AgentVersion: x.run.AgentVersion, SystemPrompt: system,
		Model:    model,
		Approval: cmp.Or(v.Blueprint.Tools.Approval, harness.ApproveSensitive), // versions from before it had a default
		Options:  v.Blueprint.Harness.Options,
	}, nil
}
