package authz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// relations is a checker that knows who has what directly, and records what it was asked.
type relations struct {
	allow map[string]bool // "user permission object"
	fail  error
	short bool
	asked []Check
}

func (r *relations) Check(_ context.Context, c Check) (bool, error) {
	r.asked = append(r.asked, c)
	if r.fail != nil {
		return true, r.fail // a checker that errs may say anything
	}
	return r.allow[c.User+" "+c.Relation+" "+c.Object.String()], nil
}

func (r *relations) CheckAll(ctx context.Context, cs []Check) ([]bool, error) {
	var out []bool
	for _, c := range cs {
		ok, _ := r.Check(ctx, c)
		out = append(out, ok)
	}
	if r.short {
		out = out[:len(out)-1]
	}
	return out, r.fail
}

type ownerships struct {
	of    map[Object]Ownership
	fail  error
	reads int
}

func (f *ownerships) Ownership(_ context.Context, o Object) (Ownership, bool, error) {
	f.reads++
	own, ok := f.of[o]
	return own, ok, f.fail
}

const here = "prod"

func newTestGuard(t *testing.T, c *relations, f *ownerships, now func() time.Time) *Guard {
	t.Helper()
	g, err := NewGuard(GuardOptions{Checker: c, Facts: f, Environment: here, Now: now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func as(t *testing.T, subject string) context.Context {
	return WithCaller(t.Context(), Caller{Environment: here, Subject: subject})
}

func TestRequire(t *testing.T) {
	facts := map[Object]Ownership{
		Session("ses_1"): {Environment: here, Owner: "rita", AgentID: "agt_1"},
		Run("run_1"):     {Environment: here, Owner: "rita", AgentID: "agt_1", SessionID: "ses_1"},
		Run("run_far"):   {Environment: "other", Owner: "rita", AgentID: "agt_1", SessionID: "ses_1"},
	}
	allow := map[string]bool{}
	for _, s := range []string{
		"can_create_agent platform:main", "can_view agent:agt_1", "can_edit agent:agt_1", "can_run session:ses_1",
		"can_view session:ses_1", "can_view run:run_1", "can_view run:run_far", "can_view run:run_missing", "can_use harness:h",
	} {
		allow["user:rita "+s] = true
	}
	rita := Caller{Environment: here, Subject: "rita"}
	rows := []struct {
		name       string
		caller     *Caller
		permission string
		object     Object
		checker    error
		facts      error
		want       problem.Code // "" for nil
		internal   bool
		sent       bool
	}{
		{name: "platform", caller: &rita, permission: CanCreateAgent, object: Platform(), sent: true},
		{name: "platform denied", caller: &rita, permission: CanIntrospect, object: Platform(), want: problem.Forbidden, sent: true},
		{name: "agent", caller: &rita, permission: CanView, object: Agent("agt_1"), sent: true},
		{name: "agent denied", caller: &rita, permission: CanDelete, object: Agent("agt_1"), want: problem.NotFound, sent: true},
		{name: "agent missing", caller: &rita, permission: CanView, object: Agent("agt_2"), want: problem.NotFound, sent: true},
		{name: "harness", caller: &rita, permission: CanUse, object: Harness("h"), sent: true},
		{name: "session", caller: &rita, permission: CanRun, object: Session("ses_1"), sent: true},
		{name: "session missing", caller: &rita, permission: CanView, object: Session("ses_2"), want: problem.NotFound, sent: true},
		{name: "run", caller: &rita, permission: CanView, object: Run("run_1"), sent: true},
		{name: "run denied", caller: &rita, permission: CanCancel, object: Run("run_1"), want: problem.NotFound, sent: true},
		{name: "run denied to go on", caller: &rita, permission: CanResume, object: Run("run_1"), want: problem.NotFound, sent: true},
		// The checker would say yes to these two: the guard's own rule denies.
		{name: "run missing", caller: &rita, permission: CanView, object: Run("run_missing"), want: problem.NotFound, sent: true},
		{name: "run of another environment", caller: &rita, permission: CanView, object: Run("run_far"), want: problem.NotFound, sent: true},
		{name: "caller of another environment", caller: &Caller{Environment: "other", Subject: "rita"}, permission: CanView, object: Agent("agt_1"), want: problem.NotFound, sent: true},
		{name: "the same on the platform", caller: &Caller{Environment: "other", Subject: "rita"}, permission: CanCreateAgent, object: Platform(), want: problem.Forbidden, sent: true},
		{name: "a run of the caller's, from another environment", caller: &Caller{Environment: "other", Subject: "rita"}, permission: CanView, object: Run("run_far"), want: problem.NotFound, sent: true},
		{name: "stranger", caller: &Caller{Environment: here, Subject: "nina"}, permission: CanView, object: Run("run_1"), want: problem.NotFound, sent: true},
		{name: "nobody", permission: CanView, object: Agent("agt_1"), want: problem.Unauthenticated},
		{name: "no environment", caller: &Caller{Subject: "rita"}, permission: CanView, object: Agent("agt_1"), want: problem.Unauthenticated},
		{name: "everybody", caller: &Caller{Environment: here, Subject: "*"}, permission: CanView, object: Agent("agt_1"), want: problem.Unauthenticated},
		{name: "userset", caller: &Caller{Environment: here, Subject: "x#member"}, permission: CanView, object: Agent("agt_1"), want: problem.Unauthenticated},
		{name: "hostile id", caller: &rita, permission: CanView, object: Agent("agt_1#owner"), want: problem.NotFound},
		{name: "hostile run id", caller: &rita, permission: CanView, object: Run("*"), want: problem.NotFound},
		{name: "long id", caller: &rita, permission: CanView, object: Agent(strings.Repeat("a", 129)), want: problem.NotFound},
		{name: "no answer", caller: &rita, permission: CanView, object: Agent("agt_1"), checker: ErrUnavailable, want: problem.AuthorizationUnavailable, sent: true},
		{name: "no answer on the platform", caller: &rita, permission: CanCreateAgent, object: Platform(), checker: errors.New("boom"), want: problem.AuthorizationUnavailable, sent: true},
		{name: "facts fail", caller: &rita, permission: CanView, object: Run("run_1"), facts: errors.New("disk"), internal: true},
		{name: "no such permission", caller: &rita, permission: CanIntrospect, object: Agent("agt_1"), internal: true},
		{name: "a relation is no permission", caller: &rita, permission: RelationOwner, object: Agent("agt_1"), internal: true},
		{name: "no such type", caller: &rita, permission: CanView, object: Object{Type: "document", ID: "d"}, internal: true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			checker := &relations{allow: allow, fail: row.checker}
			g := newTestGuard(t, checker, &ownerships{of: facts, fail: row.facts}, nil)
			ctx := t.Context()
			if row.caller != nil {
				ctx = WithCaller(ctx, *row.caller)
			}
			err := g.Require(ctx, row.permission, row.object)
			shown, isShown := problem.As(err)
			switch {
			case row.internal:
				if err == nil || isShown {
					t.Fatalf("got %v, want an internal error", err)
				}
			case row.want == "":
				if err != nil {
					t.Fatal(err)
				}
			case !isShown || shown.Code != row.want:
				t.Fatalf("got %v, want %s", err, row.want)
			case strings.Contains(err.Error(), row.object.ID):
				t.Fatalf("the message repeats what was asked for: %v", err)
			}
			if (len(checker.asked) > 0) != row.sent {
				t.Fatalf("asked %v, want asked %v", checker.asked, row.sent)
			}
			// The answer of one and of many must be the same.
			answers, err := g.Allowed(ctx, row.permission, []Object{row.object})
			switch {
			case row.internal || row.want == problem.Unauthenticated || (row.checker != nil && row.sent):
				if err == nil || answers != nil {
					t.Fatalf("Allowed: %v, %v", answers, err)
				}
			case err != nil || answers[0] != (row.want == ""):
				t.Fatalf("Allowed: %v, %v", answers, err)
			}
		})
	}
}

// Missing, denied and out of reach cannot be told apart.
func TestDenialsLookTheSame(t *testing.T) {
	g := newTestGuard(t, &relations{}, &ownerships{of: map[Object]Ownership{
		Run("run_1"): {Environment: here, Owner: "rita", SessionID: "ses_1"},
		Run("run_2"): {Environment: "other", Owner: "nina", SessionID: "ses_1"},
	}}, nil)
	var texts []string
	for _, id := range []string{"run_1", "run_2", "run_3", "no id at all"} {
		err := g.Require(as(t, "nina"), CanView, Run(id))
		p, _ := problem.As(err)
		texts = append(texts, fmt.Sprintf("%s %s %v %v %v", p.Code, p.Message, p.Field, p.Extra, errors.Unwrap(err)))
	}
	if len(slices.Compact(texts)) != 1 {
		t.Errorf("different answers: %q", texts)
	}
}

func TestRequireSendsFactsAndFreshness(t *testing.T) {
	checker := &relations{}
	facts := &ownerships{of: map[Object]Ownership{Run("run_1"): {Environment: here, Owner: "rita", AgentID: "agt_1", SessionID: "ses_1"}}}
	g := newTestGuard(t, checker, facts, nil)
	_ = g.Require(as(t, "rita"), CanCancel, Run("run_1"))
	got := checker.asked[0]
	want := []Tuple{
		{User: "user:rita", Relation: "owner", Object: "session:ses_1"},
		{User: "agent:agt_1", Relation: "agent", Object: "session:ses_1"},
		{User: "session:ses_1", Relation: "session", Object: "run:run_1"},
	}
	if got.User != "user:rita" || got.Relation != CanCancel || got.Object != Run("run_1") || !slices.Equal(got.Contextual, want) {
		t.Errorf("sent %+v", got)
	}
	if facts.reads != 1 {
		t.Errorf("%d reads of facts, want 1", facts.reads)
	}
	for permission, fresh := range map[string]bool{CanView: false, CanViewConfig: false, CanEdit: true, CanUse: true, CanDelete: true, CanShare: true} {
		checker.asked = nil
		_ = g.Require(as(t, "rita"), permission, Agent("agt_1"))
		if checker.asked[0].Fresh != fresh {
			t.Errorf("%s: fresh %v, want %v", permission, checker.asked[0].Fresh, fresh)
		}
	}
	if facts.reads != 1 {
		t.Error("facts were read for an agent")
	}
}

// Everything that is not a permission to read is a change, and is checked fresh.
func TestMutatingPermissions(t *testing.T) {
	reading := []string{CanList, CanIntrospect, CanView, CanViewConfig}
	for kind, names := range permissions {
		for _, name := range names {
			if mutating[name] == slices.Contains(reading, name) {
				t.Errorf("%s of %s: mutating %v", name, kind, mutating[name])
			}
		}
	}
}

func TestAllowedKeepsOrder(t *testing.T) {
	checker := &relations{allow: map[string]bool{}}
	var objects []Object
	var want []bool
	for i := range 100 {
		id := fmt.Sprintf("agt_%d", i)
		if i%7 == 3 {
			id += " bad"
		}
		objects = append(objects, Agent(id))
		want = append(want, i%3 == 0 && i%7 != 3)
		checker.allow["user:rita can_view agent:"+id] = i%3 == 0
	}
	g := newTestGuard(t, checker, &ownerships{}, nil)
	got, err := g.Allowed(as(t, "rita"), CanView, objects)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := g.Allowed(as(t, "rita"), CanView, nil); err != nil || len(got) != 0 {
		t.Errorf("nothing: %v, %v", got, err)
	}
	if _, err := g.Allowed(as(t, "rita"), CanView, make([]Object, MaxObjects+1)); err == nil {
		t.Error("too many objects were taken")
	}
	checker.short = true
	if got, err := g.Allowed(as(t, "rita"), CanView, objects); got != nil || !problem.Is(err, problem.AuthorizationUnavailable) {
		t.Errorf("an answer too few: %v, %v", got, err)
	}
}

func TestEndedContextIsNoOutage(t *testing.T) {
	ctx, cancel := context.WithCancel(as(t, "rita"))
	cancel()
	g := newTestGuard(t, &relations{fail: ErrUnavailable}, &ownerships{}, nil)
	if err := g.Require(ctx, CanView, Agent("agt_1")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestNewGuardWantsItsParts(t *testing.T) {
	for name, o := range map[string]GuardOptions{
		"nothing":        {},
		"no checker":     {Facts: &ownerships{}, Environment: here},
		"no facts":       {Checker: &relations{}, Environment: here},
		"no environment": {Checker: &relations{}, Facts: &ownerships{}},
	} {
		if _, err := NewGuard(o); err == nil {
			t.Errorf("%s: a guard was made", name)
		}
	}
	g, err := NewGuard(GuardOptions{Checker: &relations{}, Facts: &ownerships{}, Environment: here, MaxAge: time.Hour})
	if err != nil || g.maxAge != MaxAge {
		t.Errorf("max age %v, %v", g.maxAge, err)
	}
}
