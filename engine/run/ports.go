package run

import (
	"context"
	"time"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// Agents reads agents and their versions.
type Agents interface {
	Agent(ctx context.Context, id string) (agent.Agent, error)
	Version(ctx context.Context, agentID string, number int64) (agent.Version, error)
}

// Harnesses is what admission asks of the catalog.
type Harnesses interface {
	// Ready returns a problem.Error when no run may start on the harness now.
	Ready(ctx context.Context, harnessID string) error
	// Descriptor returns false for an unknown harness.
	Descriptor(harnessID string) (harness.Descriptor, bool)
	// DefaultModel is what an agent that names no model gets on the harness; it may be empty.
	DefaultModel(harnessID string) harness.ModelRef
}

// Workers starts and finds the workers that serve bindings.
type Workers interface {
	// Reserve names the worker of a binding's generation. The name is committed before the worker is started, and is
	// all that a later engine needs to find it.
	Reserve(b harness.Binding) (addr string)
	// Start starts the worker and binds it. harness.ErrConflict when one lives at addr already: it may serve whoever
	// took the binding over, so it is not destroyed. head is the thread state that the worker begins with; nil is none. A
	// harness whose state is committed begins with exactly that, whatever the worker before left.
	Start(ctx context.Context, b harness.Binding, leaseGen int64, addr string, c harness.Construction, head *harness.Snapshot) (harness.Runtime, error)
	// Attach finds the worker again; harness.ErrGone when it does not live, harness.ErrUnreachable when it does not answer.
	Attach(ctx context.Context, b harness.Binding, leaseGen int64, addr string) (harness.Runtime, error)
	// Destroy asks the worker to end, and ends it with everything that it started. harness.ErrStaleLease, and nothing is
	// ended, where an engine with a higher lease generation has attached to it since. Idempotent.
	Destroy(ctx context.Context, addr string, leaseGen int64) error
	// Kill is Destroy without asking.
	Kill(ctx context.Context, addr string, leaseGen int64) error
	// ForgetState removes the workspaces and the native state of a conversation's epochs up to this one.
	ForgetState(ctx context.Context, sessionID string, epoch int64) error
	// Leases gives the workers found on this host, by address, with the highest lease generation that has used each.
	Leases(ctx context.Context) (map[string]int64, error)
}

// Capabilities mints what a worker shows to the broker.
type Capabilities interface {
	Mint(b harness.Binding, runID string, expiry time.Time) (string, error)
}
