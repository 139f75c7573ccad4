// Package scripted is the harness without a model: it plays a script of canonical steps, or echoes. It serves
// demonstrations, conformance tests and benchmarks, and needs neither key nor network. Its worker half is in
// scripted/driver; the grammar of scripts is in docs/scripted.md.
package scripted

import (
	"context"
	_ "embed"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// ID is the harness id.
const ID = "scripted"

// Version is the version of the grammar and of its player.
const Version = "1.1.0"

//go:embed options.schema.json
var optionsSchema []byte

// Adapter is the harness.Adapter of scripted.
type Adapter struct{}

var _ harness.Adapter = Adapter{}

// New returns the adapter.
func New() Adapter { return Adapter{} }

// Descriptor implements harness.Adapter.
func (Adapter) Descriptor() harness.Descriptor {
	return harness.Descriptor{
		ID:               ID,
		DisplayName:      "Scripted",
		Description:      "Plays a script of steps instead of asking a model. For demonstrations, tests and benchmarks.",
		AdapterVersion:   Version,
		HarnessVersion:   Version,
		ContractVersions: []int{harness.ContractVersion},
		ExecutionMode:    harness.ExecutionSandbox,
		TrustBoundary:    "Runs in the worker. Executes nothing that a script names: tools are shown, not run.",
		Profiles:         []harness.Profile{{ID: "default", Name: "Default", Description: "Plays in the worker process."}},
		OptionsSchema:    optionsSchema,
		Capabilities: map[harness.Capability]harness.Level{
			harness.StreamText:              harness.Native,
			harness.StreamReasoning:         harness.Native,
			harness.StreamUsage:             harness.Native,
			harness.SessionMultiTurn:        harness.Native,
			harness.SessionClear:            harness.Native,
			harness.RuntimeCancel:           harness.Native,
			harness.RuntimeBoundedCleanup:   harness.Native,
			harness.RuntimeLeaseFencing:     harness.Native,
			harness.ThreadDurableCommit:     harness.Native,
			harness.ThreadEvictionRestore:   harness.Native,
			harness.InterruptFormInput:      harness.Native,
			harness.InterruptToolApproval:   harness.Native,
			harness.InterruptMultiTool:      harness.Native,
			harness.InputImages:             harness.Native,
			harness.InputDocuments:          harness.Native,
			harness.ToolBuiltin:             harness.Unsupported,
			harness.ToolMCP:                 harness.Unsupported,
			harness.RuntimeSteer:            harness.Unsupported,
			harness.RuntimeSandboxIsolation: harness.Unsupported,
		},
		SupplyChain: harness.SupplyChain{
			Licence:          "as Harness Engine",
			RuntimeArtefacts: []string{"harness-worker"},
			NetworkBehaviour: "none",
		},
	}
}

// Probe implements harness.Adapter. The player is part of the worker, so there is nothing that could be missing.
func (Adapter) Probe(context.Context) harness.Probe {
	return harness.Probe{Availability: harness.Available, Detail: "built into the worker", HarnessVersion: Version}
}
