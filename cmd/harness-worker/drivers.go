package main

import (
	claudeagentsdk "github.com/harness-engine/harness-engine/adapters/claude_agent_sdk/driver"
	deepagents "github.com/harness-engine/harness-engine/adapters/deepagents/driver"
	scripted "github.com/harness-engine/harness-engine/adapters/scripted/driver"
	"github.com/harness-engine/harness-engine/worker"
)

// drivers is the table of what this worker can drive, by harness id.
func drivers(o options) map[string]func() worker.Driver {
	return map[string]func() worker.Driver{
		"claude_agent_sdk": func() worker.Driver {
			return claudeagentsdk.New(claudeagentsdk.Options{NodePath: o.Node, ClaudeDir: o.ClaudeDir})
		},
		"deepagents": func() worker.Driver {
			return deepagents.New(deepagents.Options{NodePath: o.Node, AgentDir: o.NodeDir})
		},
		"scripted": func() worker.Driver { return scripted.New(scripted.Options{}) },
	}
}
