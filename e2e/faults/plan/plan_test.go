package plan

import (
	"reflect"
	"testing"
	"time"
)

func options(seed uint64, points int) Options {
	return Options{Seed: seed, Points: points, Replicas: 2, Talks: 8, Node: 2, Lease: time.Second, Shims: true}
}

func made(t *testing.T, o Options) Plan {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSameSeedSamePlan: a seed names its faults and its conversations, and another seed others.
func TestSameSeedSamePlan(t *testing.T) {
	a, b, c := made(t, options(7, 300)), made(t, options(7, 300)), made(t, options(8, 300))
	if !reflect.DeepEqual(a, b) {
		t.Error("one seed gave two plans")
	}
	if reflect.DeepEqual(a.Points, c.Points) {
		t.Error("two seeds gave one plan")
	}
	for n := range 8 {
		x, y, z := a.Talk(n), b.Talk(n), c.Talk(n)
		differs := false
		for range 50 {
			one, other := x.Next(), y.Next()
			if !reflect.DeepEqual(one, other) {
				t.Fatalf("talk %d: one seed gave %+v and %+v", n, one, other)
			}
			differs = differs || !reflect.DeepEqual(one, z.Next())
		}
		if !differs {
			t.Errorf("talk %d is the same in two seeds", n)
		}
	}
}

// TestLongerPlanBeginsAlike: a point that fails in a long plan is found in a shorter one.
func TestLongerPlanBeginsAlike(t *testing.T) {
	short, long := made(t, options(3, 50)), made(t, options(3, 500))
	if !reflect.DeepEqual(short.Points, long.Points[:50]) {
		t.Error("the first points differ")
	}
}

// TestEveryKindIsDrawn, and each in its bounds.
func TestEveryKindIsDrawn(t *testing.T) {
	o := options(1, 5000)
	seen := map[Kind]int{}
	for _, p := range made(t, o).Points {
		seen[p.Kind]++
		if l := lasts[p.Kind]; l.most > 0 && (p.For < time.Duration(l.least*float64(o.Lease)) || p.For > time.Duration(l.most*float64(o.Lease))) {
			t.Fatalf("%s is out of its bounds", p)
		}
		if p.Kind == EngineStop && p.For <= o.Lease {
			t.Fatalf("%s: a stop within the lease shows nothing", p)
		}
		if p.Replica < 0 || p.Replica >= o.Replicas || p.After < gapLeast {
			t.Fatalf("%s is out of its bounds", p)
		}
	}
	for _, k := range Kinds() {
		if seen[k] < 50 {
			t.Errorf("%s came %d times in 5000 points", k, seen[k])
		}
	}
}

// TestImpossibleKindsAreNotDrawn where there is nothing that they could meet.
func TestImpossibleKindsAreNotDrawn(t *testing.T) {
	o := options(1, 3000)
	o.Shims, o.Node, o.Replicas = false, 0, 1
	for _, p := range made(t, o).Points {
		if p.Kind == ShimKill || p.Kind == ModelCut || p.Kind == AllKill {
			t.Fatalf("%s", p)
		}
	}
}

func TestOptionsNameTheField(t *testing.T) {
	for field, spoil := range map[string]func(*Options){
		"points":   func(o *Options) { o.Points = 0 },
		"replicas": func(o *Options) { o.Replicas = 9 },
		"talks":    func(o *Options) { o.Talks = 0 },
		"node":     func(o *Options) { o.Node = 9 },
		"lease":    func(o *Options) { o.Lease = 0 },
	} {
		o := options(1, 1)
		spoil(&o)
		if err := o.Check(); err == nil || err.Error()[:len(field)] != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
