// Package harness is the contract between the engine and what it runs agents on: the descriptor that the catalog
// shows, the capability vocabulary, the Adapter that knows one harness, and the Runtime that serves one conversation.
package harness

import (
	"context"
	"encoding/json"
	"regexp"
)

// ContractVersion is the version of this contract that the engine speaks.
const ContractVersion = 1

// IDPattern is the form of a harness id.
var IDPattern = regexp.MustCompile(`^[a-z][a-z0-9_]{1,63}$`)

// Default is the harness that a blueprint without one resolves to when read.
const Default = "deepagents"

// MaxOptionsBytes bounds the JSON text of a blueprint's harness options.
const MaxOptionsBytes = 32 << 10

// ExecutionMode says where the harness loop runs.
type ExecutionMode string

// Execution modes.
const (
	ExecutionSandbox         ExecutionMode = "SANDBOX"
	ExecutionProviderManaged ExecutionMode = "PROVIDER_MANAGED"
	ExecutionInProcess       ExecutionMode = "IN_PROCESS"
)

// Availability says whether a run could start now.
type Availability string

// Availability states.
const (
	Available         Availability = "AVAILABLE"
	Disabled          Availability = "DISABLED"
	DependencyMissing Availability = "DEPENDENCY_MISSING"
	Misconfigured     Availability = "MISCONFIGURED"
	Unhealthy         Availability = "UNHEALTHY"
)

// Certification says what has been proven; it is computed from recorded evidence, never declared.
type Certification string

// Certification states.
const (
	Certified    Certification = "CERTIFIED"
	Experimental Certification = "EXPERIMENTAL"
	Blocked      Certification = "BLOCKED"
)

// Level says how a harness offers a capability.
type Level string

// Capability levels.
const (
	Native      Level = "NATIVE"
	Emulated    Level = "EMULATED"
	Unsupported Level = "UNSUPPORTED"
	Unavailable Level = "UNAVAILABLE" // known, but not on this machine or with this configuration
)

// Offers reports whether the level satisfies a requirement.
func (l Level) Offers() bool { return l == Native || l == Emulated }

// Capability is a key of the open vocabulary; see Capabilities for version 1.
type Capability string

// Model is one model that a harness can use.
type Model struct {
	Provider string `json:"provider"` // anthropic, openai
	ID       string `json:"id"`
	Name     string `json:"name"`
}

// Profile is an operator's alias for a way to run the harness.
type Profile struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

// SupplyChain is what an operator reviews before enabling a harness.
type SupplyChain struct {
	Packages         []string `json:"packages"` // name@exact version
	Licence          string   `json:"licence"`
	RuntimeArtefacts []string `json:"runtimeArtefacts"`
	NetworkBehaviour string   `json:"networkBehaviour"`
	Credentials      []string `json:"credentials"`
}

// Descriptor is the static description of one harness: data only, never HTML, scripts, module names or commands.
type Descriptor struct {
	ID               string               `json:"id"`
	DisplayName      string               `json:"displayName"`
	Description      string               `json:"description"`
	AdapterVersion   string               `json:"adapterVersion"`
	HarnessVersion   string               `json:"harnessVersion"` // exact locked version
	ContractVersions []int                `json:"contractVersions"`
	ExecutionMode    ExecutionMode        `json:"executionMode"`
	TrustBoundary    string               `json:"trustBoundary"`
	Profiles         []Profile            `json:"profiles"`
	OptionsSchema    json.RawMessage      `json:"optionsSchema"` // JSON Schema 2020-12, additionalProperties: false
	Models           []Model              `json:"models"`
	Capabilities     map[Capability]Level `json:"capabilities"`
	SupplyChain      SupplyChain          `json:"supplyChain"`
}

// Probe is what an adapter found on this machine, without any model or tool call.
type Probe struct {
	Availability   Availability
	Detail         string // safe for an admin: what is missing and how to get it
	HarnessVersion string // as found; empty where unknown
}

// Construction is the immutable data from which a worker builds its harness for one binding and epoch. It holds no
// credential and no provider address.
type Construction struct {
	Harness      string          `json:"harness"`
	AgentID      string          `json:"agentId"`
	AgentVersion int64           `json:"agentVersion"`
	SystemPrompt string          `json:"systemPrompt"` // rendered
	Model        ModelRef        `json:"model"`
	Approval     ApprovalPolicy  `json:"approval,omitempty"`
	Options      json.RawMessage `json:"options,omitempty"` // validated against the descriptor's schema
}

// ApprovalPolicy says which tool calls wait for a person.
type ApprovalPolicy string

// Approval policies. Which tools are sensitive is the adapter's to say: those with effects outside the workspace, and
// those that destroy.
const (
	ApproveNever     ApprovalPolicy = "NEVER"
	ApproveSensitive ApprovalPolicy = "SENSITIVE_ONLY"
	ApproveAlways    ApprovalPolicy = "ALWAYS"
)

// ModelRef names a model; both empty means the harness's default.
type ModelRef struct {
	Provider string `json:"provider"`
	ID       string `json:"id"`
}

// Adapter is everything the engine knows about one harness. Its worker half is a driver.
type Adapter interface {
	// Descriptor never changes during a process's life.
	Descriptor() Descriptor
	// Probe looks at this machine; it is bounded by ctx and makes no model or tool call.
	Probe(ctx context.Context) Probe
}
