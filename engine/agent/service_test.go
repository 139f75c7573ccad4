package agent

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
)

var alice = authz.Caller{Environment: "test", Subject: "alice"}

// bench is a Service on stores with faults.
type bench struct {
	t       *testing.T
	store   *memStore
	tuples  *tupleStore
	usage   usage
	now     time.Time
	service *Service
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, store: newMemStore(), tuples: newTupleStore(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	b.restart()
	return b
}

// restart is what a new engine finds: the same stores, which live again, and nothing in memory.
func (b *bench) restart() {
	b.t.Helper()
	b.store.mu.Lock()
	b.store.dead, b.store.at, b.store.calls, b.store.writes = false, 0, 0, nil
	b.store.mu.Unlock()
	s, err := NewService(Options{
		Store: b.store, Reviewer: reviewer{"cat1"}, Tuples: b.tuples, Usage: b.usage, Now: func() time.Time { return b.now },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.service = s
}

// inject makes the n-th write from now suffer the fault.
func (b *bench) inject(n int, f fault) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	b.store.at, b.store.fault, b.store.calls, b.store.writes = n, f, 0, nil
}

func (b *bench) save(change func(*SaveRequest)) (SaveResult, error) {
	q := SaveRequest{Caller: alice, Blueprint: good()}
	if change != nil {
		change(&q)
	}
	return b.service.Save(b.t.Context(), q)
}

// saved saves and expects Saved.
func (b *bench) saved(change func(*SaveRequest)) Saved {
	b.t.Helper()
	r, err := b.save(change)
	s, ok := r.(Saved)
	if err != nil || !ok {
		b.t.Fatalf("got %#v, %v; want Saved", r, err)
	}
	return s
}

func edit(a Agent, change func(*Blueprint)) func(*SaveRequest) {
	return func(q *SaveRequest) {
		q.AgentID, q.ExpectedRevision = a.ID, a.Rev
		if change != nil {
			change(&q.Blueprint)
		}
	}
}

func renamed(name string) func(*Blueprint) { return func(b *Blueprint) { b.Name = name } }

func TestCreateAndChange(t *testing.T) {
	b := newBench(t)
	first := b.saved(nil)
	if first.Agent.State != StateActive || first.Agent.Version != 1 || first.Version.Number != 1 || first.Version.Previous != 0 ||
		first.Version.CatalogRevision != "cat1" || first.Version.CreatedBy != "alice" || len(first.Version.Fingerprint) != 64 {
		t.Errorf("created %+v", first)
	}
	if got := b.tuples.of(first.Agent.ID); got != "user:alice owner" {
		t.Errorf("tuples %q", got)
	}
	second := b.saved(edit(first.Agent, renamed("Two")))
	if second.Version.Number != 2 || second.Version.Previous != 1 || second.Agent.Version != 2 || second.Agent.Rev != first.Agent.Rev+1 {
		t.Errorf("changed to %+v", second)
	}
	read, err := b.service.Agent(t.Context(), first.Agent.ID)
	if err != nil || !reflect.DeepEqual(read, second.Agent) {
		t.Errorf("read %+v, %v", read, err)
	}
	old, err := b.service.Version(t.Context(), first.Agent.ID, 1)
	if err != nil || !reflect.DeepEqual(old, first.Version) {
		t.Errorf("the first version changed: %+v, %v", old, err)
	}
}

func TestRefusalsWriteNothing(t *testing.T) {
	b := newBench(t)
	b.usage = 3
	b.restart()
	a := b.saved(nil).Agent
	b.saved(func(q *SaveRequest) { q.Blueprint.Slug = "other" })
	valid, err := b.service.Validate(t.Context(), alice, a.ID, good())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*SaveRequest)
		want   SaveResult
	}{
		"invalid":              {edit(a, func(b *Blueprint) { b.Description = "INVALID" }), Failed{}},
		"invalid creation":     {func(q *SaveRequest) { q.Blueprint.Slug, q.Blueprint.Description = "new", "INVALID" }, Failed{}},
		"stale fingerprint":    {func(q *SaveRequest) { edit(a, renamed("New"))(q); q.Fingerprint = valid.Fingerprint }, Stale{}},
		"stale catalog":        {func(q *SaveRequest) { edit(a, nil)(q); q.CatalogRevision = "cat0" }, Stale{}},
		"stale creation":       {func(q *SaveRequest) { q.Blueprint.Slug, q.CatalogRevision = "new", "cat0" }, Stale{}},
		"wrong revision":       {func(q *SaveRequest) { edit(a, nil)(q); q.ExpectedRevision-- }, RevisionConflict{Current: a.Rev}},
		"slug of another":      {edit(a, func(b *Blueprint) { b.Slug = "other" }), SlugTaken{Slug: "other"}},
		"slug taken":           {func(q *SaveRequest) { q.Blueprint.Slug = "other" }, SlugTaken{Slug: "other"}},
		"harness, unconfirmed": {edit(a, func(b *Blueprint) { b.Harness.ID = "scripted" }), Failed{}},
	} {
		t.Run(name, func(t *testing.T) {
			b.inject(0, none)
			got, err := b.save(c.change)
			if err != nil {
				t.Fatal(err)
			}
			if reflect.TypeOf(got) != reflect.TypeOf(c.want) {
				t.Fatalf("got %#v, want %#v", got, c.want)
			}
			switch got := got.(type) {
			case Failed:
				if got.Report.Valid {
					t.Error("the report says valid")
				}
			case Stale:
				if got.Report.CatalogRevision != "cat1" || got.Report.Fingerprint == "" {
					t.Errorf("the fresh report: %+v", got.Report)
				}
			default:
				if got != c.want {
					t.Errorf("got %#v, want %#v", got, c.want)
				}
			}
			if len(b.store.writes) != 0 || b.tuples.of(a.ID) != "user:alice owner" || len(b.tuples.tuples) != 2 {
				t.Errorf("written: %v, tuples %v", b.store.writes, b.tuples.tuples)
			}
		})
	}
	for name, c := range map[string]struct {
		change func(*SaveRequest)
		want   string
	}{
		"malformed":                 {edit(a, renamed("")), "name: must not be empty"},
		"creation with a revision":  {func(q *SaveRequest) { q.ExpectedRevision = 1 }, "expectedRevision: must be 0 or absent for a new agent"},
		"change without a revision": {func(q *SaveRequest) { q.AgentID = a.ID }, "expectedRevision: is required to change an agent"},
		"no such agent":             {func(q *SaveRequest) { q.AgentID, q.ExpectedRevision = "agt_nobody", 1 }, "agent not found"},
		"no agent id":               {func(q *SaveRequest) { q.AgentID, q.ExpectedRevision = "run_x", 1 }, "agent not found"},
		"another environment":       {func(q *SaveRequest) { edit(a, nil)(q); q.Caller.Environment = "other" }, "agent not found"},
	} {
		b.inject(0, none)
		if r, err := b.save(c.change); r != nil || err == nil || err.Error() != c.want || len(b.store.writes) != 0 {
			t.Errorf("%s: got %#v, %v, written %v", name, r, err, b.store.writes)
		}
	}
}

