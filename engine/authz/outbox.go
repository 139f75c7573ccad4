package authz

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// MaxTuples bounds the tuples that one object may have.
const MaxTuples = 1000

// Desire returns the outbox with the tuples as the object's next desired state, sorted and without repeats. When the
// object wants exactly these already, the outbox is returned as it is, so repeating a change costs no revision.
func (b Outbox) Desire(tuples []Tuple) Outbox {
	next := Canonical(tuples)
	if b.DesiredRev > 0 && slices.Equal(next, b.Desired) {
		return b
	}
	b.Desired = next
	b.DesiredRev++
	return b
}

// Applied returns the outbox after the tuples of revision rev were applied. An older revision than is known, or one
// that was never desired, changes nothing.
func (b Outbox) Applied(rev int64) Outbox {
	if rev > b.AppliedRev && rev <= b.DesiredRev {
		b.AppliedRev = rev
	}
	return b
}

// Writing returns the outbox with the name among its writers.
func (b Outbox) Writing(name string) Outbox {
	if !slices.Contains(b.Writers, name) {
		b.Writers = append(slices.Clip(b.Writers), name)
	}
	return b
}

// Wrote returns the outbox without the names among its writers.
func (b Outbox) Wrote(names ...string) Outbox {
	var left []string
	for _, w := range b.Writers {
		if !slices.Contains(names, w) {
			left = append(left, w)
		}
	}
	b.Writers = left
	return b
}

// Pending reports whether the desired tuples still have to be applied, or somebody may still apply others.
func (b Outbox) Pending() bool { return b.DesiredRev > b.AppliedRev || len(b.Writers) > 0 }

// Canonical returns the tuples sorted by object, relation and user, without repeats. The result is never nil.
func Canonical(tuples []Tuple) []Tuple {
	out := append(make([]Tuple, 0, len(tuples)), tuples...)
	slices.SortFunc(out, func(a, b Tuple) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Relation, b.Relation), cmp.Compare(a.User, b.User))
	})
	return slices.Compact(out)
}

// ValidateTuples checks that each tuple is about the object, states a relation that the object's type has, and names a
// user, an object, a userset or, where the model lets everybody have the relation, AnyUser; and that there are at most
// MaxTuples.
func ValidateTuples(object Object, tuples []Tuple) error {
	if _, ok := stated[object.Type]; !ok || !validID(object.ID) {
		return fmt.Errorf("authz: %q cannot have tuples", object)
	}
	if len(tuples) > MaxTuples {
		return fmt.Errorf("authz: %d tuples of %s, at most %d", len(tuples), object, MaxTuples)
	}
	for _, t := range tuples {
		if t.Object != object.String() {
			return fmt.Errorf("authz: tuple of %q among those of %s", t.Object, object)
		}
		if !slices.Contains(stated[object.Type], t.Relation) {
			return fmt.Errorf("authz: no tuple can state %q of a %s", t.Relation, object.Type)
		}
		if t.User == AnyUser {
			if !slices.Contains(open[object.Type], t.Relation) {
				return fmt.Errorf("authz: not everybody can be %q of a %s", t.Relation, object.Type)
			}
			continue
		}
		if !validUser(t.User) {
			return fmt.Errorf("authz: %q in a tuple of %s is no user", t.User, object)
		}
	}
	return nil
}

// validUser accepts "user:alice", "platform:main" and "team:x#member".
func validUser(s string) bool {
	name, relation, isSet := strings.Cut(s, "#")
	kind, id, ok := strings.Cut(name, ":")
	relations, known := stated[kind]
	switch {
	case !ok || !known:
		return false
	case isSet && !slices.Contains(relations, relation):
		return false
	case kind == TypeUser:
		return validSubject(id)
	}
	return validID(id)
}

// AgentTuples are the tuples of an agent that only its owner may use. Sharing adds to them.
func AgentTuples(agentID, owner string) []Tuple {
	return []Tuple{{User: TypeUser + ":" + owner, Relation: RelationOwner, Object: Agent(agentID).String()}}
}

// PlatformTuples are the tuples of the platform: its administrators, and its members or everybody who is
// authenticated.
func PlatformTuples(admins, members []string, everybody bool) []Tuple {
	object := Platform().String()
	var ts []Tuple
	for _, s := range admins {
		ts = append(ts, Tuple{User: TypeUser + ":" + s, Relation: RelationAdmin, Object: object})
	}
	for _, s := range members {
		ts = append(ts, Tuple{User: TypeUser + ":" + s, Relation: RelationMember, Object: object})
	}
	if everybody {
		ts = append(ts, Tuple{User: AnyUser, Relation: RelationMember, Object: object})
	}
	return Canonical(ts)
}

// HarnessTuples are the tuples of a harness: administrators may use it, and the platform's members too when members is
// true.
func HarnessTuples(harnessID string, members bool) []Tuple {
	object := Harness(harnessID).String()
	ts := []Tuple{{User: Platform().String(), Relation: RelationPlatform, Object: object}}
	if members {
		ts = append(ts, Tuple{User: Platform().String() + "#" + RelationMember, Relation: RelationUser, Object: object})
	}
	return Canonical(ts)
}
