package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// SaveRequest asks for a new version of an agent, or for a new agent.
type SaveRequest struct {
	Caller  authz.Caller
	AgentID string // empty creates an agent
	// ExpectedRevision is the Agent.Rev that the caller has seen: required for a change, 0 for a creation.
	ExpectedRevision int64
	Blueprint        Blueprint
	// Fingerprint and CatalogRevision are what the client validated, from its Report. Where one is not empty and not
	// what it is now, the outcome is Stale.
	Fingerprint     string
	CatalogRevision string
	Confirm         bool // a person's word for what needs one: another harness while there are conversations
}

// SaveResult is one of Saved, Failed, Stale, RevisionConflict and SlugTaken. Unless it is Saved, the agent and its
// tuples are as they were.
type SaveResult interface{ saveResult() }

type (
	// Saved: the version is current.
	Saved struct {
		Agent   Agent
		Version Version
	}
	// Failed: the draft is not valid, or needs a confirmation (an issue with CodeConfirmRequired).
	Failed struct{ Report Report }
	// Stale: the draft or the catalog is not what the client validated.
	Stale struct{ Report Report }
	// RevisionConflict: somebody else saved meanwhile.
	RevisionConflict struct{ Current int64 }
	// SlugTaken: another agent of the owner has the slug.
	SlugTaken struct{ Slug string }
)

func (Saved) saveResult()            {}
func (Failed) saveResult()           {}
func (Stale) saveResult()            {}
func (RevisionConflict) saveResult() {}
func (SlugTaken) saveResult()        {}

// attempts bounds how often one write is tried again after a lost race or an unknown outcome.
const attempts = 16

// finish bounds what goes on after the first write, also when the caller leaves.
const finish = 30 * time.Second

// Save validates again and writes: an immutable version, then the pointer to it. A crash between leaves the old
// version current. A creation is answered when the agent is ACTIVE, with its tuples written; when they cannot be, the
// creation is withdrawn and the error is problem.AuthorizationUnavailable.
func (s *Service) Save(ctx context.Context, q SaveRequest) (SaveResult, error) {
	if q.AgentID == "" {
		if q.ExpectedRevision != 0 {
			return nil, problem.Field("expectedRevision", "must be 0 or absent for a new agent")
		}
		return s.create(ctx, q)
	}
	if q.ExpectedRevision < 1 {
		return nil, problem.Field("expectedRevision", "is required to change an agent")
	}
	return s.change(ctx, q)
}

// judge returns the report, and a result where the draft is not to be saved.
func (s *Service) judge(ctx context.Context, q SaveRequest, a *Agent) (Report, SaveResult, error) {
	r, err := s.report(ctx, a, q.Blueprint)
	if err != nil {
		return r, nil, err
	}
	if (q.Fingerprint != "" && q.Fingerprint != r.Fingerprint) ||
		(q.CatalogRevision != "" && q.CatalogRevision != r.CatalogRevision) {
		return r, Stale{Report: r}, nil
	}
	if r.Impact.HarnessChanged && !q.Confirm {
		r.Valid = false
		r.Issues = append(r.Issues, Issue{
			Path: "harness.id", Step: StepBasic, Code: CodeConfirmRequired, Severity: SeverityError,
			Message: "changing the harness of an agent with conversations must be confirmed",
		})
	}
	if !r.Valid {
		return r, Failed{Report: r}, nil
	}
	return r, nil, nil
}