func TestWhatWasValidatedCanBeSavedAndAHarnessChangeConfirmed(t *testing.T) {
	b := newBench(t)
	b.usage = 3
	b.restart()
	a := b.saved(nil).Agent
	draft := good()
	draft.Harness.ID = "scripted"
	r, err := b.service.Validate(t.Context(), alice, a.ID, draft)
	if err != nil || !r.Valid || !r.Impact.HarnessChanged || r.Impact.PinnedConversations != 3 {
		t.Fatalf("got %+v, %v", r, err)
	}
	got, err := b.save(func(q *SaveRequest) {
		edit(a, nil)(q)
		q.Blueprint, q.Fingerprint, q.CatalogRevision = draft, r.Fingerprint, r.CatalogRevision
	})
	if f, ok := got.(Failed); err != nil || !ok || f.Report.Issues[len(f.Report.Issues)-1].Code != CodeConfirmRequired {
		t.Fatalf("unconfirmed: %#v, %v", got, err)
	}
	s := b.saved(func(q *SaveRequest) {
		edit(a, nil)(q)
		q.Blueprint, q.Fingerprint, q.CatalogRevision, q.Confirm = draft, r.Fingerprint, r.CatalogRevision, true
	})
	if s.Version.Blueprint.Harness.ID != "scripted" {
		t.Errorf("saved %+v", s.Version)
	}
	// Naming the default is no change of harness.
	b.usage = 0
	b.restart()
	plain := b.saved(func(q *SaveRequest) { q.Blueprint.Slug = "plain" }).Agent
	b.usage = 3
	b.restart()
	if r, err := b.service.Validate(t.Context(), alice, plain.ID, func() Blueprint { d := good(); d.Harness.ID = "deepagents"; return d }()); err != nil || r.Impact.HarnessChanged {
		t.Errorf("naming the default harness: %+v, %v", r.Impact, err)
	}
}

