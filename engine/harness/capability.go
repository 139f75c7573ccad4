package harness

// The capability vocabulary, version 1. Clients treat keys as an open set.
const (
	StreamText                Capability = "stream.text"
	StreamReasoning           Capability = "stream.reasoning"
	StreamUsage               Capability = "stream.usage"
	InvokeNonStreaming        Capability = "invoke.non_streaming"
	SessionMultiTurn          Capability = "session.multi_turn"
	SessionCrossReplicaResume Capability = "session.cross_replica_resume"
	SessionClear              Capability = "session.clear"
	ThreadDurableCommit       Capability = "thread.durable_commit"
	ThreadEvictionRestore     Capability = "thread.eviction_restore"
	InterruptFormInput        Capability = "interrupt.form_input"
	InterruptToolApproval     Capability = "interrupt.tool_approval"
	InterruptMultiTool        Capability = "interrupt.multi_tool"
	ToolMCP                   Capability = "tool.mcp"
	ToolBuiltin               Capability = "tool.builtin"
	ToolCallerCredentials     Capability = "tool.caller_credentials"
	ToolPartialAvailability   Capability = "tool.partial_availability"
	ToolCancellation          Capability = "tool.cancellation"
	InputImages               Capability = "input.images"
	InputDocuments            Capability = "input.documents"
	Skills                    Capability = "skills"
	Subagents                 Capability = "subagents"
	SubagentsMixedHarness     Capability = "subagents.mixed_harness"
	MiddlewarePortable        Capability = "middleware.portable"
	MemorySemantic            Capability = "memory.semantic"
	MemoryEpisodicReference   Capability = "memory.episodic_reference"
	MemoryProcedural          Capability = "memory.procedural"
	MemoryUserScope           Capability = "memory.user_scope"
	MemorySharedPolicy        Capability = "memory.shared_policy"
	ObservabilityMetrics      Capability = "observability.metrics"
	ObservabilityTracing      Capability = "observability.tracing"
	ObservabilityPropagation  Capability = "observability.trace_propagation"
	ObservabilityRedaction    Capability = "observability.redaction"
	RuntimeCancel             Capability = "runtime.cancel"
	RuntimeSteer              Capability = "runtime.steer"
	RuntimeRestart            Capability = "runtime.restart"
	RuntimeBoundedCleanup     Capability = "runtime.bounded_cleanup"
	RuntimeSandboxIsolation   Capability = "runtime.sandbox_isolation"
	RuntimeLeaseFencing       Capability = "runtime.lease_fencing"
	RuntimeEvictionRecovery   Capability = "runtime.eviction_recovery"
)

// Capabilities lists the vocabulary in the order in which it is shown.
var Capabilities = []Capability{
	StreamText, StreamReasoning, StreamUsage, InvokeNonStreaming,
	SessionMultiTurn, SessionCrossReplicaResume, SessionClear,
	ThreadDurableCommit, ThreadEvictionRestore,
	InterruptFormInput, InterruptToolApproval, InterruptMultiTool,
	ToolMCP, ToolBuiltin, ToolCallerCredentials, ToolPartialAvailability, ToolCancellation,
	InputImages, InputDocuments, Skills, Subagents, SubagentsMixedHarness, MiddlewarePortable,
	MemorySemantic, MemoryEpisodicReference, MemoryProcedural, MemoryUserScope, MemorySharedPolicy,
	ObservabilityMetrics, ObservabilityTracing, ObservabilityPropagation, ObservabilityRedaction,
	RuntimeCancel, RuntimeSteer, RuntimeRestart, RuntimeBoundedCleanup, RuntimeSandboxIsolation,
	RuntimeLeaseFencing, RuntimeEvictionRecovery,
}
