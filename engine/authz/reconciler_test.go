package authz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func newTestReconciler(t *testing.T, s *shelf) *Reconciler {
	t.Helper()
	r, err := NewReconciler(ReconcilerOptions{Documents: s, Tuples: s, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Whatever changes, breaks, comes late and races in whatever order: once faults end, sweeps bring every document to rest
// with exactly the tuples that it wants.
func TestReconcilerSettles(t *testing.T) {
	objects := []Object{Agent("a"), Agent("b")}
	// Sampled, because drawn numbers would favour the small ones.
	faults := []string{"none", "none", "none", "unavailable", "broken", "change", "other process", "late", "land"}
	steps := []string{"change", "change", "settle", "settle", "sweep", "time"}
	rapid.Check(t, func(t *rapid.T) {
		s := newShelf()
		clock := time.Unix(1000, 0)
		parts := func(name string) *Reconciler {
			r, err := NewReconciler(ReconcilerOptions{Documents: s, Tuples: s, Logger: slog.New(slog.DiscardHandler), Self: name, Dead: func(string) bool { return false }})
			if err != nil {
				t.Fatal(err)
			}
			r.now = func() time.Time { return clock }
			return r
		}
		ours, other := parts("ours"), parts("other") // two processes: they share the documents, not the locks
		ctx := context.Background()
		change := func(o Object) {
			state := "CREATING"
			if d := s.docs[o]; d != nil {
				state = d.state
			}
			if state == "DELETED" || state == "DELETING" {
				return
			}
			if state == "ACTIVE" && rapid.SampledFrom([]bool{true, false, false, false, false}).Draw(t, "delete") {
				s.change(o, "DELETING", nil)
				return
			}
			tuples := rapid.SliceOfN(someTuple, 1, 3).Draw(t, "tuples")
			for i := range tuples {
				tuples[i].Object = o.String()
			}
			s.change(o, state, tuples)
		}
		nested := false
		s.fault = func(step string, o Object) error {
			switch rapid.SampledFrom(faults).Draw(t, "fault at "+step) {
			case "unavailable":
				return ErrUnavailable
			case "broken":
				return errors.New("broken")
			case "change":
				change(o)
			case "other process":
				if !nested {
					nested = true
					_ = other.Settle(ctx, o)
					nested = false
				}
			case "late":
				if step == "apply" {
					return errLate
				}
			case "land":
				s.land()
			}
			return nil
		}
		for range rapid.IntRange(10, 40).Draw(t, "steps") {
			o := rapid.SampledFrom(objects).Draw(t, "object")
			switch rapid.SampledFrom(steps).Draw(t, "step") {
			case "change":
				change(o)
			case "settle":
				_ = ours.Settle(ctx, o)
			case "sweep":
				_, _ = ours.Sweep(ctx)
			case "time":
				s.land() // nothing takes longer than a server works on it
				clock = clock.Add(doubtAge)
			}
		}
		s.fault = func(string, Object) error { return nil }
		s.land()
		clock = clock.Add(doubtAge)
		for _, r := range []*Reconciler{ours, other} {
			if _, err := r.Sweep(ctx); err != nil {
				t.Fatal(err)
			}
			if len(r.doubts) > 0 {
				t.Fatalf("doubts are left: %v", r.doubts)
			}
		}
		for o, d := range s.docs {
			if !d.document(o).Settled() {
				t.Fatalf("%s is not settled: %+v", o, d)
			}
			if !slices.Equal(s.tuples[o], d.outbox.Desired) {
				t.Fatalf("%s, %s, has %v, wants %v", o, d.state, s.tuples[o], d.outbox.Desired)
			}
			if d.state == "DELETED" && len(s.tuples[o]) > 0 {
				t.Fatalf("%s is deleted and has %v", o, s.tuples[o])
			}
		}
	})
}

// The order that the doubts are for: a write gets no answer, a newer state is settled, the old write takes effect.
func TestLateWriteIsPutRight(t *testing.T) {
	s := newShelf()
	r := newTestReconciler(t, s)
	clock := time.Unix(1000, 0)
	r.now = func() time.Time { return clock }
	o := Agent("a")
	withEditor := append(AgentTuples("a", "olga"), Tuple{User: "user:ed", Relation: RelationEditor, Object: "agent:a"})
	s.change(o, "CREATING", withEditor)
	s.fault = func(step string, _ Object) error {
		if step == "apply" {
			return errLate
		}
		return nil
	}
	if err := r.Settle(t.Context(), o); !errors.Is(err, errLate) {
		t.Fatal(err)
	}
	s.fault = func(string, Object) error { return nil }
	s.change(o, "CREATING", AgentTuples("a", "olga"))
	if err := r.Settle(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s.land()
	if len(s.tuples[o]) != 2 {
		t.Fatal("the test does not make the fault")
	}
	clock = clock.Add(doubtAge - 1)
	if n, err := r.Sweep(t.Context()); n != 1 || err != nil || s.docs[o].document(o).Settled() {
		t.Errorf("%d, %v: settled, while a write of before may still take effect", n, err)
	}
	s.tuples[o] = withEditor
	clock = clock.Add(1)
	if n, err := r.Sweep(t.Context()); n != 1 || err != nil || len(s.tuples[o]) != 1 {
		t.Errorf("%d, %v: the revoked editor is back: %v", n, err, s.tuples[o])
	}
	if n, err := r.Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("again: %d, %v", n, err)
	}
}

func TestSettleStates(t *testing.T) {
	s := newShelf()
	r := newTestReconciler(t, s)
	o := Agent("a")
	if err := r.Settle(t.Context(), o); err != nil || s.calls != 0 {
		t.Errorf("nothing there: %v, %d calls", err, s.calls)
	}
	s.change(o, "CREATING", AgentTuples("a", "olga"))
	if err := r.Settle(t.Context(), o); err != nil || s.docs[o].state != "ACTIVE" || len(s.tuples[o]) != 1 {
		t.Errorf("create: %v, %+v, %v", err, s.docs[o], s.tuples[o])
	}
	if err := r.Settle(t.Context(), o); err != nil || s.calls != 1 {
		t.Errorf("settled already: %v, %d calls", err, s.calls)
	}
	s.change(o, "DELETING", nil)
	if err := r.Settle(t.Context(), o); err != nil || s.docs[o].state != "DELETED" || len(s.tuples[o]) != 0 {
		t.Errorf("delete: %v, %+v, %v", err, s.docs[o], s.tuples[o])
	}
}

func TestSettleGivesUpOnARestlessDocument(t *testing.T) {
	s := newShelf()
	r := newTestReconciler(t, s)
	o := Agent("a")
	s.change(o, "CREATING", AgentTuples("a", "olga"))
	s.fault = func(step string, _ Object) error {
		if step == "mark" {
			s.change(o, "CREATING", AgentTuples("a", fmt.Sprintf("user%d", s.calls)))
		}
		return nil
	}
	if err := r.Settle(t.Context(), o); err == nil || s.calls != maxRounds {
		t.Errorf("%v after %d rounds", err, s.calls)
	}
}

func TestSweep(t *testing.T) {
	s := newShelf()
	r := newTestReconciler(t, s)
	for i := range 2*sweepPage + 5 {
		id := fmt.Sprintf("agt_%04d", i)
		s.change(Agent(id), "CREATING", AgentTuples(id, "olga"))
	}
	bad := Agent("agt_0001")
	broken := errors.New("broken")
	s.fault = func(_ string, o Object) error {
		if o == bad {
			return broken
		}
		return nil
	}
	n, err := r.Sweep(t.Context())
	if n != 2*sweepPage+4 || !errors.Is(err, broken) {
		t.Errorf("one bad: settled %d, %v", n, err)
	}
	s.fault = func(string, Object) error { return ErrUnavailable }
	for i := range 5 {
		id := fmt.Sprintf("agt_1%03d", i)
		s.change(Agent(id), "CREATING", AgentTuples(id, "olga"))
	}
	before := s.calls
	if n, err := r.Sweep(t.Context()); n != 0 || !errors.Is(err, ErrUnavailable) || s.calls != before {
		t.Errorf("outage: settled %d, %v", n, err)
	}
	s.fault = func(string, Object) error { return nil }
	if n, err := r.Sweep(t.Context()); n != 6 || err != nil {
		t.Errorf("afterwards: settled %d, %v", n, err)
	}
}

func TestRunSweepsAtOnceAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		r := newTestReconciler(t, s)
		s.change(Agent("a"), "CREATING", AgentTuples("a", "olga"))
		var down atomic.Bool
		down.Store(true)
		state := func() string {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.docs[Agent("a")].state
		}
		s.fault = func(string, Object) error {
			if down.Load() {
				return ErrUnavailable
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }()
		synctest.Wait()
		if state() != "CREATING" {
			t.Error("settled without a server")
		}
		down.Store(false)
		time.Sleep(DefaultInterval + time.Millisecond) // virtual time
		synctest.Wait()
		if state() != "ACTIVE" {
			t.Error("not settled after an interval")
		}
		cancel()
		<-done
	})
}

func TestLocks(t *testing.T) {
	var locks Locks
	var wg sync.WaitGroup
	counts := map[Object]*int{Agent("a"): new(int), Agent("b"): new(int)}
	for o, n := range counts {
		for range 50 {
			wg.Go(func() {
				unlock, err := locks.Lock(t.Context(), o)
				if err != nil {
					t.Error(err)
					return
				}
				*n++ // the race detector sees it when two hold the lock
				unlock()
			})
		}
	}
	wg.Wait()
	if *counts[Agent("a")] != 50 || *counts[Agent("b")] != 50 || len(locks.held) != 0 {
		t.Errorf("%v, %d locks left", counts, len(locks.held))
	}

	unlock, err := locks.Lock(t.Context(), Agent("a"))
	if err != nil {
		t.Fatal(err)
	}
	free, err := locks.Lock(t.Context(), Agent("b"))
	if err != nil {
		t.Fatal("another object's lock is held")
	}
	free()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := locks.Lock(ctx, Agent("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting with an ended context: %v", err)
	}
	unlock()
	if unlock, err := locks.Lock(t.Context(), Agent("a")); err != nil {
		t.Error(err)
	} else {
		unlock()
	}
	if len(locks.held) != 0 {
		t.Errorf("%d locks left", len(locks.held))
	}
}

func TestNewReconcilerWantsItsParts(t *testing.T) {
	for _, o := range []ReconcilerOptions{{}, {Documents: newShelf()}, {Tuples: newShelf()}} {
		if _, err := NewReconciler(o); err == nil {
			t.Errorf("%+v: a reconciler was made", o)
		}
	}
}
