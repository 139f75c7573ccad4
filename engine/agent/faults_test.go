package agent

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// whole checks what must hold whatever happened: each visible agent points to a version that is there, whose chain is
// whole, and has exactly its owner's tuples; nothing else has any.
func (b *bench) whole() {
	b.t.Helper()
	for id, a := range b.store.agents {
		want := ""
		if a.State == StateActive {
			want = "user:alice owner"
			for n := a.Version; n != 0; {
				v, ok := b.store.versions[id][n]
				if !ok {
					b.t.Fatalf("%s points to version %d, which is missing", id, n)
				}
				n = v.Previous
			}
		}
		if got := b.tuples.of(id); got != want {
			b.t.Errorf("%s is %s and has the tuples %q", id, a.State, got)
		}
		// Whose write got no answer stays among the writers for a while.
		if a.State == StateCreating || a.State == StateDeleting || a.Authz.DesiredRev != a.Authz.AppliedRev || len(a.Authz.Writers) > 1 {
			b.t.Errorf("%s is not settled: %+v", id, a)
		}
	}
}

// TestEveryFaultAtEveryWrite injects each fault at each write of a creation and of a change, and then lets a new engine
// settle.
func TestEveryFaultAtEveryWrite(t *testing.T) {
	for _, f := range []fault{refused, unknownDone, unknownLost, crashBefore, crashAfter} {
		for n := 1; n <= 3; n++ {
			t.Run(fmt.Sprintf("create, fault %d at write %d", f, n), func(t *testing.T) {
				b := newBench(t)
				b.inject(n, f)
				r, err := b.save(nil)
				saved, ok := r.(Saved)
				if unknown := f == unknownDone || f == unknownLost; unknown && !ok {
					t.Errorf("an unknown outcome was not resolved: %#v, %v", r, err)
				}
				if (err == nil) != ok {
					t.Errorf("got %#v, %v", r, err)
				}
				b.restart()
				b.now = b.now.Add(time.Hour) // older than an abandoned creation
				if err := b.service.Settle(t.Context()); err != nil {
					t.Fatal(err)
				}
				b.whole()
				if ok {
					if a, err := b.service.Agent(t.Context(), saved.Agent.ID); err != nil || !reflect.DeepEqual(a, saved.Agent) {
						t.Errorf("answered %+v, is %+v, %v", saved.Agent, a, err)
					}
				} else if f == refused {
					if page, _, err := b.service.Agents(t.Context(), alice, "", 10); err != nil || len(page) != 0 {
						t.Errorf("refused, yet there is %+v, %v", page, err)
					}
					b.saved(nil) // and the slug is free
				}
			})
		}
		for n := 1; n <= 2; n++ {
			t.Run(fmt.Sprintf("change, fault %d at write %d", f, n), func(t *testing.T) {
				b := newBench(t)
				old := b.saved(nil)
				b.inject(n, f)
				r, err := b.save(edit(old.Agent, renamed("New")))
				saved, ok := r.(Saved)
				if unknown := f == unknownDone || f == unknownLost; unknown != ok {
					t.Errorf("got %#v, %v", r, err)
				}
				b.restart()
				if err := b.service.Settle(t.Context()); err != nil {
					t.Fatal(err)
				}
				b.whole()
				a, err := b.service.Agent(t.Context(), old.Agent.ID)
				if err != nil {
					t.Fatal(err)
				}
				v, err := b.service.Version(t.Context(), a.ID, a.Version)
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case ok && v.Number != saved.Version.Number, f == refused && v.Number != 1:
					t.Errorf("answered %#v, current is version %d", r, v.Number)
				case v.Number != 1 && v.Blueprint.Name != "New":
					t.Errorf("current is neither the old nor the new version: %+v", v)
				}
				b.saved(edit(a, renamed("Next"))) // the agent can still be changed
				b.whole()
			})
		}
	}
}

