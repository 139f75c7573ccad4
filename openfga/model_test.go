package openfga_test

import (
	"maps"
	"slices"
	"testing"

	openfgav1 "github.com/openfga/api/proto/openfga/v1"
	"github.com/openfga/language/pkg/go/transformer"

	"github.com/harness-engine/harness-engine/engine/authz"
)

// The constants of engine/authz and the model say the same: no type, relation or permission is in only one of them,
// and the tuples that may be stated are those that the model assigns directly.
func TestModelAgreesWithConstants(t *testing.T) {
	model, err := transformer.TransformDSLToProto(authz.ModelDSL())
	if err != nil {
		t.Fatal(err)
	}
	got, direct := map[string][]string{}, map[string][]string{}
	for _, d := range model.GetTypeDefinitions() {
		got[d.GetType()] = slices.Sorted(maps.Keys(d.GetRelations()))
		for name, meta := range d.GetMetadata().GetRelations() {
			if len(meta.GetDirectlyRelatedUserTypes()) > 0 {
				direct[d.GetType()] = append(direct[d.GetType()], name)
			}
		}
		slices.Sort(direct[d.GetType()])
	}
	want := authz.Relations()
	for kind := range want {
		slices.Sort(want[kind])
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("model has %v, constants have %v", got, want)
	}
	for _, d := range model.GetTypeDefinitions() {
		for name, meta := range d.GetMetadata().GetRelations() {
			everybody := slices.ContainsFunc(meta.GetDirectlyRelatedUserTypes(), func(r *openfgav1.RelationReference) bool { return r.GetWildcard() != nil })
			err := authz.ValidateTuples(authz.Object{Type: d.GetType(), ID: "x"}, []authz.Tuple{tuple(authz.AnyUser, name, d.GetType()+":x")})
			if (err == nil) != everybody {
				t.Errorf("%s of %s for everybody: the model says %v, the constants say %v", name, d.GetType(), everybody, err)
			}
		}
	}
	for kind, names := range want {
		stated := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return len(n) > 4 && n[:4] == "can_" })
		if !slices.Equal(stated, direct[kind]) {
			t.Errorf("%s: stated %v, assigned directly in the model %v", kind, stated, direct[kind])
		}
	}
}

// world is what every row of the table sees. Nina is in none of it.
var world = []authz.Tuple{
	tuple("user:tom", "member", "team:blue"),
	tuple("user:ada", "admin", "platform:main"),
	tuple("user:mia", "member", "platform:main"),
	tuple("team:blue#member", "member", "platform:main"),
	tuple("platform:main", "platform", "harness:open"),
	tuple("platform:main#member", "user", "harness:open"),
	tuple("platform:main", "platform", "harness:closed"),
	tuple("user:eve", "user", "harness:closed"),
	tuple("user:olga", "owner", "agent:private"),
	tuple("user:ed", "editor", "agent:private"),
	tuple("user:rita", "runner", "agent:private"),
	tuple("user:vic", "viewer", "agent:private"),
	tuple("user:olga", "owner", "agent:team"),
	tuple("team:blue#member", "runner", "agent:team"),
	tuple("user:olga", "owner", "agent:public"),
	tuple("user:*", "runner", "agent:public"),
	tuple("user:olga", "owner", "agent:shown"),
	tuple("user:*", "viewer", "agent:shown"),
}

// conversation is what a check of a session or run brings along: Rita talks to Olga's agent.
var conversation = []authz.Tuple{
	tuple("user:rita", "owner", "session:s"),
	tuple("agent:private", "agent", "session:s"),
	tuple("session:s", "session", "run:r"),
}

