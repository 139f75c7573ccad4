package deepagents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// probeTimeout bounds asking Node for its version.
const probeTimeout = 10 * time.Second

// maxManifest bounds what is read of a package.json, in bytes.
const maxManifest = 1 << 20

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
	major, err := nodeMajor(ctx, o.NodePath)
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
	f, err := os.Open(filepath.Join(agentDir, "node_modules", "deepagents", "package.json"))
	if err != nil {
		return "", fmt.Errorf("failed to find the library: %w", err)
	}
	defer func() { _ = f.Close() }()
	var manifest struct {
		Version string `json:"version"`
	}
	if err := json.NewDecoder(io.LimitReader(f, maxManifest)).Decode(&manifest); err != nil {
		return "", fmt.Errorf("failed to read the library's manifest: %w", err)
	}
	return manifest.Version, nil
}

// nodeMajor asks Node for its version and gives the major one.
func nodeMajor(ctx context.Context, path string) (int, error) {
	if path == "" {
		path = "node"
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("failed to ask node for its version: %w", err)
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(out)), "v"), ".")
	major, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("failed to read node's version: %w", err)
	}
	return major, nil
}
