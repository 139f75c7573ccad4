package main

import (
	deepagents "github.com/harness-engine/harness-engine/adapters/deepagents/driver"
	scripted "github.com/harness-engine/harness-engine/adapters/scripted/driver"
	"github.com/harness-engine/harness-engine/worker"
)

// drivers is the table of what this worker can drive, by harness id.
func drivers(o options) map[string]func() worker.Driver {
	return map[string]func() worker.Driver{
		"deepagents": func() worker.Driver {
			return deepagents.New(deepagents.Options{NodePath: o.Node, AgentDir: o.NodeDir})
		},
		"scripted": func() worker.Driver { return scripted.New(scripted.Options{}) },
	}
}
