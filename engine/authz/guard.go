package authz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// Limits of a Guard.
const (
	// MaxAge is the longest that an allowed check may be relied on by a stream, counted from the moment the check was
	// sent, not from its answer.
	MaxAge = 5 * time.Second
	// MaxObjects is the most objects that one call of Allowed takes.
	MaxObjects = 1000
)

// Ownership is what a check has to know of a session or run. It comes from the committed document.
type Ownership struct {
	Environment string
	Owner       string // subject that owns the session, without type
	AgentID     string // agent that the session talks to
	SessionID   string // session of the run; the session's own id for a session
}

// Facts reads the ownership of sessions and runs: the one read that comes before the answer of a check.
type Facts interface {
	// Ownership returns false where there is no such object, or none that a client may see.
	Ownership(ctx context.Context, o Object) (Ownership, bool, error)
}

// GuardOptions configure a Guard. Checker, Facts and Environment are required.
type GuardOptions struct {
	Checker Checker
	Facts   Facts
	// Environment is the one whose tuples the Checker answers from; callers of any other are denied everything.
	Environment string
	Logger      *slog.Logger     // nil: slog.Default()
	Now         func() time.Time // nil: time.Now; must carry a monotonic reading outside tests
	// MaxAge shortens the package's MaxAge, which is also the default and the upper bound.
	MaxAge time.Duration
}

// Guard decides whether the caller in a context may do something. Whatever it cannot find out is denied. Its methods
// may be called concurrently.
type Guard struct {
	checker     Checker
	facts       Facts
	environment string
	logger      *slog.Logger
	now         func() time.Time
	maxAge      time.Duration
	grants      *grants
	requires    *flights[struct{}]
	rechecks    *flights[time.Time]
}

// NewGuard returns a Guard. It fails when a required option is missing.
func NewGuard(o GuardOptions) (*Guard, error) {
	if o.Checker == nil || o.Facts == nil || o.Environment == "" {
		return nil, errors.New("authz: a guard needs a checker, facts and an environment")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxAge <= 0 || o.MaxAge > MaxAge {
		o.MaxAge = MaxAge
	}
	return &Guard{
		checker:     o.Checker,
		facts:       o.Facts,
		environment: o.Environment,
		logger:      o.Logger,
		now:         o.Now,
		maxAge:      o.MaxAge,
		grants:      newGrants(maxGrants),
		requires:    newFlights[struct{}](),
		rechecks:    newFlights[time.Time](),
	}, nil
}

// Require returns nil when the caller has the permission on the object. Otherwise the error is one of
//   - problem.Unauthenticated: the context carries no valid caller;
//   - problem.Forbidden: denied on the platform;
//   - problem.NotFound: denied on anything else, with the same text whether the object exists or not;
//   - problem.AuthorizationUnavailable: no answer, so no; the client may try again;
//   - another error, which is internal: ownership could not be read, the permission does not exist, or ctx ended.
//
// What guards a change is asked past every cache, each time by itself; other questions that are equal share an answer while it
// is on its way.
func (g *Guard) Require(ctx context.Context, permission string, o Object) error {
	caller, err := g.caller(ctx)
	if err != nil {
		return err
	}
	if mutating[permission] {
		return g.require(ctx, caller, permission, o, true)
	}
	_, err = g.requires.do(ctx, grant{caller: caller, permission: permission, object: o}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, g.require(ctx, caller, permission, o, false)
	})
	return err
}

func (g *Guard) require(ctx context.Context, caller Caller, permission string, o Object, fresh bool) error {
	c, known, err := g.check(ctx, caller, permission, o, fresh)
	if err != nil {
		return err
	}
	if !c.sendable() {
		return denied(o)
	}
	ok, err := g.checker.Check(ctx, c)
	if err != nil {
		return g.unanswered(ctx, err)
	}
	if !ok || !known {
		g.logger.DebugContext(ctx, "authorization denied", "subject", caller.Subject, "permission", permission, "type", o.Type, "id", o.ID)
		return denied(o)
	}
	return nil
}

// Allowed answers for each object, in order, whether the caller has the permission; lists are filtered with it, and nothing is
// changed upon its word, so unlike Require it never asks past caches. At most MaxObjects objects. An error denies all of them.
func (g *Guard) Allowed(ctx context.Context, permission string, objects []Object) ([]bool, error) {
	caller, err := g.caller(ctx)
	if err != nil {
		return nil, err
	}
	if len(objects) > MaxObjects {
		return nil, fmt.Errorf("authz: %d objects in one question, at most %d", len(objects), MaxObjects)
	}
	result := make([]bool, len(objects))
	checks := make([]Check, 0, len(objects))
	at := make([]int, 0, len(objects)) // checks[i] is about objects[at[i]]
	for i, o := range objects {
		c, known, err := g.check(ctx, caller, permission, o, false)
		if err != nil {
			return nil, err
		}
		if known && c.sendable() {
			checks, at = append(checks, c), append(at, i)
		}
	}
	if len(checks) == 0 {
		return result, nil
	}
	answers, err := g.checker.CheckAll(ctx, checks)
	if err != nil {
		return nil, g.unanswered(ctx, err)
	}
	if len(answers) != len(checks) {
		return nil, g.unanswered(ctx, fmt.Errorf("%d answers to %d checks: %w", len(answers), len(checks), ErrUnavailable))
	}
	for i, ok := range answers {
		result[at[i]] = ok
	}
	return result, nil
}

