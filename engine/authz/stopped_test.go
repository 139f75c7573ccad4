package authz

import (
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// TestWriterStoppedOverARevoke: an engine is stopped between its reading of a document and its writing of the tuples, as by
// SIGSTOP. Another one revokes and settles meanwhile. The first goes on, writes what is revoked, and dies before it can look
// again. What was revoked does not stay, whoever of the two wrote last, and however long it stood still.
func TestWriterStoppedOverARevoke(t *testing.T) {
	for name, test := range map[string]struct {
		stop string        // the step before which the first engine stands still
		pass time.Duration // for how long
	}{
		"before its write, for a moment": {"apply", 0},
		"before its write, for an hour":  {"apply", time.Hour},
		"behind its write":               {"applied", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf()
			clock := time.Unix(1000, 0)
			var dead atomic.Bool
			engine := func(name string) *Reconciler {
				r, err := NewReconciler(ReconcilerOptions{Documents: s, Tuples: s, Logger: slog.New(slog.DiscardHandler), Self: name,
					Dead: func(other string) bool { return other == "first" && dead.Load() }})
				if err != nil {
					t.Fatal(err)
				}
				r.now = func() time.Time { return clock }
				return r
			}
			first, second := engine("first"), engine("second")
			o := Agent("a")
			shared := Canonical(append(AgentTuples("a", "olga"), Tuple{User: "user:ed", Relation: RelationEditor, Object: "agent:a"}))
			s.change(o, "CREATING", AgentTuples("a", "olga"))
			if err := first.Settle(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			s.change(o, "ACTIVE", shared)
			died := errors.New("killed")
			stopped := false
			s.fault = func(step string, _ Object) error {
				switch {
				case step == test.stop && !stopped:
					stopped = true
					s.change(o, "ACTIVE", AgentTuples("a", "olga"))
					if err := second.Settle(t.Context(), o); err != nil {
						t.Fatal(err)
					}
					for range 3 { // it is looked at again and again, and stands still all the time
						clock = clock.Add(test.pass)
						if _, err := second.Sweep(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					if test.stop == "applied" {
						return died
					}
				case step == "applied" && len(s.tuples[o]) == len(shared):
					return died // in the moment in which its write has taken effect
				}
				return nil
			}
			if err := first.Settle(t.Context(), o); !errors.Is(err, died) {
				t.Fatal(err)
			}
			if test.stop == "apply" && len(s.tuples[o]) != len(shared) {
				t.Fatal("the test does not make the fault")
			}
			s.fault = func(string, Object) error { return nil }
			dead.Store(true)
			for range 3 {
				if _, err := second.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(s.tuples[o], AgentTuples("a", "olga")) {
					t.Fatalf("what was revoked is back: %v", s.tuples[o])
				}
				clock = clock.Add(doubtAge)
			}
			if d := s.docs[o].document(o); !d.Settled() {
				t.Fatalf("the dead engine is still waited for: %+v", d)
			}
			calls := s.calls
			if n, err := second.Sweep(t.Context()); n != 0 || err != nil || s.calls != calls {
				t.Fatalf("settled is looked at again: %d, %v", n, err)
			}
		})
	}
}

// TestDeadWriterMayBeServed: a request of an engine that has died may be worked on for a while yet. Its name stays until that is
// over.
func TestDeadWriterMayBeServed(t *testing.T) {
	s := newShelf()
	r := newTestReconciler(t, s) // to which every other engine is dead
	clock := time.Unix(1000, 0)
	r.now = func() time.Time { return clock }
	o := Agent("a")
	s.change(o, "CREATING", AgentTuples("a", "olga"))
	s.docs[o].outbox = s.docs[o].outbox.Writing("dead")
	for _, want := range []bool{false, false, true} {
		if _, err := r.Sweep(t.Context()); err != nil || s.docs[o].document(o).Settled() != want {
			t.Fatalf("at %v: %+v, %v", clock, s.docs[o], err)
		}
		s.tuples[o] = nil // its write takes effect
		clock = clock.Add(doubtAge / 2)
	}
}