func (s *Service) create(ctx context.Context, q SaveRequest) (SaveResult, error) {
	r, refused, err := s.judge(ctx, q, nil)
	if refused != nil || err != nil {
		return refused, err
	}
	now := s.now()
	a := Agent{
		ID: id.New(id.Agent), Rev: 1, State: StateCreating,
		Environment: q.Caller.Environment, Owner: q.Caller.Subject, Slug: r.Normalised.Slug, Version: 1,
		LastOp: id.New("op"), CreatedAt: now, UpdatedAt: now,
	}
	a.Authz = a.Authz.Desire(authz.AgentTuples(a.ID, a.Owner)).Writing(s.self) // as of what follows
	v := newVersion(a.ID, 1, 0, r, q.Caller, now)

	// From the first write on, the caller's leaving must not leave half an agent behind.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finish)
	defer cancel()
	err = s.insertAgent(ctx, a)
	if errors.Is(err, ErrSlugTaken) {
		// The slug may be held by a creation or a deletion that is only waiting to be settled.
		if sweep := s.Settle(ctx); sweep != nil {
			s.logger.WarnContext(ctx, "agents are not settled", "error", sweep)
		}
		err = s.insertAgent(ctx, a)
	}
	if errors.Is(err, ErrSlugTaken) {
		return SlugTaken{Slug: a.Slug}, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = s.insertVersion(ctx, v)
	if err == nil {
		err = s.reconciler.Settle(ctx, authz.Agent(a.ID))
	}
	if err != nil {
		s.withdraw(ctx, a.ID)
	}
	// The document is the truth, also after an error: another process may have settled it.
	a, readErr := s.store.Agent(ctx, a.ID)
	switch {
	case readErr == nil && a.State == StateActive:
		return Saved{Agent: a, Version: v}, nil
	case errors.Is(err, authz.ErrUnavailable):
		return nil, problem.New(problem.AuthorizationUnavailable, "the agent was not created: authorization is unavailable").Because(err)
	case err == nil:
		if err = readErr; err == nil {
			err = errGivenUp
		}
	}
	return nil, fmt.Errorf("failed to create agent %s: %w", a.ID, err)
}

// errGivenUp: another process took the creation for abandoned.
var errGivenUp = errors.New("the creation took too long and was given up")

// insertAgent writes the document of a new agent. An unknown outcome is resolved by writing it again: the id is ours
// alone, so a duplicate is the first write.
func (s *Service) insertAgent(ctx context.Context, a Agent) error {
	unknown := false
	for range attempts {
		err := s.store.InsertAgent(ctx, a)
		switch {
		case err == nil, unknown && errors.Is(err, ErrExists):
			return nil
		case errors.Is(err, ErrUnknownOutcome):
			unknown = true
		case unknown && errors.Is(err, ErrSlugTaken):
			// Perhaps by our own first write.
			found, readErr := s.store.Agent(ctx, a.ID)
			if readErr == nil && found.LastOp == a.LastOp {
				return nil
			}
			if errors.Is(readErr, ErrNotFound) {
				return ErrSlugTaken
			}
		case errors.Is(err, ErrSlugTaken):
			return ErrSlugTaken
		default:
			return fmt.Errorf("failed to insert agent %s: %w", a.ID, err)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("failed to insert agent %s: %w", a.ID, err)
		}
	}
	return fmt.Errorf("failed to insert agent %s: %w", a.ID, ErrUnknownOutcome)
}

// withdraw takes back a creation that could not be finished, so that the caller's error is the truth. Where it has
// meanwhile become ACTIVE it stays. What cannot be taken back now is finished by the sweep.
func (s *Service) withdraw(ctx context.Context, agentID string) {
	for range attempts {
		a, err := s.store.Agent(ctx, agentID)
		if err != nil || a.State != StateCreating {
			return
		}
		err = s.store.UpdateAgent(ctx, deleting(a, s.now(), s.self))
		if err == nil {
			_ = s.reconciler.Settle(ctx, authz.Agent(agentID)) // frees the slug now; else the sweep does
			return
		}
		if !errors.Is(err, ErrRevision) && !errors.Is(err, ErrUnknownOutcome) {
			return
		}
	}
}

func (s *Service) change(ctx context.Context, q SaveRequest) (SaveResult, error) {
	a, err := s.Agent(ctx, q.AgentID)
	if err != nil {
		return nil, err
	}
	if a.Environment != q.Caller.Environment {
		return nil, problem.NotFoundf("agent")
	}
	if a.Rev != q.ExpectedRevision {
		return RevisionConflict{Current: a.Rev}, nil
	}
	r, refused, err := s.judge(ctx, q, &a)
	if refused != nil || err != nil {
		return refused, err
	}
	if r.Normalised.Slug != a.Slug {
		taken, err := s.slugTaken(ctx, a, r.Normalised.Slug)
		if err != nil {
			return nil, err
		}
		if taken {
			return SlugTaken{Slug: r.Normalised.Slug}, nil
		}
	}
	last, err := s.store.LastVersion(ctx, a.ID)
	if err != nil {
		return nil, fmt.Errorf("failed to read last version of agent %s: %w", a.ID, err)
	}
	now := s.now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finish)
	defer cancel()
	v, err := s.insertVersion(ctx, newVersion(a.ID, last+1, a.Version, r, q.Caller, now))
	if err != nil {
		return nil, err
	}
	next := a
	next.Rev++
	next.Version, next.Slug = v.Number, r.Normalised.Slug
	next.LastOp, next.UpdatedAt = id.New("op"), now
	return s.point(ctx, next, v)
}