func TestAnUnknownPointerMoveThatWasOvertaken(t *testing.T) {
	b := newBench(t)
	a := b.saved(nil).Agent
	// The pointer move happened, its outcome is unknown, and before it is looked up somebody saves on top of it.
	v, err := b.service.insertVersion(t.Context(), newVersion(a.ID, 2, 1, Report{Normalised: good()}, alice, b.now))
	if err != nil {
		t.Fatal(err)
	}
	next := a
	next.Rev, next.Version, next.LastOp = a.Rev+1, 2, "op_mine"
	if err := b.store.UpdateAgent(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	b.saved(edit(next, renamed("On top")))
	r, err := b.service.point(t.Context(), next, v)
	if s, ok := r.(Saved); err != nil || !ok || s.Agent.Version != 3 || s.Version.Number != 2 {
		t.Errorf("got %#v, %v; our version is in the chain", r, err)
	}
	// The same, but our move never happened.
	lost, err := b.service.insertVersion(t.Context(), newVersion(a.ID, 4, 1, Report{Normalised: good()}, alice, b.now))
	if err != nil {
		t.Fatal(err)
	}
	next.Version, next.LastOp = 4, "op_lost"
	if r, err := b.service.point(t.Context(), next, lost); err != nil || r != (RevisionConflict{Current: a.Rev + 2}) {
		t.Errorf("got %#v, %v; our version is in no chain", r, err)
	}
}

func TestAuthorizationDownMeansNoAgentAndAFreeSlug(t *testing.T) {
	b := newBench(t)
	b.tuples.down = true
	r, err := b.save(nil)
	if r != nil || !problem.Is(err, problem.AuthorizationUnavailable) {
		t.Fatalf("got %#v, %v", r, err)
	}
	if page, _, err := b.service.Agents(t.Context(), alice, "", 10); err != nil || len(page) != 0 {
		t.Errorf("there is %+v, %v", page, err)
	}
	b.tuples.down = false
	s := b.saved(nil) // the same slug
	b.whole()
	if page, _, _ := b.service.Agents(t.Context(), alice, "", 10); len(page) != 1 || page[0].ID != s.Agent.ID {
		t.Errorf("there is %+v", page)
	}
}

// A sweep of another engine meets a creation that is under way: it must neither give it up nor show it early.
func TestASweepLeavesACreationAlone(t *testing.T) {
	b := newBench(t)
	now := b.service.now()
	a := Agent{ID: "agt_young", Rev: 1, State: StateCreating, Environment: "test", Owner: "alice", Slug: "x", Version: 1, CreatedAt: now}
	a.Authz = a.Authz.Desire(authz.AgentTuples(a.ID, a.Owner))
	if err := b.store.InsertAgent(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if err := b.service.Settle(t.Context()); err != nil || b.store.agents[a.ID].State != StateCreating || b.tuples.of(a.ID) != "" {
		t.Fatalf("%v; the creation is %+v", err, b.store.agents[a.ID])
	}
	if _, err := b.service.Agent(t.Context(), a.ID); !problem.Is(err, problem.NotFound) {
		t.Errorf("it is visible: %v", err)
	}
	b.now = now.Add(2 * time.Minute)
	if err := b.service.Settle(t.Context()); err != nil || b.store.agents[a.ID].State != StateDeleted {
		t.Errorf("%v; the abandoned creation is %+v", err, b.store.agents[a.ID])
	}
	b.whole()
}

// A creation that was given up while it still ran says so, and leaves nothing.
func TestACreationThatWasGivenUp(t *testing.T) {
	b := newBench(t)
	b.tuples.during = func() {
		b.tuples.during = nil
		for id, a := range b.store.agents {
			if err := b.store.UpdateAgent(b.t.Context(), deleting(a, b.now, "eng_other")); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
	}
	if r, err := b.save(nil); r != nil || err == nil || !strings.Contains(err.Error(), "given up") {
		t.Errorf("got %#v, %v", r, err)
	}
	b.whole()
}

// The caller's leaving after the first write does not leave half an agent.
func TestTheCallerLeaves(t *testing.T) {
	b := newBench(t)
	ctx, leave := context.WithCancel(t.Context())
	b.tuples.during = leave
	r, err := b.service.Save(ctx, SaveRequest{Caller: alice, Blueprint: good()})
	if _, ok := r.(Saved); !ok || err != nil {
		t.Errorf("got %#v, %v", r, err)
	}
	b.whole()
}
