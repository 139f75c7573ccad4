package authz

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var someTuple = rapid.Custom(func(t *rapid.T) Tuple {
	return Tuple{
		User:     TypeUser + ":" + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "user"),
		Relation: rapid.SampledFrom([]string{RelationOwner, RelationEditor, RelationRunner}).Draw(t, "relation"),
		Object:   "agent:x",
	}
})

// Through any run of changes and applications, the outbox is pending exactly when what was applied last, in the order
// of revisions, is not what is desired now, and no revision is ever used for two states.
func TestOutbox(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Outbox
		states := map[int64][]Tuple{0: nil}
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			before := b
			if rapid.Bool().Draw(t, "change") {
				want := rapid.SliceOfN(someTuple, 0, 6).Draw(t, "tuples")
				asked := slices.Clone(want)
				b = b.Desire(want)
				if !slices.Equal(asked, want) {
					t.Fatal("the caller's tuples were changed")
				}
				for _, tu := range want {
					if !slices.Contains(b.Desired, tu) {
						t.Fatalf("%v is not desired", tu)
					}
				}
				for _, tu := range b.Desired {
					if !slices.Contains(want, tu) {
						t.Fatalf("%v is desired by nobody", tu)
					}
				}
				if b.AppliedRev != before.AppliedRev || b.DesiredRev < before.DesiredRev || b.DesiredRev > before.DesiredRev+1 {
					t.Fatalf("%+v after %+v", b, before)
				}
				if old, ok := states[b.DesiredRev]; ok && !slices.Equal(old, b.Desired) {
					t.Fatalf("revision %d means two states", b.DesiredRev)
				}
				states[b.DesiredRev] = b.Desired
				if b.DesiredRev == 0 {
					t.Fatal("a change has no revision")
				}
			} else {
				rev := rapid.Int64Range(-1, b.DesiredRev+2).Draw(t, "rev")
				b = b.Applied(rev)
				if want := max(before.AppliedRev, rev); rev <= before.DesiredRev && b.AppliedRev != want {
					t.Fatalf("applied %d, want %d", b.AppliedRev, want)
				}
			}
			if b.AppliedRev > b.DesiredRev || b.AppliedRev < before.AppliedRev {
				t.Fatalf("%+v after %+v", b, before)
			}
			if b.Pending() != (b.AppliedRev != b.DesiredRev) {
				t.Fatalf("pending %v: %+v", b.Pending(), b)
			}
		}
	})
}

func TestValidateTuples(t *testing.T) {
	object := Agent("a")
	good := []Tuple{
		{User: "user:olga", Relation: RelationOwner, Object: "agent:a"},
		{User: "user:o.l-g_a@example.org", Relation: RelationEditor, Object: "agent:a"},
		{User: "user:*", Relation: RelationRunner, Object: "agent:a"},
		{User: "team:blue#member", Relation: RelationViewer, Object: "agent:a"},
	}
	if err := ValidateTuples(object, good); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string]Tuple{
		"other object":      {User: "user:olga", Relation: RelationOwner, Object: "agent:b"},
		"object type":       {User: "user:olga", Relation: RelationOwner, Object: "session:a"},
		"permission":        {User: "user:olga", Relation: CanEdit, Object: "agent:a"},
		"other relation":    {User: "user:olga", Relation: RelationMember, Object: "agent:a"},
		"no type":           {User: "olga", Relation: RelationOwner, Object: "agent:a"},
		"unknown type":      {User: "robot:olga", Relation: RelationOwner, Object: "agent:a"},
		"no id":             {User: "user:", Relation: RelationOwner, Object: "agent:a"},
		"empty":             {Relation: RelationOwner, Object: "agent:a"},
		"space":             {User: "user:ol ga", Relation: RelationOwner, Object: "agent:a"},
		"other wildcard":    {User: "team:*", Relation: RelationViewer, Object: "agent:a"},
		"wildcard set":      {User: "user:*#member", Relation: RelationViewer, Object: "agent:a"},
		"unknown set":       {User: "team:blue#owner", Relation: RelationViewer, Object: "agent:a"},
		"set of nothing":    {User: "team:blue#", Relation: RelationViewer, Object: "agent:a"},
		"two sets":          {User: "team:blue#member#member", Relation: RelationViewer, Object: "agent:a"},
		"unicode lookalike": {User: "user:оlga", Relation: RelationOwner, Object: "agent:a"},
		"long":              {User: "user:" + strings.Repeat("a", 129), Relation: RelationOwner, Object: "agent:a"},
	} {
		if err := ValidateTuples(object, append(slices.Clone(good), bad)); err == nil {
			t.Errorf("%s: %v was taken", name, bad)
		}
	}
	for name, o := range map[string]Object{"type": {Type: "document", ID: "a"}, "id": Agent("a:b"), "no id": Agent("")} {
		if err := ValidateTuples(o, nil); err == nil {
			t.Errorf("%s: %v was taken", name, o)
		}
	}
	if err := ValidateTuples(object, make([]Tuple, MaxTuples+1)); err == nil {
		t.Error("too many tuples were taken")
	}
}

// The tuples that this package makes are tuples that it takes, of every object that gets some.
func TestMadeTuplesAreValid(t *testing.T) {
	for _, row := range []struct {
		object Object
		tuples []Tuple
		count  int
	}{
		{Agent("agt_1"), AgentTuples("agt_1", "olga"), 1},
		{Platform(), PlatformTuples([]string{"ada", "ada"}, []string{"mia", "ada"}, true), 4},
		{Platform(), PlatformTuples([]string{"ada"}, nil, false), 1},
		{Platform(), PlatformTuples(nil, nil, false), 0},
		{Harness("deepagents"), HarnessTuples("deepagents", true), 2},
		{Harness("deepagents"), HarnessTuples("deepagents", false), 1},
	} {
		if err := ValidateTuples(row.object, row.tuples); err != nil || len(row.tuples) != row.count {
			t.Errorf("%s: %v, %v", row.object, row.tuples, err)
		}
	}
	for _, object := range []Object{Platform(), Agent("a")} {
		tuples := PlatformTuples([]string{"*"}, nil, false)
		if object.Type == TypeAgent {
			tuples = AgentTuples(object.ID, "*")
		}
		if err := ValidateTuples(object, tuples); err == nil {
			t.Errorf("everybody may have %v", tuples)
		}
	}
}

// Whatever is accepted as a name has no character that OpenFGA gives a meaning, and can be told apart in a tuple.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"olga", "agt_1", "*", "a:b", "a#b", "", "a b", "o@x.org", "é", "\x00", "a\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if validID(s) && !validSubject(s) {
			t.Errorf("%q is an id and no subject", s)
		}
		if !validSubject(s) {
			return
		}
		if s == "" || len(s) > 128 || strings.ContainsAny(s, ":#*/\\ \t\r\n\x00\"'<>") {
			t.Errorf("%q is a subject", s)
		}
		if !validUser(TypeUser + ":" + s) {
			t.Errorf("%q is a subject, but not in a tuple", s)
		}
	})
}
