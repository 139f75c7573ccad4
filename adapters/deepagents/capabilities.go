package deepagents

import "github.com/harness-engine/harness-engine/engine/harness"

// capabilities are what this adapter does now. What the library could do, and the adapter does not pass on, is
// unsupported.
var capabilities = map[harness.Capability]harness.Level{
	harness.StreamText:      harness.Native,
	harness.StreamReasoning: harness.Native,
	harness.StreamUsage:     harness.Native,
	// An answer without a stream is the end of one.
	harness.InvokeNonStreaming: harness.Emulated,

	harness.SessionMultiTurn:          harness.Native,
	harness.SessionCrossReplicaResume: harness.Unsupported, // engines of several hosts share no store yet
	harness.SessionClear:              harness.Emulated,    // a new epoch has a new thread

	// The checkpoints are packed at the end of each turn; a worker anywhere goes on from them. The files in the workspace
	// are not part of the thread.
	harness.ThreadDurableCommit:   harness.Native,
	harness.ThreadEvictionRestore: harness.Native,

	// What waits for a person is in the checkpoint and survives its process.
	harness.InterruptFormInput:    harness.Native,
	harness.InterruptToolApproval: harness.Native,
	harness.InterruptMultiTool:    harness.Native,

	harness.ToolMCP:                 harness.Unsupported,
	harness.ToolBuiltin:             harness.Native, // files in the workspace, the plan, delegation; no shell
	harness.ToolCallerCredentials:   harness.Unsupported,
	harness.ToolPartialAvailability: harness.Unsupported,
	harness.ToolCancellation:        harness.Native,

	harness.InputImages:    harness.Native,
	harness.InputDocuments: harness.Native,

	harness.Skills:                harness.Unsupported,
	harness.Subagents:             harness.Native, // the library's general-purpose agent
	harness.SubagentsMixedHarness: harness.Unsupported,
	harness.MiddlewarePortable:    harness.Unsupported,

	harness.MemorySemantic:          harness.Unsupported,
	harness.MemoryEpisodicReference: harness.Unsupported,
	harness.MemoryProcedural:        harness.Unsupported,
	harness.MemoryUserScope:         harness.Unsupported,
	harness.MemorySharedPolicy:      harness.Unsupported,

	harness.ObservabilityMetrics:     harness.Unsupported,
	harness.ObservabilityTracing:     harness.Unsupported,
	harness.ObservabilityPropagation: harness.Unsupported,
	harness.ObservabilityRedaction:   harness.Unsupported,

	harness.RuntimeCancel:           harness.Native,
	harness.RuntimeSteer:            harness.Unsupported,
	harness.RuntimeRestart:          harness.Native, // a dead process is started again and resumes its thread
	harness.RuntimeBoundedCleanup:   harness.Native,
	harness.RuntimeSandboxIsolation: harness.Unsupported, // of the sandbox, not of the adapter
	harness.RuntimeLeaseFencing:     harness.Unsupported,
	harness.RuntimeEvictionRecovery: harness.Unsupported,
}
