package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/store"
)

func agentConflicts(t *testing.T, s Stores) {
	ctx, owner := t.Context(), fresh("owner")
	a := agentDoc(fresh("agt"), "dev", owner, "writer", agent.StateActive)
	noError(t, s.Agents.InsertAgent(ctx, a))
	got, err := s.Agents.Agent(ctx, a.ID)
	noError(t, err)
	if !reflect.DeepEqual(got, a) {
		t.Fatalf("got %+v, want %+v", got, a)
	}
	sameID := agentDoc(a.ID, "dev", owner, "other", agent.StateActive)
	wantError(t, s.Agents.InsertAgent(ctx, sameID), agent.ErrExists)
	wantError(t, s.Agents.InsertAgent(ctx, a), agent.ErrExists) // the id is told before the slug
	for _, state := range []agent.State{agent.StateCreating, agent.StateActive, agent.StateDeleting} {
		b := agentDoc(fresh("agt"), "dev", owner, "writer", state)
		wantError(t, s.Agents.InsertAgent(ctx, b), agent.ErrSlugTaken)
		_, err := s.Agents.Agent(ctx, b.ID)
		wantError(t, err, agent.ErrNotFound)
	}
	noError(t, s.Agents.InsertAgent(ctx, agentDoc(fresh("agt"), "prod", owner, "writer", agent.StateActive)))
	noError(t, s.Agents.InsertAgent(ctx, agentDoc(fresh("agt"), "dev", owner+"2", "writer", agent.StateActive)))

	b := agentDoc(fresh("agt"), "dev", owner, "reader", agent.StateActive)
	noError(t, s.Agents.InsertAgent(ctx, b))
	moved := b
	moved.Rev, moved.Slug = 2, "writer" // a duplicate on update
	wantError(t, s.Agents.UpdateAgent(ctx, moved), agent.ErrSlugTaken)
	stale := moved
	stale.Rev = 5
	wantError(t, s.Agents.UpdateAgent(ctx, stale), agent.ErrRevision) // told before the slug
	got, err = s.Agents.Agent(ctx, b.ID)
	noError(t, err)
	if !reflect.DeepEqual(got, b) {
		t.Fatalf("a refused update changed the document: %+v", got)
	}
	same := b
	same.Rev, same.LastOp = 2, "op_2" // the own slug is no conflict
	noError(t, s.Agents.UpdateAgent(ctx, same))

	gone := a
	gone.Rev, gone.State = 2, agent.StateDeleted
	noError(t, s.Agents.UpdateAgent(ctx, gone)) // frees the slug
	moved.Rev = 3
	noError(t, s.Agents.UpdateAgent(ctx, moved))
	gone.Rev, gone.State = 3, agent.StateActive // and takes it no more
	wantError(t, s.Agents.UpdateAgent(ctx, gone), agent.ErrSlugTaken)
	missing := agentDoc(fresh("agt"), "dev", owner, "missing", agent.StateActive)
	missing.Rev = 2
	wantError(t, s.Agents.UpdateAgent(ctx, missing), agent.ErrNotFound)
}

func agentSlugRaces(t *testing.T, s Stores) {
	ctx := t.Context()
	for range 15 {
		owner, slug := fresh("owner"), "contested"
		ids := make([]string, 16)
		for i := range ids {
			ids[i] = fresh("agt")
		}
		winner := oneWinner(t, outcomes(len(ids), func(i int) error {
			return s.Agents.InsertAgent(ctx, agentDoc(ids[i], "dev", owner, slug, agent.StateActive))
		}), is(agent.ErrSlugTaken))
		listed, err := s.Agents.AgentsOf(ctx, "dev", owner, "", 100)
		noError(t, err)
		if len(listed) != 1 || listed[0].ID != ids[winner] {
			t.Fatalf("%s won, but listed are %+v", ids[winner], listed)
		}

		docs := make([]agent.Agent, 12)
		for i := range docs {
			docs[i] = agentDoc(fresh("agt"), "dev", owner, fmt.Sprintf("own-%d", i), agent.StateActive)
			noError(t, s.Agents.InsertAgent(ctx, docs[i]))
		}
		winner = oneWinner(t, outcomes(len(docs), func(i int) error {
			next := docs[i]
			next.Rev, next.Slug = 2, "second"
			return s.Agents.UpdateAgent(ctx, next)
		}), is(agent.ErrSlugTaken))
		for i, d := range docs {
			got, err := s.Agents.Agent(ctx, d.ID)
			noError(t, err)
			if (got.Slug == "second") != (i == winner) {
				t.Fatalf("%d won, but agent %d has the slug %s", winner, i, got.Slug)
			}
		}
	}
}

