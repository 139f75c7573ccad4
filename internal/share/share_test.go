package share

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Who wants much has its share, and others go on beside it.
func TestNobodyTakesAllPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces[string](4, 2)
		gate := make(chan struct{})
		for range 100 {
			p.Go("greedy", func() { <-gate })
		}
		leave, err := p.Enter(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		if places, keys := p.Taken(); places != 3 || keys != 2 {
			t.Errorf("%d places taken by %d", places, keys)
		}
		leave()
		leave()
		close(gate)
		synctest.Wait()
		if places, keys := p.Taken(); places != 0 || keys != 0 {
			t.Errorf("%d places are left with %d", places, keys)
		}
	})
}

// Where all places are taken, those who wait take turns by key, and tasks of one key keep their order.
func TestKeysTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces[string](1, 1)
		gate := make(chan struct{})
		p.Go("first", func() { <-gate })
		var order []string
		for _, name := range []string{"a1", "a2", "a3", "b1", "c1", "b2"} {
			p.Go(name[:1], func() { order = append(order, name) })
		}
		close(gate)
		synctest.Wait()
		if want := []string{"a1", "b1", "c1", "a2", "b2", "a3"}; !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
	})
}

// Who waits no more leaves nothing behind, and takes nobody's place.
func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces[string](1, 1)
		leave, _ := p.Enter(t.Context(), "a")
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		var failed sync.WaitGroup
		for _, key := range []string{"a", "b", "b"} {
			failed.Go(func() {
				if _, err := p.Enter(ctx, key); !errors.Is(err, gone) {
					t.Errorf("%s: %v", key, err)
				}
			})
		}
		synctest.Wait()
		cancel(gone)
		failed.Wait()
		leave()
		if places, keys := p.Taken(); places != 0 || keys != 0 || len(p.line) != 0 {
			t.Errorf("%d places, %d keys, %d in line", places, keys, len(p.line))
		}
	})
}

// Whatever comes and goes, bounds hold, nobody who may have a place waits, and nothing is left.
func TestPlacesKeepTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most, each := rapid.IntRange(1, 5).Draw(t, "most"), rapid.IntRange(1, 5).Draw(t, "each")
		p := NewPlaces[int](most, each)
		begun := map[*want]int{} // by key
		waiting := map[*want]int{}
		has := func(in map[*want]int, key int) (n int) {
			for _, k := range in {
				if k == key {
					n++
				}
			}
			return n
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key := rapid.IntRange(0, 3).Draw(t, "key")
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				w := &want{}
				w.begin = func() { delete(waiting, w); begun[w] = key }
				waiting[w] = key
				p.mu.Lock()
				p.want(key, w)
				p.mu.Unlock()
			case 1:
				for w, k := range begun {
					if k == key {
						delete(begun, w)
						p.leave(key)
						break
					}
				}
			case 2:
				for w, k := range waiting {
					if k == key {
						delete(waiting, w)
						p.mu.Lock()
						p.quit(key, w)
						p.mu.Unlock()
						break
					}
				}
			}
			if len(begun) > most || p.taken != len(begun) {
				t.Fatalf("%d of %d begun, %d counted", len(begun), most, p.taken)
			}
			for key := range 4 {
				n := has(begun, key)
				if n > each {
					t.Fatalf("key %d has %d of %d", key, n, each)
				}
				if has(waiting, key) > 0 && n < each && len(begun) < most {
					t.Fatalf("key %d waits beside a free place", key)
				}
			}
		}
		for w, key := range waiting {
			p.mu.Lock()
			p.quit(key, w)
			p.mu.Unlock()
		}
		for _, key := range begun {
			p.leave(key)
		}
		if places, keys := p.Taken(); places != 0 || keys != 0 {
			t.Fatalf("%d places, %d keys are left", places, keys)
		}
	})
}

func TestStock(t *testing.T) {
	b := NewStock[string](100, 40)
	for _, x := range []struct {
		key  string
		take int
		ok   bool
	}{
		{"a", 30, true}, {"a", 11, false}, {"a", 10, true}, {"a", 1, false},
		{"b", 50, true}, {"b", 1, false}, // one thing may be larger than a share
		{"c", 11, false}, {"c", 10, true}, {"c", 0, true},
	} {
		if ok := b.Take(x.key, x.take); ok != x.ok {
			t.Errorf("%s takes %d: %v", x.key, x.take, ok)
		}
	}
	b.Give("a", 40)
	b.Give("b", 50)
	b.Give("c", 10)
	if bytes, keys := b.Held(); bytes != 0 || keys != 0 {
		t.Errorf("%d bytes of %d are left", bytes, keys)
	}
}
