package authz

import (
	"context"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/problem"
)

func TestRecheck(t *testing.T) {
	now := time.Unix(1000, 0)
	start := now
	checker := &relations{allow: map[string]bool{"user:rita can_view agent:a": true}}
	g := newTestGuard(t, checker, &ownerships{}, func() time.Time { return now })
	recheck := func(subject string) (time.Time, error) { return g.Recheck(as(t, subject), CanView, Agent("a")) }

	until, err := recheck("rita")
	if err != nil || !until.Equal(start.Add(MaxAge)) || !checker.asked[0].Fresh {
		t.Fatalf("until %v, %v, asked %+v", until, err, checker.asked)
	}
	// Within the time the answer is remembered, even though the permission is gone; it is never made longer by that.
	checker.allow = nil
	now = start.Add(MaxAge*4/5 - time.Millisecond)
	if until, err := recheck("rita"); err != nil || !until.Equal(start.Add(MaxAge)) || len(checker.asked) != 1 {
		t.Fatalf("until %v, %v, asked %d", until, err, len(checker.asked))
	}
	// Nobody else profits from it.
	if _, err := recheck("nina"); !problem.Is(err, problem.NotFound) {
		t.Fatalf("stranger: %v", err)
	}
	if _, err := g.Recheck(as(t, "rita"), CanEdit, Agent("a")); !problem.Is(err, problem.NotFound) {
		t.Fatalf("other permission: %v", err)
	}
	other := WithCaller(t.Context(), Caller{Environment: "other", Subject: "rita"})
	if _, err := g.Recheck(other, CanView, Agent("a")); !problem.Is(err, problem.NotFound) {
		t.Fatalf("other environment: %v", err)
	}
	// At its end it is gone.
	now = start.Add(MaxAge)
	if _, err := recheck("rita"); !problem.Is(err, problem.NotFound) {
		t.Fatalf("after the end: %v", err)
	}
	// A denial is not remembered, nor is an outage.
	checker.fail = ErrUnavailable
	if _, err := recheck("rita"); !problem.Is(err, problem.AuthorizationUnavailable) {
		t.Fatalf("outage: %v", err)
	}
	checker.fail, checker.allow = nil, map[string]bool{"user:rita can_view agent:a": true}
	if until, err := recheck("rita"); err != nil || !until.Equal(now.Add(MaxAge)) {
		t.Fatalf("granted again: %v, %v", until, err)
	}
	if _, err := g.Recheck(t.Context(), CanView, Agent("a")); !problem.Is(err, problem.Unauthenticated) {
		t.Fatalf("nobody: %v", err)
	}
}

// The time counts from the sending of the check, not from its answer.
func TestRecheckCountsFromTheQuestion(t *testing.T) {
	now := time.Unix(1000, 0)
	start := now
	checker := &slow{relations: relations{allow: map[string]bool{"user:rita can_view agent:a": true}}, wait: func() { now = now.Add(3 * time.Second) }}
	g, err := NewGuard(GuardOptions{Checker: checker, Facts: &ownerships{}, Environment: here, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	until, err := g.Recheck(as(t, "rita"), CanView, Agent("a"))
	if err != nil || !until.Equal(start.Add(MaxAge)) {
		t.Errorf("until %v, %v", until, err)
	}
}

func TestGrantsAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	g := newGrants(3)
	key := func(s string) grant { return grant{caller: Caller{Subject: s}} }
	for _, s := range []string{"a", "b", "c"} {
		g.put(key(s), now, now.Add(time.Second))
	}
	g.put(key("d"), now, now.Add(time.Second))
	if _, ok := g.get(key("d"), now); ok || len(g.until) != 3 {
		t.Errorf("%d grants in a table of 3", len(g.until))
	}
	g.put(key("a"), now, now.Add(3*time.Second)) // known, so there is room
	if until, ok := g.get(key("a"), now.Add(2*time.Second)); !ok || !until.Equal(now.Add(3*time.Second)) {
		t.Error("a known grant was not renewed")
	}
	g.put(key("a"), now, now.Add(time.Second))
	if _, ok := g.get(key("a"), now.Add(2*time.Second)); !ok {
		t.Error("an older answer shortened a newer one")
	}
	now = now.Add(time.Second)
	g.put(key("d"), now, now.Add(time.Second))
	if _, ok := g.get(key("d"), now); !ok || len(g.until) != 2 {
		t.Errorf("expired grants hold the room: %d", len(g.until))
	}
}

// slow is a checker that takes its time.
type slow struct {
	relations
	wait func()
}

func (s *slow) Check(ctx context.Context, c Check) (bool, error) {
	s.wait()
	return s.relations.Check(ctx, c)
}

// Who asks ahead gets an answer that lasts longer.
func TestRecheckAhead(t *testing.T) {
	now := time.Unix(1000, 0)
	checker := &relations{allow: map[string]bool{"user:rita can_view agent:a": true}}
	g := newTestGuard(t, checker, &ownerships{}, func() time.Time { return now })
	for i := range 3 {
		if until, err := g.Recheck(as(t, "rita"), CanView, Agent("a")); err != nil || !until.Equal(now.Add(MaxAge)) || len(checker.asked) != i+1 {
			t.Errorf("until %v, %v, asked %d", until, err, len(checker.asked))
		}
		now = now.Add(MaxAge * 9 / 10)
	}
}
