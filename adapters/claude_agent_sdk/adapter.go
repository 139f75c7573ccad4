// Package claudeagentsdk is the adapter of Anthropic's Claude Agent SDK. The harness runs in the worker, behind its
// bridge to the Agent Client Protocol (worker/node-claude); its driver is adapters/claude_agent_sdk/driver.
package claudeagentsdk

import (
	"context"
	_ "embed"
	"encoding/json"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// ID is the id of the harness.
const ID = "claude_agent_sdk"

// Version is the version of this adapter.
const Version = "0.1.0"

// Versions that worker/node-claude locks.
const (
	BridgeVersion = "0.101.0" // @agentclientprotocol/claude-agent-acp
	SDKVersion    = "0.3.318" // @anthropic-ai/claude-agent-sdk, as the bridge wants it
)

// MinNodeMajor is the oldest major version of Node that runs the bridge. Its package asks for 22; with 20 every test of
// this adapter passes.
const MinNodeMajor = 20

//go:embed options.json
var optionsSchema []byte

// Options configure the adapter.
type Options struct {
	// NodePath is the Node program. Empty looks up "node" in the PATH of this process.
	NodePath string
	// ClaudeDir is the folder worker/node-claude, with its dependencies installed.
	ClaudeDir string
}

// Adapter describes the harness and looks for it.
type Adapter struct{ options Options }

// New makes the adapter.
func New(o Options) *Adapter { return &Adapter{options: o} }

// Descriptor implements harness.Adapter.
func (*Adapter) Descriptor() harness.Descriptor {
	return harness.Descriptor{
		ID:          ID,
		DisplayName: "Claude Agent SDK",
		Description: "Anthropic's Claude Agent SDK, the agent of Claude Code: file tools, a shell where the agent's options " +
			"allow one, and questions to the person.",
		AdapterVersion:   Version,
		HarnessVersion:   SDKVersion,
		ContractVersions: []int{harness.ContractVersion},
		ExecutionMode:    harness.ExecutionSandbox,
		TrustBoundary: "The SDK's native program, its tools and what the model makes of them run in the worker's sandbox. " +
			"File tools are refused outside of the workspace; a shell is confined by the sandbox alone. " +
			"The model is reached through the engine's proxy; no credential is inside.",
		Profiles: []harness.Profile{{
			ID: "default", Name: "Default", Description: "File tools in the workspace; a shell only where the options say so.",
		}},
		OptionsSchema: json.RawMessage(optionsSchema),
		Models:        models,
		Capabilities:  capabilities,
		SupplyChain:   supplyChain,
	}
}

// Probe implements harness.Adapter.
func (a *Adapter) Probe(ctx context.Context) harness.Probe { return probe(ctx, a.options) }

// models are those that the locked SDK has a profile of. The first is the default.
var models = []harness.Model{
	{Provider: "anthropic", ID: "claude-sonnet-5-5", Name: "Claude Sonnet 5.5"},
	{Provider: "anthropic", ID: "claude-opus-5-5", Name: "Claude Opus 5.5"},
	{Provider: "anthropic", ID: "claude-haiku-5-5", Name: "Claude Haiku 5.5"},
	{Provider: "anthropic", ID: "claude-fable-5-1", Name: "Claude Fable 5.1"},
	{Provider: "anthropic", ID: "claude-sonnet-5", Name: "Claude Sonnet 5"},
	{Provider: "anthropic", ID: "claude-opus-5", Name: "Claude Opus 5"},
	{Provider: "anthropic", ID: "claude-sonnet-4-6", Name: "Claude Sonnet 4.6"},
	{Provider: "anthropic", ID: "claude-opus-4-8", Name: "Claude Opus 4.8"},
	{Provider: "anthropic", ID: "claude-haiku-4-5", Name: "Claude Haiku 4.5"},
}

var supplyChain = harness.SupplyChain{
	Packages: packages,
	Licence: "Apache-2.0 (bridge, Agent Client Protocol SDK); Anthropic's Commercial Terms of Service (Claude Agent SDK and its " +
		"native program: proprietary)",
	RuntimeArtefacts: []string{
		"Node 20 or newer; the bridge's package asks for 22",
		"worker/node-claude with the packages of its package-lock.json, 400 MB",
		"The native program claude of the Claude Agent SDK for this platform, 340 MB, from its npm package",
	},
	NetworkBehaviour: "Calls the engine's model proxy on loopback. Telemetry, error reports, updates, the plugin market and " +
		"servers of the provider's own are switched off; web tools are not offered.",
	Credentials: []string{"An API key of Anthropic, held by the engine's model proxy and never by the worker."},
}

// packages are what worker/node-claude locks directly, and what that brings the harness.
var packages = []string{
	bridgePackage + "@" + BridgeVersion,
	sdkPackage + "@" + SDKVersion,
	"@agentclientprotocol/sdk@2.4.0",
}
