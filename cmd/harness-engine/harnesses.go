package main

import (
	claudeagentsdk "github.com/harness-engine/harness-engine/adapters/claude_agent_sdk"
	"github.com/harness-engine/harness-engine/adapters/deepagents"
	"github.com/harness-engine/harness-engine/adapters/scripted"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// adapters are the harnesses of this build; node is the folder of the Node agents, "" where there is none.
func adapters(node string) []harness.Adapter {
	return []harness.Adapter{
		scripted.New(),
		deepagents.New(deepagents.Options{AgentDir: node}),
		claudeagentsdk.New(claudeagentsdk.Options{ClaudeDir: claudeDir(node)}),
	}
}