// slugTaken looks for another agent with the slug before anything is written. The store's unique key decides; this
// only spares a version that nobody would see.
func (s *Service) slugTaken(ctx context.Context, a Agent, slug string) (bool, error) {
	for before := ""; ; {
		page, err := s.store.AgentsOf(ctx, a.Environment, a.Owner, before, MaxPage)
		if err != nil {
			return false, fmt.Errorf("failed to list agents: %w", err)
		}
		for _, other := range page {
			if before = other.ID; other.Slug == slug && other.ID != a.ID {
				return true, nil
			}
		}
		if len(page) < MaxPage {
			return false, nil
		}
	}
}

// point moves the agent's pointer, where the stored revision is the one before next's. After an unknown outcome the
// document tells: our operation, the revision that we came from, or a later one, whose chain holds our version
// exactly when our write came first.
func (s *Service) point(ctx context.Context, next Agent, v Version) (SaveResult, error) {
	for range attempts {
		err := s.store.UpdateAgent(ctx, next)
		switch {
		case err == nil:
			return Saved{Agent: next, Version: v}, nil
		case errors.Is(err, ErrSlugTaken):
			return SlugTaken{Slug: next.Slug}, nil
		case !errors.Is(err, ErrRevision) && !errors.Is(err, ErrUnknownOutcome):
			return nil, fmt.Errorf("failed to update agent %s: %w", next.ID, err)
		}
		found, err := s.store.Agent(ctx, next.ID)
		if err != nil {
			return nil, fmt.Errorf("failed to read agent %s: %w", next.ID, err)
		}
		switch {
		case found.LastOp == next.LastOp:
			return Saved{Agent: found, Version: v}, nil
		case found.Rev < next.Rev:
			continue // not written, or not yet: the same write again, under the same condition
		}
		mine, err := s.inChain(ctx, found, v.Number)
		if err != nil {
			return nil, err
		}
		if mine {
			return Saved{Agent: found, Version: v}, nil
		}
		return RevisionConflict{Current: found.Rev}, nil
	}
	return nil, fmt.Errorf("failed to update agent %s: %w", next.ID, ErrUnknownOutcome)
}

func (s *Service) inChain(ctx context.Context, a Agent, number int64) (bool, error) {
	for n := a.Version; n >= number && n > 0; {
		if n == number {
			return true, nil
		}
		v, err := s.version(ctx, a.ID, n)
		if err != nil {
			return false, err
		}
		n = v.Previous
	}
	return false, nil
}

// insertVersion writes v under its number, or the next that is free, and returns it as it was written.
func (s *Service) insertVersion(ctx context.Context, v Version) (Version, error) {
	for range attempts {
		err := s.store.InsertVersion(ctx, v)
		switch {
		case err == nil:
			return v, nil
		case errors.Is(err, ErrExists), errors.Is(err, ErrUnknownOutcome):
			found, readErr := s.store.Version(ctx, v.AgentID, v.Number)
			if readErr == nil && found.WrittenBy == v.WrittenBy {
				return v, nil
			}
			if readErr == nil {
				if v.Number == 1 {
					return v, fmt.Errorf("failed to insert version 1 of agent %s: %w", v.AgentID, ErrExists)
				}
				v.Number++
			} else if !errors.Is(readErr, ErrNotFound) {
				return v, fmt.Errorf("failed to read version %d of agent %s: %w", v.Number, v.AgentID, readErr)
			}
		default:
			return v, fmt.Errorf("failed to insert version %d of agent %s: %w", v.Number, v.AgentID, err)
		}
		if err := ctx.Err(); err != nil {
			return v, fmt.Errorf("failed to insert version %d of agent %s: %w", v.Number, v.AgentID, err)
		}
	}
	return v, fmt.Errorf("failed to insert version of agent %s: %w", v.AgentID, ErrUnknownOutcome)
}

func newVersion(agentID string, number, previous int64, r Report, c authz.Caller, now time.Time) Version {
	return Version{
		AgentID: agentID, Number: number, Previous: previous, Blueprint: r.Normalised, Fingerprint: r.Fingerprint,
		CatalogRevision: r.CatalogRevision, CreatedBy: c.Subject, CreatedAt: now, WrittenBy: id.New("op"),
	}
}
