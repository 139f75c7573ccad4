package openfga_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/openfga"
)

// holds reports, by fresh checks, who of the subjects has the relation that tuples state of the object.
func holds(t testing.TB, client *openfga.Client, object authz.Object, relation string, subjects []string) map[string]bool {
	t.Helper()
	checks := make([]authz.Check, len(subjects))
	for i, s := range subjects {
		checks[i] = authz.Check{User: "user:" + s, Relation: relation, Object: object, Fresh: true}
	}
	answers, err := client.CheckAll(t.Context(), checks)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for i, s := range subjects {
		out[s] = answers[i]
	}
	return out
}

func people(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("user%d", i)
	}
	return out
}

// Whatever was there before, afterwards exactly the desired tuples are, and those of other objects are untouched.
func TestApplyMakesItSo(t *testing.T) {
	_, client := start(t)
	subjects := people(3)
	relations := []string{authz.RelationOwner, authz.RelationEditor, authz.RelationRunner, authz.RelationViewer}
	bystander := authz.Agent("bystander")
	apply(t, client, bystander, authz.AgentTuples("bystander", "olga")...)
	object := authz.Agent("a")
	rapid.Check(t, func(rt *rapid.T) {
		desired := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) authz.Tuple {
			return tuple("user:"+rapid.SampledFrom(subjects).Draw(rt, "subject"), rapid.SampledFrom(relations).Draw(rt, "relation"), "agent:a")
		}), 0, 12).Draw(rt, "desired")
		for range rapid.IntRange(1, 2).Draw(rt, "times") { // a second time changes nothing
			if err := client.Apply(t.Context(), object, desired); err != nil {
				rt.Fatal(err)
			}
		}
		want := map[authz.Tuple]bool{}
		for _, d := range desired {
			want[d] = true
		}
		var checks []authz.Check
		for _, relation := range relations {
			for _, s := range subjects {
				checks = append(checks, authz.Check{User: "user:" + s, Relation: relation, Object: object, Fresh: true})
			}
		}
		answers, err := client.CheckAll(t.Context(), checks)
		if err != nil {
			rt.Fatal(err)
		}
		for i, c := range checks {
			if answers[i] != want[tuple(c.User, c.Relation, "agent:a")] {
				rt.Fatalf("%s %s: %v", c.User, c.Relation, answers[i])
			}
		}
	})
	if !holds(t, client, bystander, authz.RelationOwner, []string{"olga"})["olga"] {
		t.Error("another object lost its owner")
	}
}

func TestApplyMoreThanOneWriteTakes(t *testing.T) {
	_, client := start(t)
	object, subjects := authz.Agent("a"), people(230)
	var many []authz.Tuple
	for _, s := range subjects {
		many = append(many, tuple("user:"+s, authz.RelationRunner, "agent:a"))
	}
	apply(t, client, object, many...)
	for s, ok := range holds(t, client, object, authz.RelationRunner, subjects) {
		if !ok {
			t.Errorf("%s is missing", s)
		}
	}
	apply(t, client, object, many[:120]...)
	left := holds(t, client, object, authz.RelationRunner, subjects)
	for i, s := range subjects {
		if left[s] != (i < 120) {
			t.Errorf("%s: %v", s, left[s])
		}
	}
	apply(t, client, object)
	for s, ok := range holds(t, client, object, authz.RelationRunner, subjects) {
		if ok {
			t.Errorf("%s is left", s)
		}
	}
}

// Two engines that apply the same state at once must both succeed, and calls with different states must not mix them.
func TestApplyAtOnce(t *testing.T) {
	server, first := start(t)
	second := connect(t, server)
	object := authz.Agent("a")
	same := []authz.Tuple{tuple("user:olga", "owner", "agent:a"), tuple("user:ed", "editor", "agent:a"), tuple("user:*", "runner", "agent:a")}
	for range 10 {
		var wg sync.WaitGroup
		for _, client := range []*openfga.Client{first, second, first, second} {
			wg.Go(func() {
				if err := client.Apply(t.Context(), object, same); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if !holds(t, first, object, "runner", []string{"nina"})["nina"] {
			t.Fatal("not applied")
		}
		apply(t, first, object)
	}

	var wg sync.WaitGroup
	subjects := people(8)
	for _, s := range subjects {
		wg.Go(func() {
			if err := first.Apply(t.Context(), object, []authz.Tuple{tuple("user:"+s, "owner", "agent:a"), tuple("user:"+s, "editor", "agent:a")}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	owners, editors := holds(t, first, object, "owner", subjects), holds(t, first, object, "editor", subjects)
	count := 0
	for _, s := range subjects {
		if owners[s] != editors[s] {
			t.Errorf("%s: owner %v, editor %v: two states were mixed", s, owners[s], editors[s])
		}
		if owners[s] {
			count++
		}
	}
	if count != 1 {
		t.Errorf("%d states hold, want 1", count)
	}
}

func TestApplyStartsAnewAfterConflict(t *testing.T) {
	server, _ := start(t)
	var conflicts, writes atomic.Int32
	front := between(t, server, func(serve http.Handler, w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/write") {
			writes.Add(1)
			if conflicts.Add(-1) >= 0 {
				http.Error(w, `{"code":"Aborted"}`, http.StatusConflict)
				return
			}
		}
		serve.ServeHTTP(w, r)
	})
	client, err := connectTo(t, front.URL, server.Token(), nil)
	if err != nil {
		t.Fatal(err)
	}
	conflicts.Store(2)
	apply(t, client, authz.Agent("a"), authz.AgentTuples("a", "olga")...)
	if !holds(t, client, authz.Agent("a"), "owner", []string{"olga"})["olga"] || writes.Load() != 3 {
		t.Errorf("not applied after %d writes", writes.Load())
	}
	conflicts.Store(1000)
	if err := client.Apply(t.Context(), authz.Agent("a"), nil); !errors.Is(err, authz.ErrUnavailable) {
		t.Errorf("endless conflict: %v", err)
	}
}

func TestApplyRefusesBadTuples(t *testing.T) {
	_, client := start(t)
	apply(t, client, authz.Agent("a"), authz.AgentTuples("a", "olga")...)
	for name, bad := range map[string]authz.Tuple{
		"other object": tuple("user:olga", "owner", "agent:b"),
		"permission":   tuple("user:olga", "can_edit", "agent:a"),
		"no type":      tuple("olga", "owner", "agent:a"),
	} {
		if err := client.Apply(t.Context(), authz.Agent("a"), []authz.Tuple{tuple("user:ed", "editor", "agent:a"), bad}); err == nil {
			t.Errorf("%s: applied", name)
		}
	}
	// The server itself knows who may stand where.
	if err := client.Apply(t.Context(), authz.Agent("a"), []authz.Tuple{tuple("user:*", "owner", "agent:a")}); err == nil {
		t.Error("everybody owns the agent")
	}
	if got := holds(t, client, authz.Agent("a"), "editor", []string{"ed"}); got["ed"] {
		t.Error("a part of what was refused was written")
	}
}
