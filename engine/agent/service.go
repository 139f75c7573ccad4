package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// MaxPage bounds one page of a listing.
const MaxPage = 1000

// maxCounted bounds the count of an Impact.
const maxCounted = 1000

// Reviewer judges a well-formed, normalised blueprint. It writes nothing and calls no provider. It leaves
// Report.Impact to the Service.
type Reviewer interface {
	Review(ctx context.Context, b Blueprint) Report
}

// Usage counts conversations.
type Usage interface {
	// PinnedConversations counts the conversations that are pinned to a version of the agent, up to limit.
	PinnedConversations(ctx context.Context, a Agent, limit int) (int, error)
}

// Options configure a Service. Store, Reviewer, Tuples and Usage are required.
type Options struct {
	Store    Store
	Reviewer Reviewer
	Tuples   authz.Tuples
	Usage    Usage
	Now      func() time.Time // nil: time.Now
	Logger   *slog.Logger     // nil: slog.Default()
	// AbandonedAfter is the age at which a creation that never got its first version is given up; 0: a minute. It
	// decides only when to clean up: a creation that is given up while it still runs fails cleanly.
	AbandonedAfter time.Duration
	// Self names this life of this engine among those that may be writing an agent's tuples, and Dead says whether another one
	// has ended for good; see authz.ReconcilerOptions.
	Self string
	Dead func(name string) bool
	// SettleInterval is the pause between two sweeps of Run; 0: authz.DefaultInterval.
	SettleInterval time.Duration
}

// Service is what the edges do with agents. It does not authorise: its callers do, through authz.Guard.
type Service struct {
	store      Store
	reviewer   Reviewer
	usage      Usage
	now        func() time.Time
	logger     *slog.Logger
	reconciler *authz.Reconciler
	self       string
}

