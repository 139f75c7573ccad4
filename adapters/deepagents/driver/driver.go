// Package driver drives Deep Agents inside a worker, through the Node agent of worker/node.
package driver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/harness-engine/harness-engine/adapters/acp"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

// Options say where the agent is.
type Options struct {
	// NodePath is the Node program. Empty looks up "node" in the PATH of this process.
	NodePath string
	// AgentDir is the folder worker/node, with its dependencies installed.
	AgentDir string
}

// New makes the driver.
func New(o Options) worker.Driver { return acp.New(Profile(o)) }

// Profile describes the Node agent to the shared driver.
func Profile(o Options) acp.Profile {
	return acp.Own(acp.Profile{
		Command:        func(env worker.Environment, _ harness.Construction) (worker.Command, error) { return command(o, env) },
		NoPlanPriority: true,
		StatePaths:     slices.Clone(statePaths),
		// Checkpoints in the worker's state folder; the worker and the engine make more of it.
		Durability: event.DurabilityLocal,
	})
}

// stateFolder is the agent's own part of the worker's state folder. It is also HOME and TMPDIR of the process.
const stateFolder = "deepagents"

// statePaths are what the agent needs to go on elsewhere: the checkpoints of the thread, with what waits for a person,
// the images that it refers to, what became of calls that may be run again, and that the session exists.
var statePaths = []string{
	stateFolder + "/attachments", stateFolder + "/checkpoints", stateFolder + "/effects", stateFolder + "/sessions",
}

func command(o Options, env worker.Environment) (worker.Command, error) {
	node := o.NodePath
	if node == "" {
		node = "node"
	}
	path, err := exec.LookPath(node)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return worker.Command{}, notInstalled(fmt.Errorf("failed to find node: %w", err))
	}
	main, err := filepath.Abs(filepath.Join(o.AgentDir, "deepagents", "main.mjs"))
	if err == nil {
		_, err = os.Stat(main)
	}
	if err != nil {
		return worker.Command{}, notInstalled(fmt.Errorf("failed to find the agent: %w", err))
	}
	state := filepath.Join(env.State, stateFolder)
	if err := os.MkdirAll(state, 0o700); err != nil {
		return worker.Command{}, fmt.Errorf("failed to make state folder: %w", err)
	}
	return worker.Command{
		Path: path,
		Args: []string{main},
		Dir:  env.Workspace,
		// Nothing of the worker's environment: no PATH either, for the agent starts no program.
		Env: []string{
			"HARNESS_STATE=" + state,
			"MODEL_URL=" + env.ModelURL,
			"HOME=" + state,
			"TMPDIR=" + state,
			"LANG=C.UTF-8",
			"NODE_ENV=production",
			"LANGSMITH_TRACING=false",
			"LANGCHAIN_TRACING_V2=false",
			"LANGCHAIN_CALLBACKS_BACKGROUND=false",
		},
	}, nil
}

func notInstalled(cause error) error {
	return &worker.Failure{
		Category: event.CategoryConfiguration, Code: "harness_not_installed", Cause: cause,
		Message: "Node or the Node agent is not installed where the worker runs.",
	}
}
