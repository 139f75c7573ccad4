package transport

import (
	"testing"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
)

func TestQuota(t *testing.T) {
	q := newQuota(4, 2)
	alice, bob := authz.Caller{Subject: "alice"}, authz.Caller{Subject: "bob"}
	take := func(who authz.Caller, want problem.Code) func() {
		t.Helper()
		release, p := q.take(who)
		if got := codeOf(p); got != want {
			t.Fatalf("%v: %q, want %q", who, got, want)
		}
		return release
	}
	first := take(alice, "")
	take(alice, "")
	take(alice, problem.RateLimited)
	take(bob, "")
	nobody := take(authz.Caller{}, "")
	take(bob, problem.Capacity)
	take(authz.Caller{}, problem.Capacity)
	first()
	first() // counts once
	take(alice, "")
	take(bob, problem.Capacity)
	nobody()
	take(bob, "")
	if q.open != 4 || q.of[alice] != 2 || q.of[bob] != 2 || len(q.of) != 2 {
		t.Errorf("%+v", q)
	}
}

func TestQuotaForgetsWhoLeft(t *testing.T) {
	q := newQuota(4, 2)
	release, _ := q.take(authz.Caller{Subject: "alice"})
	release()
	if q.open != 0 || len(q.of) != 0 {
		t.Errorf("%+v", q)
	}
}

func codeOf(p *problem.Error) problem.Code {
	if p == nil {
		return ""
	}
	return p.Code
}