func agentListings(t *testing.T, s Stores) {
	ctx, owner := t.Context(), fresh("owner")
	states := []agent.State{agent.StateCreating, agent.StateActive, agent.StateDeleting, agent.StateDeleted}
	var active, unsettled []string
	for i := range 48 {
		a := agentDoc(fresh("agt"), "dev", owner, fmt.Sprintf("slug-%d", i), states[i%4])
		if i%3 == 0 {
			a.Authz.DesiredRev++
		}
		if i%5 == 0 {
			a.Authz = a.Authz.Writing("eng_a")
		}
		noError(t, s.Agents.InsertAgent(ctx, a))
		noError(t, s.Agents.InsertAgent(ctx, agentDoc(fresh("agt"), "dev", owner+"2", a.Slug, agent.StateActive)))
		if a.State == agent.StateActive {
			active = append(active, a.ID)
		}
		if a.State == agent.StateCreating || a.State == agent.StateDeleting || i%3 == 0 || i%5 == 0 {
			unsettled = append(unsettled, a.ID)
		}
	}
	slices.Reverse(active)
	for _, page := range []int{1, 5, 1000} {
		got := pageAgents(t, page, func(last string) ([]agent.Agent, error) { return s.Agents.AgentsOf(ctx, "dev", owner, last, page) })
		if !slices.Equal(got, active) {
			t.Fatalf("agents by %d: got %v, want %v", page, got, active)
		}
		got = pageAgents(t, page, func(last string) ([]agent.Agent, error) { return s.Agents.UnsettledAgents(ctx, last, page) })
		if !slices.Equal(got, unsettled) {
			t.Fatalf("unsettled agents by %d: got %v, want %v", page, got, unsettled)
		}
	}
	a, err := s.Agents.Agent(ctx, unsettled[0]) // settle it
	noError(t, err)
	a.Rev, a.State, a.Authz.AppliedRev = 2, agent.StateActive, a.Authz.DesiredRev
	a.Authz = a.Authz.Wrote("eng_a")
	noError(t, s.Agents.UpdateAgent(ctx, a))
	got := pageAgents(t, 1000, func(last string) ([]agent.Agent, error) { return s.Agents.UnsettledAgents(ctx, last, 1000) })
	if !slices.Equal(got, unsettled[1:]) {
		t.Fatalf("unsettled agents after one settled: got %v, want %v", got, unsettled[1:])
	}
}

// pageAgents reads a listing to its end.
func pageAgents(t *testing.T, page int, next func(last string) ([]agent.Agent, error)) []string {
	t.Helper()
	got := []string{}
	for last := ""; ; last = got[len(got)-1] {
		as, err := next(last)
		noError(t, err)
		for _, a := range as {
			got = append(got, a.ID)
		}
		if len(as) < page {
			return got
		}
	}
}

func agentVersions(t *testing.T, s Stores) {
	ctx, id := t.Context(), fresh("agt")
	last, err := s.Agents.LastVersion(ctx, id)
	noError(t, err)
	if last != 0 {
		t.Fatalf("an agent without versions has %d", last)
	}
	version := func(n int64) agent.Version {
		return agent.Version{
			AgentID: id, Number: n, Previous: n - 1, Fingerprint: fmt.Sprintf("f%d", n), CatalogRevision: "c1", CreatedBy: "alice", CreatedAt: when,
			Blueprint: agent.Blueprint{Name: "Writer", Slug: "writer", Harness: agent.Harness{ID: "scripted", Options: json.RawMessage(`{"a":[1,2.50,"<&>"]}`)},
				Prompt: agent.Prompt{System: "You write.", Variables: map[string]string{"tone": "calm"}}, Model: agent.Model{Policy: agent.ModelHarnessDefault}},
		}
	}
	for _, n := range []int64{1, 2, 7, 5} { // numbers rise, but writers may be late
		noError(t, s.Agents.InsertVersion(ctx, version(n)))
		wantError(t, s.Agents.InsertVersion(ctx, version(n)), agent.ErrExists)
	}
	noError(t, s.Agents.InsertVersion(ctx, agent.Version{AgentID: id + "x", Number: 99, CreatedAt: when}))
	if last, err = s.Agents.LastVersion(ctx, id); err != nil || last != 7 {
		t.Fatalf("last version is %d (%v), want 7", last, err)
	}
	got, err := s.Agents.Version(ctx, id, 5)
	noError(t, err)
	if !bytes.Equal(got.Blueprint.Harness.Options, version(5).Blueprint.Harness.Options) {
		t.Errorf("options changed: %s", got.Blueprint.Harness.Options)
	}
	if !reflect.DeepEqual(got, version(5)) {
		t.Errorf("got %+v, want %+v", got, version(5))
	}
	_, err = s.Agents.Version(ctx, id, 6)
	wantError(t, err, agent.ErrNotFound)
	wantError(t, s.Agents.InsertVersion(ctx, version(0)), store.ErrInvalid)
	oneWinner(t, outcomes(16, func(i int) error {
		v := version(8)
		v.Fingerprint = fmt.Sprint(i)
		return s.Agents.InsertVersion(ctx, v)
	}), is(agent.ErrExists))
}

func valuesFirstWins(t *testing.T, s Stores) {
	ctx, name := t.Context(), fresh("secret")
	_, err := s.Values.Value(ctx, name)
	wantError(t, err, store.ErrNoValue)
	got := make([][]byte, 16)
	for _, err := range outcomes(len(got), func(i int) (err error) {
		got[i], err = s.Values.PutValueIfAbsent(ctx, name, []byte{0, 0xff, byte(i)})
		return err
	}) {
		noError(t, err)
	}
	stored, err := s.Values.Value(ctx, name)
	noError(t, err)
	for i, v := range got {
		if !bytes.Equal(v, stored) {
			t.Fatalf("caller %d got %x, stored is %x", i, v, stored)
		}
	}
	for _, bad := range [][]byte{nil, {}, make([]byte, store.MaxValueBytes+1)} {
		_, err := s.Values.PutValueIfAbsent(ctx, fresh("secret"), bad)
		wantError(t, err, store.ErrInvalid)
	}
	_, err = s.Values.PutValueIfAbsent(ctx, "", []byte("v"))
	wantError(t, err, store.ErrInvalid)
}
