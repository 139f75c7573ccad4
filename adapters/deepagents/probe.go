package deepagents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/harness-engine/harness-engine/adapters/nodejs"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// install says how what is missing is had.
const install = "install Node 20 or newer and run `npm ci` in worker/node"

// probe looks for Node, for the agent and for the library that it locks.
func probe(ctx context.Context, o Options) harness.Probe {
	version, err := libraryVersion(o.AgentDir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return missing("", "The Node agent or its dependencies are not installed: "+install+".")
	case err != nil:
		return missing("", "The installed deepagents package cannot be read: run `npm ci` in worker/node.")
	case version != LibraryVersion:
		return missing(version, fmt.Sprintf("deepagents %s is installed where %s is needed: run `npm ci` in worker/node.", version, LibraryVersion))
	}
	major, err := nodejs.Major(ctx, o.NodePath)
	switch {
	case err != nil:
		return missing(version, "Node was not found or did not answer: "+install+".")
	case major < MinNodeMajor:
		return missing(version, fmt.Sprintf("Node %d is too old, %d or newer is needed.", major, MinNodeMajor))
	}
	return harness.Probe{Availability: harness.Available, HarnessVersion: version}
}

func missing(version, detail string) harness.Probe {
	return harness.Probe{Availability: harness.DependencyMissing, HarnessVersion: version, Detail: detail}
}

// libraryVersion is the installed version of deepagents. The agent's own entry has to be there, too.
func libraryVersion(agentDir string) (string, error) {
	if _, err := os.Stat(filepath.Join(agentDir, "deepagents", "main.mjs")); err != nil {
		return "", fmt.Errorf("failed to find the agent: %w", err)
	}
	return nodejs.PackageVersion(agentDir, "deepagents")
}
