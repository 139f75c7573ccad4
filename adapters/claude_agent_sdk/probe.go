package claudeagentsdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/harness-engine/harness-engine/adapters/nodejs"
	"github.com/harness-engine/harness-engine/engine/harness"
)

const (
	bridgePackage = "@agentclientprotocol/claude-agent-acp"
	sdkPackage    = "@anthropic-ai/claude-agent-sdk"
)

// install says how what is missing is had.
const install = "run `make node`, or `npm ci` in worker/node-claude"

// architectures are Node's names of Go's.
var architectures = map[string]string{"amd64": "x64", "arm64": "arm64"}

// probe looks for Node, the bridge, the SDK that it locks, and the SDK's native program.
func probe(ctx context.Context, o Options) harness.Probe {
	if o.ClaudeDir == "" {
		return missing("", "The folder of the Claude bridge was not found: "+install+".")
	}
	for _, want := range []struct{ name, version string }{{bridgePackage, BridgeVersion}, {sdkPackage, SDKVersion}} {
		version, err := nodejs.PackageVersion(o.ClaudeDir, want.name)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return missing("", "The Claude bridge is not installed: "+install+".")
		case err != nil:
			return missing("", "The installed Claude bridge cannot be read: "+install+".")
		case version != want.version:
			return missing("", fmt.Sprintf("%s %.32q is installed where %s is needed: %s.", want.name, version, want.version, install))
		}
	}
	if !nativeProgram(o.ClaudeDir) {
		return missing(SDKVersion, "The native program of the Claude Agent SDK for this platform is not installed: "+install+", with optional packages.")
	}
	major, err := nodejs.Major(ctx, o.NodePath)
	switch {
	case err != nil:
		return missing(SDKVersion, "Node was not found or did not answer: install Node 20 or newer.")
	case major < MinNodeMajor:
		return missing(SDKVersion, fmt.Sprintf("Node %d is too old, %d or newer is needed.", major, MinNodeMajor))
	}
	return harness.Probe{Availability: harness.Available, HarnessVersion: SDKVersion}
}

// nativeProgram reports whether the platform's package of the SDK is there, for either C library.
func nativeProgram(dir string) bool {
	for _, libc := range []string{"", "-musl"} {
		name := sdkPackage + "-" + runtime.GOOS + "-" + architectures[runtime.GOARCH] + libc
		if info, err := os.Stat(filepath.Join(dir, "node_modules", filepath.FromSlash(name), "claude")); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

func missing(version, detail string) harness.Probe {
	return harness.Probe{Availability: harness.DependencyMissing, HarnessVersion: version, Detail: detail}
}