// Recheck is Require for streams. It answers nil and the moment until which the stream may deliver: at most MaxAge
// after the check behind the answer was sent. Only allowed answers are remembered, and those that were not sent to the
// checker anew were sent less than MaxAge ago. All streams of one caller on one object share a check: one that is under
// way answers whoever asks meanwhile. Call Recheck again in the last fifth of the time, when the check is sent anew, or
// when the moment has passed, before the next write; on problem.AuthorizationUnavailable hold what is to be delivered, try
// again, and end the stream when it lasts.
func (g *Guard) Recheck(ctx context.Context, permission string, o Object) (until time.Time, err error) {
	caller, err := g.caller(ctx)
	if err != nil {
		return time.Time{}, err
	}
	key := grant{caller: caller, permission: permission, object: o}
	if until, ok := g.remembered(key, g.now()); ok {
		return until, nil
	}
	return g.rechecks.do(ctx, key, func(ctx context.Context) (time.Time, error) {
		sent := g.now()
		if until, ok := g.remembered(key, sent); ok { // another one has just ended
			return until, nil
		}
		if err := g.require(ctx, caller, permission, o, true); err != nil {
			g.grants.forget(key)
			return time.Time{}, err
		}
		until := sent.Add(g.maxAge)
		g.grants.put(key, sent, until)
		return until, nil
	})
}

// remembered finds a grant that lasts. One that ends soon is asked for anew: a stream that asks ahead does not have to
// hold what it delivers while it waits for the answer.
func (g *Guard) remembered(key grant, now time.Time) (until time.Time, ok bool) {
	until, ok = g.grants.get(key, now)
	return until, ok && until.Sub(now) > g.maxAge/5
}

// caller finds the caller, who must be of the guard's form; nothing else reaches the checker.
func (g *Guard) caller(ctx context.Context) (Caller, error) {
	c, ok := CallerFrom(ctx)
	if !ok || c.Environment == "" || !validSubject(c.Subject) {
		return Caller{}, problem.New(problem.Unauthenticated, "authentication required")
	}
	return c, nil
}

// check builds the check with its contextual tuples; known is false where the object is not there or is out of the
// caller's environment. It is asked of the checker all the same, so that missing and denied take the same time.
func (g *Guard) check(ctx context.Context, caller Caller, permission string, o Object, fresh bool) (c Check, known bool, err error) {
	if !slices.Contains(permissions[o.Type], permission) {
		return Check{}, false, fmt.Errorf("authz: type %q has no permission %q", o.Type, permission)
	}
	c = Check{User: TypeUser + ":" + caller.Subject, Relation: permission, Object: o, Fresh: fresh}
	known = caller.Environment == g.environment
	if !validID(o.ID) || (o.Type != TypeSession && o.Type != TypeRun) {
		return c, known, nil
	}
	own, found, err := g.facts.Ownership(ctx, o)
	if err != nil {
		return Check{}, false, fmt.Errorf("failed to read ownership of %s %s: %w", o.Type, o.ID, err)
	}
	known = known && found && own.Environment == caller.Environment
	if known {
		c.Contextual = own.tuples(o)
	}
	return c, known, nil
}

// tuples states the ownership as the model wants it.
func (own Ownership) tuples(o Object) []Tuple {
	session := Object{Type: TypeSession, ID: own.SessionID}
	if o.Type == TypeSession {
		session = o
	}
	ts := make([]Tuple, 0, 3)
	if validSubject(own.Owner) {
		ts = append(ts, Tuple{User: TypeUser + ":" + own.Owner, Relation: RelationOwner, Object: session.String()})
	}
	if validID(own.AgentID) {
		ts = append(ts, Tuple{User: TypeAgent + ":" + own.AgentID, Relation: RelationAgent, Object: session.String()})
	}
	if o.Type == TypeRun {
		ts = append(ts, Tuple{User: session.String(), Relation: RelationSession, Object: o.String()})
	}
	return ts
}

// sendable reports whether the object has a form that can have tuples. Callers choose object ids, and OpenFGA gives
// some characters a meaning.
func (c Check) sendable() bool { return validID(c.Object.ID) }

func denied(o Object) error {
	if o.Type == TypePlatform {
		return problem.New(problem.Forbidden, "not allowed")
	}
	return problem.NotFoundf(o.Type)
}

// unanswered turns the failure of a check into what the client may see.
func (g *Guard) unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("failed to check authorization: %w", ctx.Err())
	}
	g.logger.WarnContext(ctx, "authorization gave no answer, denied", "error", err)
	return problem.New(problem.AuthorizationUnavailable, "authorization is unavailable, try again").
		With("retryable", true).Because(err)
}