// NewService returns a Service. It starts nothing.
func NewService(o Options) (*Service, error) {
	if o.Store == nil || o.Reviewer == nil || o.Tuples == nil || o.Usage == nil {
		return nil, errors.New("agent: a service needs a store, a reviewer, tuples and usage")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.AbandonedAfter <= 0 {
		o.AbandonedAfter = time.Minute
	}
	// Stored times are UTC milliseconds, so that what was written equals what is read.
	clock := o.Now
	now := func() time.Time { return clock().UTC().Truncate(time.Millisecond) }
	if o.Self == "" {
		o.Self = id.New(id.Boot)
	}
	reconciler, err := authz.NewReconciler(authz.ReconcilerOptions{
		Documents: &documents{store: o.Store, now: now, abandonedAfter: o.AbandonedAfter, self: o.Self}, Self: o.Self, Dead: o.Dead,
		Tuples: o.Tuples, Interval: o.SettleInterval, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &Service{
		store: o.Store, reviewer: o.Reviewer, usage: o.Usage, now: now, logger: o.Logger, reconciler: reconciler, self: o.Self,
	}, nil
}

// Settle brings agents and their tuples in line once: it finishes creations and deletions that a crash or an outage
// left behind.
func (s *Service) Settle(ctx context.Context) error {
	if _, err := s.reconciler.Sweep(ctx); err != nil {
		return fmt.Errorf("failed to settle agents: %w", err)
	}
	return nil
}

// Everything lists the agents of every state; see Restate.
type Everything interface {
	// AgentIDs lists identifiers ascending, id > after, at most limit.
	AgentIDs(ctx context.Context, after string, limit int) ([]string, error)
}

// Restate states the tuples of all agents to an authorization service that may not have them, and returns of how many.
func (s *Service) Restate(ctx context.Context, all Everything) (int, error) {
	n, err := s.reconciler.Restate(ctx, func(ctx context.Context, after string, limit int) ([]authz.Object, error) {
		ids, err := all.AgentIDs(ctx, after, limit)
		objects := make([]authz.Object, len(ids))
		for i, id := range ids {
			objects[i] = authz.Agent(id)
		}
		return objects, err
	})
	if err != nil {
		return n, fmt.Errorf("failed to restate the tuples of agents: %w", err)
	}
	return n, nil
}

// Run settles at once and then on a timer, until ctx ends.
func (s *Service) Run(ctx context.Context) { s.reconciler.Run(ctx) }

// Agent returns an ACTIVE agent; problem.NotFound otherwise.
func (s *Service) Agent(ctx context.Context, agentID string) (Agent, error) {
	if !id.Valid(id.Agent, agentID) {
		return Agent{}, problem.NotFoundf("agent")
	}
	a, err := s.store.Agent(ctx, agentID)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && a.State != StateActive:
		return Agent{}, problem.NotFoundf("agent")
	case err != nil:
		return Agent{}, fmt.Errorf("failed to read agent %s: %w", agentID, err)
	}
	return a, nil
}

// Agents lists the owner's ACTIVE agents, newest first; before is the last id of the page before, or empty. limit is
// clamped to 1 to MaxPage. more reports whether there is a further page.
func (s *Service) Agents(ctx context.Context, owner authz.Caller, before string, limit int) (page []Agent, more bool, err error) {
	limit = min(max(limit, 1), MaxPage)
	// One more than is shown tells whether there is more; at the store's own limit, so does a full page.
	page, err = s.store.AgentsOf(ctx, owner.Environment, owner.Subject, before, min(limit+1, MaxPage))
	if err != nil {
		return nil, false, fmt.Errorf("failed to list agents: %w", err)
	}
	if len(page) > limit {
		return page[:limit], true, nil
	}
	return page, len(page) == MaxPage, nil
}

// Version returns a version of an ACTIVE agent that is in the chain from its current one; problem.NotFound otherwise.
func (s *Service) Version(ctx context.Context, agentID string, number int64) (Version, error) {
	a, err := s.Agent(ctx, agentID)
	if err != nil {
		return Version{}, err
	}
	for n := a.Version; n >= number && n > 0; {
		v, err := s.version(ctx, agentID, n)
		if err != nil || n == number {
			return v, err
		}
		n = v.Previous
	}
	return Version{}, problem.NotFoundf("version")
}

// Versions walks the chain from the current version backwards, from the first number below before (0: from the
// current one). limit is clamped to 1 to MaxPage.
func (s *Service) Versions(ctx context.Context, agentID string, before int64, limit int) (page []Version, more bool, err error) {
	a, err := s.Agent(ctx, agentID)
	if err != nil {
		return nil, false, err
	}
	limit = min(max(limit, 1), MaxPage)
	for n := a.Version; n > 0; {
		v, err := s.version(ctx, agentID, n)
		if err != nil {
			return nil, false, err
		}
		if before == 0 || n < before {
			if len(page) == limit {
				return page, true, nil
			}
			page = append(page, v)
		}
		n = v.Previous
	}
	return page, false, nil
}

// version reads one link of a chain; a missing one is corruption, not an absence.
func (s *Service) version(ctx context.Context, agentID string, number int64) (Version, error) {
	v, err := s.store.Version(ctx, agentID, number)
	if err != nil {
		return Version{}, fmt.Errorf("failed to read version %d of agent %s: %w", number, agentID, err)
	}
	return v, nil
}

// Validate answers what the harness makes of a draft. agentID is empty for a new agent. A malformed draft is a
// problem.Field error; an incompatible one is a report that is not Valid. Nothing is written.
func (s *Service) Validate(ctx context.Context, caller authz.Caller, agentID string, draft Blueprint) (Report, error) {
	if agentID == "" {
		return s.report(ctx, nil, draft)
	}
	a, err := s.Agent(ctx, agentID)
	if err != nil {
		return Report{}, err
	}
	if a.Environment != caller.Environment {
		return Report{}, problem.NotFoundf("agent")
	}
	return s.report(ctx, &a, draft)
}

// report judges a draft; a is the agent that it would change, or nil.
func (s *Service) report(ctx context.Context, a *Agent, draft Blueprint) (Report, error) {
	b, err := Normalise(draft)
	if err != nil {
		return Report{}, err
	}
	if err := Check(b); err != nil {
		return Report{}, err
	}
	r := s.reviewer.Review(ctx, b)
	r.Normalised = b
	if r.Fingerprint, err = Fingerprint(b); err != nil {
		return Report{}, err
	}
	if a == nil {
		return r, nil
	}
	if r.Impact.PinnedConversations, err = s.usage.PinnedConversations(ctx, *a, maxCounted); err != nil {
		return Report{}, fmt.Errorf("failed to count conversations of agent %s: %w", a.ID, err)
	}
	current, err := s.version(ctx, a.ID, a.Version)
	if err != nil {
		return Report{}, err
	}
	if r.Impact.PinnedConversations > 0 && current.Blueprint.HarnessID() != b.HarnessID() {
		r.Impact.HarnessChanged = true
		r.Issues = append(r.Issues, Issue{
			Path: "harness.id", Step: StepBasic, Code: CodeHarnessChanged, Severity: SeverityWarning,
			Message: fmt.Sprintf("existing conversations stay on %s with the version they have; saving needs a confirmation",
				current.Blueprint.HarnessID()),
		})
	}
	return r, nil
}
