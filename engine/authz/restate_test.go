package authz

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// TestRestate loses every tuple of an authorization store: the documents, which say that theirs are applied, bring them back,
// page after page, and what is wrong there goes.
func TestRestate(t *testing.T) {
	s := newShelf()
	r := newTestReconciler(t, s)
	ctx := t.Context()
	var all []string
	want := map[Object][]Tuple{}
	for i := range 2*sweepPage + 1 {
		o := Agent(fmt.Sprintf("a%04d", i))
		all = append(all, o.ID)
		tuples := []Tuple{{User: "user:alice", Relation: "owner", Object: o.String()}}
		s.change(o, "CREATING", tuples)
		want[o] = tuples
	}
	if n, err := r.Sweep(ctx); n != len(all) || err != nil {
		t.Fatalf("settled %d: %v", n, err)
	}
	deleted := Agent(all[3])
	s.change(deleted, "DELETING", nil)
	if _, err := r.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	delete(want, deleted)

	s.tuples = map[Object][]Tuple{deleted: {{User: "user:mallory", Relation: "owner", Object: deleted.String()}}} // of an older backup
	if n, err := r.Sweep(ctx); n != 0 || err != nil {
		t.Fatalf("a sweep looks at what is settled: %d, %v", n, err)
	}
	list := func(_ context.Context, after string, limit int) ([]Object, error) {
		i, found := slices.BinarySearch(all, after)
		if found {
			i++
		}
		var page []Object
		for _, id := range all[i:min(len(all), i+limit)] {
			page = append(page, Agent(id))
		}
		return page, nil
	}
	if n, err := r.Restate(ctx, list); n != len(all) || err != nil {
		t.Fatalf("restated %d: %v", n, err)
	}
	for o, tuples := range s.tuples {
		if len(tuples) == 0 {
			delete(s.tuples, o)
		}
	}
	if !reflect.DeepEqual(s.tuples, want) {
		t.Fatalf("%d objects have tuples, want %d", len(s.tuples), len(want))
	}
	s.fault = func(step string, o Object) error {
		if step == "apply" && o.ID == all[5] {
			return ErrUnavailable
		}
		return nil
	}
	if n, err := r.Restate(ctx, list); !errors.Is(err, ErrUnavailable) || n != 5 {
		t.Fatalf("an outage: %d, %v", n, err)
	}
}
