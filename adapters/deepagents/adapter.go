// Package deepagents is the adapter of LangChain's Deep Agents. The harness runs in the worker, in a small Node agent
// of ours round the official library (worker/node); its driver is adapters/deepagents/driver.
package deepagents

import (
	"context"
	_ "embed"
	"encoding/json"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// Version is the version of this adapter.
const Version = "0.1.0"

// LibraryVersion is the exact version of deepagents that worker/node locks.
const LibraryVersion = "1.14.1"

// MinNodeMajor is the oldest major version of Node that runs the agent.
const MinNodeMajor = 20

//go:embed options.json
var optionsSchema []byte

// Options configure the adapter.
type Options struct {
	// NodePath is the Node program. Empty looks up "node" in the PATH of this process.
	NodePath string
	// AgentDir is the folder worker/node, with its dependencies installed.
	AgentDir string
}

// Adapter describes the harness and looks for it.
type Adapter struct{ options Options }

// New makes the adapter.
func New(o Options) *Adapter { return &Adapter{options: o} }

// Descriptor implements harness.Adapter.
func (*Adapter) Descriptor() harness.Descriptor {
	return harness.Descriptor{
		ID:          harness.Default,
		DisplayName: "Deep Agents",
		Description: "LangChain's Deep Agents: a planning agent with file tools and delegated agents, on LangGraph. " +
			"It works with Anthropic's and OpenAI's models.",
		AdapterVersion:   Version,
		HarnessVersion:   LibraryVersion,
		ContractVersions: []int{harness.ContractVersion},
		ExecutionMode:    harness.ExecutionSandbox,
		TrustBoundary: "The library, its tools and what the model makes of them run in the worker's sandbox. " +
			"The model is reached through the engine's proxy; no credential is inside.",
		Profiles: []harness.Profile{{
			ID: "default", Name: "Default", Description: "File tools in the workspace; no shell.",
		}},
		OptionsSchema: json.RawMessage(optionsSchema),
		Models:        models,
		Capabilities:  capabilities,
		SupplyChain:   supplyChain,
	}
}

// Probe implements harness.Adapter.
func (a *Adapter) Probe(ctx context.Context) harness.Probe { return probe(ctx, a.options) }

// models are those that the locked libraries have a profile of. The first is the default.
var models = []harness.Model{
	{Provider: "anthropic", ID: "claude-sonnet-4-6", Name: "Claude Sonnet 4.6"},
	{Provider: "anthropic", ID: "claude-sonnet-5", Name: "Claude Sonnet 5"},
	{Provider: "anthropic", ID: "claude-opus-5", Name: "Claude Opus 5"},
	{Provider: "anthropic", ID: "claude-opus-4-8", Name: "Claude Opus 4.8"},
	{Provider: "anthropic", ID: "claude-haiku-4-5", Name: "Claude Haiku 4.5"},
	{Provider: "openai", ID: "gpt-5.5", Name: "GPT-5.5"},
	{Provider: "openai", ID: "gpt-5.4", Name: "GPT-5.4"},
	{Provider: "openai", ID: "gpt-5.2", Name: "GPT-5.2"},
	{Provider: "openai", ID: "gpt-5-mini", Name: "GPT-5 mini"},
	{Provider: "openai", ID: "gpt-4.1", Name: "GPT-4.1"},
}

var supplyChain = harness.SupplyChain{
	Packages:         packages,
	Licence:          "MIT (deepagents, LangChain, LangGraph); Apache-2.0 (Agent Client Protocol SDK)",
	RuntimeArtefacts: []string{"Node 20 or newer", "worker/node with the packages of its package-lock.json; no native addon"},
	NetworkBehaviour: "Calls the engine's model proxy on loopback. No telemetry, no update check; tracing is switched off.",
	Credentials:      []string{"An API key of the model's provider, held by the engine's model proxy and never by the worker."},
}

// packages are the direct dependencies that worker/node locks.
var packages = []string{
	"deepagents@" + LibraryVersion,
	"langchain@1.5.14",
	"@langchain/core@1.4.0",
	"@langchain/langgraph@1.7.3",
	"@langchain/langgraph-checkpoint@1.2.2",
	"@langchain/anthropic@1.5.11",
	"@langchain/openai@1.5.8",
	"@agentclientprotocol/sdk@2.4.0",
	"micromatch@4.0.8",
}
