// Package agent holds the portable, user-owned blueprint, its immutable versions, and the report of what a harness
// makes of a draft.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// Blueprint is what a user writes. It holds only what does something; no ARN, image, command, path, environment map,
// credential or executable content.
type Blueprint struct {
	Name        string  `json:"name"`                  // 1 to 80 characters
	Slug        string  `json:"slug"`                  // [a-z0-9-]{1,64}, unique per owner
	Description string  `json:"description,omitempty"` // up to 2,000 characters
	Harness     Harness `json:"harness"`
	Prompt      Prompt  `json:"prompt"`
	Model       Model   `json:"model"`
	Tools       Tools   `json:"tools"`
	Limits      Limits  `json:"limits"`
}

// Tools says how the harness's tools may be used.
type Tools struct {
	Approval harness.ApprovalPolicy `json:"approval,omitempty"` // which calls wait for a person; empty, as in old versions: harness.ApproveSensitive
}

// Harness chooses what the agent runs on. An empty id resolves to harness.Default when read.
type Harness struct {
	ID        string          `json:"id,omitempty"`
	ProfileID string          `json:"profileId,omitempty"`
	Options   json.RawMessage `json:"options,omitempty"` // object, at most harness.MaxOptionsBytes
}

// Prompt is the system prompt with {{variables}}.
type Prompt struct {
	System    string            `json:"system,omitempty"`    // up to 200,000 characters
	Variables map[string]string `json:"variables,omitempty"` // up to 64, names [a-z][a-z0-9_]{0,63}, values up to 4,000 characters
}

// ModelPolicy says who chooses the model.
type ModelPolicy string

// Model policies.
const (
	ModelHarnessDefault ModelPolicy = "HARNESS_DEFAULT"
	ModelConfigured     ModelPolicy = "CONFIGURED"
)

// Model names a model where the policy is CONFIGURED.
type Model struct {
	Policy   ModelPolicy `json:"policy"`
	Provider string      `json:"provider,omitempty"`
	ID       string      `json:"id,omitempty"`
}

// Limits bound each run of the agent.
type Limits struct {
	MaxRunSeconds    int64 `json:"maxRunSeconds,omitempty"`    // 1 to 86,400; 0 is the operator's default
	InterruptSeconds int64 `json:"interruptSeconds,omitempty"` // 10 to 2,592,000: how long a person has to decide; 0 is the operator's default
}

// State is where an agent document stands beside its authorization tuples.
type State string

// Agent states. Only ACTIVE is visible.
const (
	StateCreating State = "CREATING"
	StateActive   State = "ACTIVE"
	StateDeleting State = "DELETING"
	StateDeleted  State = "DELETED"
)

// Agent is the document that points to the current version.
type Agent struct {
	ID          string       `json:"id"`
	Rev         int64        `json:"rev"`
	State       State        `json:"state"`
	Environment string       `json:"environment"`
	Owner       string       `json:"owner"`
	Slug        string       `json:"slug"`
	Version     int64        `json:"version"` // current
	Authz       authz.Outbox `json:"authz"`
	LastOp      string       `json:"lastOp"`
	CreatedAt   time.Time    `json:"createdAt"`
	UpdatedAt   time.Time    `json:"updatedAt"`
}

// Version is one immutable, normalised blueprint. Versions form a chain from the current one by Previous; a version
// that a crashed or losing save left behind is in no chain and never shown.
type Version struct {
	AgentID         string    `json:"agentId"`
	Number          int64     `json:"number"`   // from 1, rising, not always by one
	Previous        int64     `json:"previous"` // 0 for the first
	Blueprint       Blueprint `json:"blueprint"`
	Fingerprint     string    `json:"fingerprint"` // hex SHA-256 of the blueprint's canonical JSON (RFC 8785)
	CatalogRevision string    `json:"catalogRevision"`
	CreatedBy       string    `json:"createdBy"`
	CreatedAt       time.Time `json:"createdAt"`
	WrittenBy       string    `json:"writtenBy"` // id of the operation that wrote it, to resolve unknown outcomes
}

// Errors of a Store.
var (
	ErrNotFound       = errors.New("agent: not found")
	ErrExists         = errors.New("agent: exists")
	ErrSlugTaken      = errors.New("agent: slug taken") // for this environment and owner, by an agent that is not DELETED
	ErrRevision       = errors.New("agent: revision conflict")
	ErrUnknownOutcome = errors.New("agent: write outcome unknown")
)

// Store keeps agents and their versions. Implementations must pass store/storetest.
type Store interface {
	// InsertAgent stores a, whose Rev is 1; ErrExists or ErrSlugTaken.
	InsertAgent(ctx context.Context, a Agent) error
	Agent(ctx context.Context, id string) (Agent, error)
	// UpdateAgent stores a (whose Rev is the next revision) where the stored revision is a.Rev-1; ErrRevision, or
	// ErrSlugTaken when a's new slug belongs to another agent.
	UpdateAgent(ctx context.Context, a Agent) error
	// AgentsOf lists an owner's ACTIVE agents, newest id first, id < before where before is not empty.
	AgentsOf(ctx context.Context, environment, owner, before string, limit int) ([]Agent, error)
	// UnsettledAgents lists agents that are CREATING or DELETING, or whose tuples are not applied, id > after.
	UnsettledAgents(ctx context.Context, after string, limit int) ([]Agent, error)
	// InsertVersion stores v; ErrExists when (AgentID, Number) is taken.
	InsertVersion(ctx context.Context, v Version) error
	Version(ctx context.Context, agentID string, number int64) (Version, error)
	// LastVersion is the highest number given out, in the chain or not; 0 when there is none.
	LastVersion(ctx context.Context, agentID string) (int64, error)
}
