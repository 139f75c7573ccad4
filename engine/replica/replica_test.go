package replica

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// board is a directory that tests write.
type board struct {
	list []Sighting
	err  error
}

// TestTools: a tool is judged as an engine is, and is none: nobody is less alone, and nobody's runs are looked for when it goes.
func TestTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{list: []Sighting{{"me", 1, false}, {"tool", 1, true}}}
		r := NewRoster(RosterOptions{Self: "me", Directory: b, Lease: time.Second, Changed: func() { t.Error("an engine has gone") }})
		for range 20 {
			if err := r.Look(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !r.Alone() || len(r.Living()) != 1 {
				t.Fatal("it counts as an engine")
			}
			time.Sleep(111 * time.Millisecond)
		}
		if !r.Still(b.list[1]) {
			t.Error("that it stands still is not seen")
		}
		b.list = b.list[:1]
		if err := r.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func (b *board) Sightings(context.Context) ([]Sighting, error) { return slices.Clone(b.list), b.err }

func TestRoster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{list: []Sighting{{"me", 1, false}, {"a", 1, false}, {"b", 1, false}}}
		changed := 0
		r := NewRoster(RosterOptions{Self: "me", Directory: b, Lease: time.Second, Changed: func() { changed++ }})
		look := func() {
			t.Helper()
			if err := r.Look(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !r.Gone("a") || !r.Alone() {
			t.Error("an engine that was never seen counts as living")
		}
		look()
		if r.Gone("a") || r.Gone("b") || r.Alone() || !r.Gone("never") {
			t.Error("first look")
		}
		// An old beat means nothing: it has to stand still for a lease on our own clock.
		for range 9 {
			time.Sleep(111 * time.Millisecond)
			look()
		}
		if r.Gone("a") || changed != 0 {
			t.Error("gone before a whole lease")
		}
		b.list[2].Beat = 0 // not greater, only different
		time.Sleep(time.Millisecond)
		look()
		if r.Dead("a") || !r.Dead("never") {
			t.Error("who stands still is not dead, and who is not there is")
		}
		if !r.Gone("a") || r.Gone("b") || r.Gone("me") || changed != 1 {
			t.Errorf("after a lease: a %v, b %v, me %v, changed %d", r.Gone("a"), r.Gone("b"), r.Gone("me"), changed)
		}
		look()
		if changed != 1 {
			t.Error("told twice")
		}
		b.list[1].Beat = 2
		look()
		if r.Gone("a") {
			t.Error("an engine that beats again counts as gone")
		}
		b.err = errors.New("no answer")
		time.Sleep(10 * time.Second)
		if err := r.Look(t.Context()); err == nil || r.Gone("a") {
			t.Error("a directory that cannot be read changed a judgement")
		}
		b.err = nil
		b.list = b.list[:2]
		look()
		if !r.Gone("b") || changed != 2 || !slices.Equal(r.Living(), []string{"a", "me"}) {
			t.Errorf("left: b %v, changed %d, living %v", r.Gone("b"), changed, r.Living())
		}
	})
}

// TestDoubt: an engine that could not say that it lives lets go before the others take it for gone, once.
func TestDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		var beat, doubts, at atomic.Int64 // since begun
		r := NewRoster(RosterOptions{
			Self: "me", Directory: &board{list: []Sighting{{"me", 1, false}}}, Lease: time.Second,
			LastBeat: func() time.Time { return begun.Add(time.Duration(beat.Load())) },
			Doubted:  func() { doubts.Add(1); at.Store(int64(time.Since(begun))) },
		})
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }()
		time.Sleep(5 * time.Second)
		if doubts.Load() != 1 || time.Duration(at.Load()) >= time.Second {
			t.Errorf("%d doubts, the first after %s", doubts.Load(), time.Duration(at.Load()))
		}
		for range 2 { // it beats again, and stops again
			beat.Store(int64(time.Since(begun)))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		if doubts.Load() != 2 {
			t.Errorf("%d doubts after beating again", doubts.Load())
		}
		cancel()
		<-done
	})
}

// TestStill: what may be ended was seen to stand still, and stands still yet. Whoever was never seen has only just come.
func TestStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRoster(RosterOptions{Self: "me", Directory: &board{list: []Sighting{{"me", 1, false}, {"a", 1, false}}}, Lease: time.Second})
		for range 6 {
			if err := r.Look(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r.Still(Sighting{"new", 1, false}) || !r.Gone("new") {
				t.Error("an engine that was never seen")
			}
			if stands := r.Gone("a"); r.Still(Sighting{"a", 1, false}) != stands {
				t.Errorf("an engine that is gone: %v", stands)
			}
			time.Sleep(250 * time.Millisecond)
		}
		if !r.Gone("a") || r.Still(Sighting{"a", 2, false}) {
			t.Error("an engine that goes on counts as standing still")
		}
	})
}

// TestStoppedTogether: an engine that was itself stopped, as all are in a container that is paused, has not seen the others
// stand still.
func TestStoppedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{list: []Sighting{{"me", 1, false}, {"a", 1, false}}}
		r := NewRoster(RosterOptions{Self: "me", Directory: b, Lease: time.Second})
		look := func() {
			t.Helper()
			if err := r.Look(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		look()
		time.Sleep(time.Minute)
		look()
		if r.Gone("a") {
			t.Error("gone before it had the time to beat")
		}
		for range 10 {
			time.Sleep(100 * time.Millisecond)
			look()
		}
		if !r.Gone("a") {
			t.Error("it stands still, and counts as living")
		}
	})
}