func TestConcurrentSavesHaveOneWinner(t *testing.T) {
	b := newBench(t)
	a := b.saved(nil).Agent
	var wg sync.WaitGroup
	results := make([]SaveResult, 16)
	for i := range results {
		wg.Go(func() {
			var err error
			if results[i], err = b.save(edit(a, renamed(fmt.Sprint("Name ", i)))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var won []Saved
	for _, r := range results {
		switch r := r.(type) {
		case Saved:
			won = append(won, r)
		case RevisionConflict:
		default:
			t.Errorf("got %#v", r)
		}
	}
	if len(won) != 1 {
		t.Fatalf("%d winners", len(won))
	}
	now, err := b.service.Agent(t.Context(), a.ID)
	if err != nil || now.Version != won[0].Version.Number {
		t.Errorf("current is %d, the winner wrote %d", now.Version, won[0].Version.Number)
	}
	page, more, err := b.service.Versions(t.Context(), a.ID, 0, 100)
	if err != nil || more || len(page) != 2 || page[0].Number != now.Version || page[1].Number != 1 {
		t.Errorf("the chain is %v, more %v, %v", page, more, err)
	}
	for n := range int64(17) {
		if _, err := b.service.Version(t.Context(), a.ID, n); (err == nil) != (n == 1 || n == now.Version) {
			t.Errorf("version %d: %v", n, err)
		}
	}
	// The next save takes a number above those that lost.
	if s := b.saved(edit(now, renamed("Last"))); s.Version.Previous != now.Version {
		t.Errorf("the next version is %+v", s.Version)
	}
}

func TestConcurrentCreationsWithOneSlug(t *testing.T) {
	b := newBench(t)
	var wg sync.WaitGroup
	results := make([]SaveResult, 8)
	for i := range results {
		wg.Go(func() {
			var err error
			if results[i], err = b.save(nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	won := 0
	for _, r := range results {
		if _, ok := r.(Saved); ok {
			won++
		} else if r != (SlugTaken{Slug: "helper"}) {
			t.Errorf("got %#v", r)
		}
	}
	if won != 1 || len(b.store.agents) != 1 {
		t.Errorf("%d winners, %d agents", won, len(b.store.agents))
	}
}

func TestPages(t *testing.T) {
	b := newBench(t)
	var ids []string
	for i := range 5 {
		ids = append(ids, b.saved(func(q *SaveRequest) { q.Blueprint.Slug = fmt.Sprint("s", i) }).Agent.ID)
	}
	seen := map[string]bool{}
	before, pages := "", 0
	for more := true; more; pages++ {
		var page []Agent
		var err error
		if page, more, err = b.service.Agents(t.Context(), alice, before, 2); err != nil || len(page) > 2 {
			t.Fatalf("%d, %v", len(page), err)
		}
		for _, a := range page {
			if seen[a.ID] || before != "" && a.ID >= before {
				t.Errorf("%s again or out of order", a.ID)
			}
			seen[a.ID], before = true, a.ID
		}
	}
	if len(seen) != len(ids) || pages != 3 {
		t.Errorf("saw %d agents on %d pages", len(seen), pages)
	}
	if page, more, err := b.service.Agents(t.Context(), authz.Caller{Environment: "test", Subject: "bob"}, "", 10); err != nil || more || len(page) != 0 {
		t.Errorf("bob sees %v, %v, %v", page, more, err)
	}
	a, err := b.service.Agent(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		a = b.saved(edit(a, func(d *Blueprint) { d.Slug, d.Name = "s0", fmt.Sprint("Name ", i) })).Agent
	}
	first, more, err := b.service.Versions(t.Context(), a.ID, 0, 3)
	if err != nil || !more || len(first) != 3 || first[0].Number != 5 {
		t.Fatalf("%v, %v, %v", first, more, err)
	}
	rest, more, err := b.service.Versions(t.Context(), a.ID, first[2].Number, 3)
	if err != nil || more || len(rest) != 2 || rest[1].Number != 1 {
		t.Errorf("%v, %v, %v", rest, more, err)
	}
}
