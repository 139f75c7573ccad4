package openfga_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/openfga"
)

// documents stands for the committed documents of sessions and runs.
type documents struct {
	mu sync.Mutex
	of map[authz.Object]authz.Ownership
}

func (d *documents) Ownership(_ context.Context, o authz.Object) (authz.Ownership, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	own, ok := d.of[o]
	return own, ok, nil
}

const environment = "prod"

func guarded(t testing.TB, client *openfga.Client) *authz.Guard {
	t.Helper()
	at := time.Now()
	guard, err := authz.NewGuard(authz.GuardOptions{
		Checker: client, Environment: environment, Logger: quiet(), Now: func() time.Time { return at }, // a grant does not age
		Facts: &documents{of: map[authz.Object]authz.Ownership{
			authz.Session("ses_1"): {Environment: environment, Owner: "rita", AgentID: "agt_1", SessionID: "ses_1"},
			authz.Run("run_1"):     {Environment: environment, Owner: "rita", AgentID: "agt_1", SessionID: "ses_1"},
			authz.Run("run_far"):   {Environment: "test", Owner: "rita", AgentID: "agt_1", SessionID: "ses_1"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

func caller(t testing.TB, subject string) context.Context {
	return authz.WithCaller(t.Context(), authz.Caller{Environment: environment, Subject: subject})
}

// The guard on the real server: what each of three people may do, then after a revocation, then in an outage.
func TestGuardOnServer(t *testing.T) {
	server, client := start(t)
	guard := guarded(t, client)
	agent := authz.Agent("agt_1")
	owner := authz.AgentTuples("agt_1", "olga")
	apply(t, client, authz.Platform(), authz.PlatformTuples([]string{"ada"}, nil, true)...)
	apply(t, client, authz.Harness("deepagents"), authz.HarnessTuples("deepagents", true)...)
	apply(t, client, agent, append(owner, tuple("user:rita", authz.RelationRunner, "agent:agt_1"))...)

	expect := func(subject, permission string, o authz.Object, want problem.Code) {
		t.Helper()
		err := guard.Require(caller(t, subject), permission, o)
		if p, _ := problem.As(err); (err == nil) != (want == "") || (p != nil && p.Code != want) {
			t.Errorf("%s %s %s: %v, want %q", subject, permission, o, err, want)
		}
	}
	for _, s := range []string{"olga", "rita", "nina", "ada"} {
		expect(s, authz.CanCreateAgent, authz.Platform(), "")
		expect(s, authz.CanUse, authz.Harness("deepagents"), "")
		expect(s, authz.CanView, authz.Run("run_missing"), problem.NotFound)
		expect(s, authz.CanView, authz.Run("run_far"), problem.NotFound)
	}
	expect("ada", authz.CanIntrospect, authz.Platform(), "")
	expect("rita", authz.CanIntrospect, authz.Platform(), problem.Forbidden)
	expect("rita", authz.CanUse, agent, "")
	expect("rita", authz.CanViewConfig, agent, problem.NotFound)
	expect("rita", authz.CanRun, authz.Session("ses_1"), "")
	expect("rita", authz.CanCancel, authz.Run("run_1"), "")
	expect("rita", authz.CanResume, authz.Run("run_1"), "")
	for _, s := range []string{"olga", "nina", "ada"} {
		expect(s, authz.CanView, authz.Session("ses_1"), problem.NotFound)
		expect(s, authz.CanView, authz.Run("run_1"), problem.NotFound)
		expect(s, authz.CanCancel, authz.Run("run_1"), problem.NotFound)
		expect(s, authz.CanResume, authz.Run("run_1"), problem.NotFound)
		if _, err := guard.Recheck(caller(t, s), authz.CanView, authz.Run("run_1")); !problem.Is(err, problem.NotFound) {
			t.Errorf("%s streams another's run: %v", s, err)
		}
	}
	if _, err := guard.Recheck(caller(t, "rita"), authz.CanView, authz.Run("run_1")); err != nil {
		t.Error(err)
	}
	answers, err := guard.Allowed(caller(t, "rita"), authz.CanView, []authz.Object{authz.Run("run_far"), authz.Run("run_1"), agent, authz.Agent("agt_2")})
	if err != nil || answers[0] || !answers[1] || !answers[2] || answers[3] {
		t.Errorf("allowed: %v, %v", answers, err)
	}

	// Without the agent, what was said stays; going on does not.
	apply(t, client, agent, owner...)
	expect("rita", authz.CanUse, agent, problem.NotFound)
	expect("rita", authz.CanRun, authz.Session("ses_1"), problem.NotFound)
	expect("rita", authz.CanResume, authz.Run("run_1"), problem.NotFound)
	expect("rita", authz.CanView, authz.Session("ses_1"), "")
	expect("rita", authz.CanClear, authz.Session("ses_1"), "")
	expect("rita", authz.CanCancel, authz.Run("run_1"), "")

	if err := server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("ada", authz.CanIntrospect, authz.Platform(), problem.AuthorizationUnavailable)
	expect("olga", authz.CanView, agent, problem.AuthorizationUnavailable)
	expect("rita", authz.CanView, authz.Run("run_1"), problem.AuthorizationUnavailable)
	if answers, err := guard.Allowed(caller(t, "olga"), authz.CanView, []authz.Object{agent}); answers != nil || !problem.Is(err, problem.AuthorizationUnavailable) {
		t.Errorf("allowed in an outage: %v, %v", answers, err)
	}
	// A stream may go on until the moment it was told, on what was allowed before.
	if _, err := guard.Recheck(caller(t, "rita"), authz.CanView, authz.Run("run_1")); err != nil {
		t.Errorf("a grant of this moment is forgotten: %v", err)
	}
	if _, err := guard.Recheck(caller(t, "olga"), authz.CanView, agent); !problem.Is(err, problem.AuthorizationUnavailable) {
		t.Errorf("a stream begins in an outage: %v", err)
	}
}
