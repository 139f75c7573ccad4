package claudeagentsdk

import "github.com/harness-engine/harness-engine/engine/harness"

// capabilities are what this adapter does now. What the SDK could do, and the adapter does not pass on, is unsupported.
var capabilities = map[harness.Capability]harness.Level{
	harness.StreamText:      harness.Native,
	harness.StreamReasoning: harness.Native,
	harness.StreamUsage:     harness.Native,
	// An answer without a stream is the end of one.
	harness.InvokeNonStreaming: harness.Emulated,

	harness.SessionMultiTurn:          harness.Native,
	harness.SessionCrossReplicaResume: harness.Unsupported, // engines of several hosts share no store yet
	harness.SessionClear:              harness.Emulated,    // a new epoch has a new session

	// The transcript is packed at the end of each turn; a worker anywhere goes on from it. The files in the workspace are
	// not part of the thread.
	harness.ThreadDurableCommit:   harness.Native,
	harness.ThreadEvictionRestore: harness.Native,

	// What waits for a person waits in the process, and is lost with it: the decision then ends as interrupt_lost, and the
	// conversation goes on from the transcript. Arguments cannot be edited.
	harness.InterruptFormInput:    harness.Emulated,
	harness.InterruptToolApproval: harness.Emulated,
	harness.InterruptMultiTool:    harness.Unsupported, // several calls are asked for one after the other

	harness.ToolMCP:                 harness.Unsupported,
	harness.ToolBuiltin:             harness.Native, // files in the workspace; a shell where the options say so
	harness.ToolCallerCredentials:   harness.Unsupported,
	harness.ToolPartialAvailability: harness.Unsupported,
	harness.ToolCancellation:        harness.Native,

	harness.InputImages:    harness.Native,
	harness.InputDocuments: harness.Native,

	harness.Skills:                harness.Unsupported,
	harness.Subagents:             harness.Unsupported,
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
	harness.RuntimeRestart:          harness.Native, // a dead process is started again and resumes its session
	harness.RuntimeBoundedCleanup:   harness.Native,
	harness.RuntimeSandboxIsolation: harness.Unsupported, // of the sandbox, not of the adapter
	harness.RuntimeLeaseFencing:     harness.Unsupported,
	harness.RuntimeEvictionRecovery: harness.Unsupported,
}