func TestModel(t *testing.T) {
	_, client := start(t)
	byObject := map[string][]authz.Tuple{}
	for _, tu := range world {
		byObject[tu.Object] = append(byObject[tu.Object], tu)
	}
	for _, o := range []authz.Object{
		{Type: authz.TypeTeam, ID: "blue"}, authz.Platform(), authz.Harness("open"), authz.Harness("closed"),
		authz.Agent("private"), authz.Agent("team"), authz.Agent("public"), authz.Agent("shown"),
	} {
		apply(t, client, o, byObject[o.String()]...)
	}
	rows := []struct {
		object, relation string
		yes, no          []string
		with             []authz.Tuple
	}{
		{object: "team:blue", relation: "member", yes: []string{"tom"}, no: []string{"nina", "ada"}},
		{object: "platform:main", relation: "admin", yes: []string{"ada"}, no: []string{"mia", "tom", "nina"}},
		{object: "platform:main", relation: "member", yes: []string{"mia", "tom", "ada"}, no: []string{"nina"}},
		{object: "platform:main", relation: "can_list", yes: []string{"mia", "tom", "ada"}, no: []string{"nina"}},
		{object: "platform:main", relation: "can_create_agent", yes: []string{"mia", "tom", "ada"}, no: []string{"nina"}},
		{object: "platform:main", relation: "can_introspect", yes: []string{"ada"}, no: []string{"mia", "tom", "nina"}},
		{object: "platform:main", relation: "can_attach", yes: []string{"mia", "tom", "ada"}, no: []string{"nina"}},
		{object: "harness:open", relation: "user", yes: []string{"mia", "tom", "ada"}, no: []string{"nina"}},
		{object: "harness:open", relation: "can_use", yes: []string{"mia", "tom", "ada"}, no: []string{"nina"}},
		{object: "harness:closed", relation: "user", yes: []string{"eve"}, no: []string{"mia", "ada", "nina"}},
		{object: "harness:closed", relation: "can_use", yes: []string{"eve", "ada"}, no: []string{"mia", "tom", "nina"}},
		{object: "agent:private", relation: "owner", yes: []string{"olga"}, no: []string{"ed", "rita", "vic", "nina", "ada"}},
		{object: "agent:private", relation: "editor", yes: []string{"ed"}, no: []string{"olga", "rita", "vic", "nina"}},
		{object: "agent:private", relation: "runner", yes: []string{"rita"}, no: []string{"olga", "ed", "vic", "nina"}},
		{object: "agent:private", relation: "viewer", yes: []string{"vic"}, no: []string{"olga", "ed", "rita", "nina"}},
		{object: "agent:private", relation: "can_view", yes: []string{"olga", "ed", "rita", "vic"}, no: []string{"nina", "ada", "tom"}},
		{object: "agent:private", relation: "can_view_config", yes: []string{"olga", "ed"}, no: []string{"rita", "vic", "nina", "ada"}},
		{object: "agent:private", relation: "can_edit", yes: []string{"olga", "ed"}, no: []string{"rita", "vic", "nina", "ada"}},
		{object: "agent:private", relation: "can_use", yes: []string{"olga", "ed", "rita"}, no: []string{"vic", "nina", "ada"}},
		{object: "agent:private", relation: "can_delete", yes: []string{"olga"}, no: []string{"ed", "rita", "vic", "nina", "ada"}},
		{object: "agent:private", relation: "can_share", yes: []string{"olga"}, no: []string{"ed", "rita", "vic", "nina", "ada"}},
		{object: "agent:team", relation: "can_use", yes: []string{"olga", "tom"}, no: []string{"mia", "nina"}},
		{object: "agent:team", relation: "can_view_config", yes: []string{"olga"}, no: []string{"tom", "nina"}},
		{object: "agent:public", relation: "can_use", yes: []string{"olga", "nina"}},
		{object: "agent:public", relation: "can_view_config", yes: []string{"olga"}, no: []string{"nina"}},
		{object: "agent:public", relation: "can_edit", yes: []string{"olga"}, no: []string{"nina"}},
		{object: "agent:shown", relation: "can_view", yes: []string{"olga", "nina"}},
		{object: "agent:shown", relation: "can_use", yes: []string{"olga"}, no: []string{"nina"}},
		{object: "agent:gone", relation: "can_view", no: []string{"olga", "nina", "ada"}},
		{object: "session:s", relation: "owner", with: conversation, yes: []string{"rita"}, no: []string{"olga", "nina"}},
		{object: "session:s", relation: "can_view", with: conversation, yes: []string{"rita"}, no: []string{"olga", "ed", "ada", "nina"}},
		{object: "session:s", relation: "can_run", with: conversation, yes: []string{"rita"}, no: []string{"olga", "ed", "ada", "nina"}},
		{object: "session:s", relation: "can_clear", with: conversation, yes: []string{"rita"}, no: []string{"olga", "ed", "ada", "nina"}},
		{object: "run:r", relation: "can_view", with: conversation, yes: []string{"rita"}, no: []string{"olga", "ed", "ada", "nina"}},
		{object: "run:r", relation: "can_cancel", with: conversation, yes: []string{"rita"}, no: []string{"olga", "ed", "ada", "nina"}},
		{object: "run:r", relation: "can_resume", with: conversation, yes: []string{"rita"}, no: []string{"olga", "ed", "ada", "nina"}},
		// Whoever lost the agent keeps what was said, and can stop and clear, but not go on.
		{object: "session:s", relation: "can_view", yes: []string{"nina"}, no: []string{"rita"},
			with: []authz.Tuple{tuple("user:nina", "owner", "session:s"), tuple("agent:private", "agent", "session:s")}},
		{object: "session:s", relation: "can_run", no: []string{"nina", "rita"},
			with: []authz.Tuple{tuple("user:nina", "owner", "session:s"), tuple("agent:private", "agent", "session:s")}},
		{object: "session:s", relation: "can_run", no: []string{"vic"},
			with: []authz.Tuple{tuple("user:vic", "owner", "session:s"), tuple("agent:private", "agent", "session:s")}},
		{object: "session:s", relation: "can_run", no: []string{"rita"},
			with: []authz.Tuple{tuple("user:rita", "owner", "session:s"), tuple("agent:gone", "agent", "session:s")}},
		{object: "run:r", relation: "can_resume", no: []string{"nina", "rita"}, with: []authz.Tuple{
			tuple("user:nina", "owner", "session:s"), tuple("agent:private", "agent", "session:s"), tuple("session:s", "session", "run:r")}},
		// Without their facts, sessions and runs belong to nobody.
		{object: "session:s", relation: "can_view", no: []string{"rita", "olga", "ada"}},
		{object: "session:s", relation: "can_run", no: []string{"rita", "olga", "ada"}},
		{object: "run:r", relation: "can_view", no: []string{"rita", "olga", "ada"}},
		{object: "run:r", relation: "can_cancel", no: []string{"rita", "olga", "ada"}},
		{object: "run:r", relation: "can_resume", no: []string{"rita", "olga", "ada"}},
	}
	sawYes, sawNo := map[string]bool{}, map[string]bool{}
	var batch []authz.Check
	var want []bool
	for _, row := range rows {
		object := parse(t, row.object)
		add := func(subjects []string, answer bool, seen map[string]bool) {
			for _, s := range subjects {
				check := authz.Check{User: "user:" + s, Relation: row.relation, Object: object, Contextual: row.with}
				if got := allowed(t, client, check); got != answer {
					t.Errorf("%s %s %s: %v, want %v", s, row.relation, row.object, got, answer)
				}
				seen[object.Type+"#"+row.relation] = true
				batch, want = append(batch, check), append(want, answer)
			}
		}
		add(row.yes, true, sawYes)
		add(row.no, false, sawNo)
	}
	// The batch must answer as the single checks did, in order, across several requests.
	got, err := client.CheckAll(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("batch: got %v, want %v", got, want)
	}
	// These name an object, not a user, so a user can never have them.
	pointers := map[string]bool{"harness#platform": true, "session#agent": true, "run#session": true}
	for kind, names := range authz.Relations() {
		for _, name := range names {
			if key := kind + "#" + name; !pointers[key] && (!sawYes[key] || !sawNo[key]) {
				t.Errorf("%s is not tested: allowed %v, denied %v", key, sawYes[key], sawNo[key])
			}
		}
	}
}

func parse(t *testing.T, s string) authz.Object {
	t.Helper()
	for i := range s {
		if s[i] == ':' {
			return authz.Object{Type: s[:i], ID: s[i+1:]}
		}
	}
	t.Fatalf("%q is no object", s)
	return authz.Object{}
}
