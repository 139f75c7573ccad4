package resolvers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/graph"
	"github.com/harness-engine/harness-engine/graph/model"
)

// protectedTypes are the types whose values belong to somebody, or to members only.
var protectedTypes = map[string]bool{
	"Agent": true, "AgentVersion": true, "Blueprint": true, "Session": true, "Message": true, "Run": true, "RunEvent": true,
	"RunEventBatch": true, "RunEventPage": true, "Harness": true, "Node": true,
	"Interrupt": true, "FormInterrupt": true, "ToolApprovalInterrupt": true, "SessionEventBatch": true,
	"AgentConnection": true, "AgentVersionConnection": true, "SessionConnection": true, "RunConnection": true, "MessageConnection": true,
}

// permissionsOf lists what may be asked of each AuthzType.
var permissionsOf = map[string][]string{
	"PLATFORM":  {authz.CanList, authz.CanCreateAgent, authz.CanIntrospect, authz.CanAttach},
	"AGENT":     {authz.CanView, authz.CanViewConfig, authz.CanEdit, authz.CanUse, authz.CanDelete, authz.CanShare},
	"SESSION":   {authz.CanView, authz.CanRun, authz.CanClear},
	"RUN":       {authz.CanView, authz.CanCancel},
	"INTERRUPT": {authz.CanResume},
	"NODE":      {authz.CanView},
}

func schemaOf() *ast.Schema { return graph.NewExecutableSchema(graph.Config{}).Schema() }

// eachField calls f for the fields of the schema's own object types.
func eachField(f func(owner *ast.Definition, field *ast.FieldDefinition)) {
	for _, d := range schemaOf().Types {
		if d.BuiltIn || d.Kind != ast.Object {
			continue
		}
		for _, field := range d.Fields {
			if len(field.Name) > 1 && field.Name[:2] == "__" {
				continue
			}
			f(d, field)
		}
	}
}

func directiveArg(d *ast.Directive, name string) string {
	if a := d.Arguments.ForName(name); a != nil && a.Value.Kind != ast.NullValue {
		return a.Value.Raw
	}
	return ""
}

// unguarded lists the fields that need a directive and have none.
func unguarded(types ast.DefinitionList) (missing []string) {
	for _, d := range types {
		for _, field := range d.Fields {
			if d.BuiltIn || d.Kind != ast.Object || field.Name[0] == '_' {
				continue
			}
			needs := rootTypes[d.Name] || protectedTypes[field.Type.Name()]
			if needs && field.Directives.ForName("authz") == nil && field.Directives.ForName("public") == nil {
				missing = append(missing, d.Name+"."+field.Name)
			}
		}
	}
	return missing
}

func TestEveryEntryAndProtectedEdgeSaysWhoMayPass(t *testing.T) {
	var all ast.DefinitionList
	for _, d := range schemaOf().Types {
		all = append(all, d)
	}
	if missing := unguarded(all); len(missing) > 0 {
		t.Errorf("fields with neither @authz nor @public: %v", missing)
	}
}

// The walk itself must be able to fail.
func TestTheWalkFindsAnUnguardedField(t *testing.T) {
	bare := &ast.Definition{Kind: ast.Object, Name: "Team", Fields: ast.FieldList{
		{Name: "agents", Type: ast.NonNullListType(ast.NonNullNamedType("Agent", nil), nil)},
		{Name: "name", Type: ast.NamedType("String", nil)},
	}}
	root := &ast.Definition{Kind: ast.Object, Name: "Query", Fields: ast.FieldList{{Name: "secret", Type: ast.NamedType("String", nil)}}}
	if got := unguarded(ast.DefinitionList{bare, root}); len(got) != 2 || got[0] != "Team.agents" || got[1] != "Query.secret" {
		t.Errorf("found %v", got)
	}
}

func TestDirectivesAreWellFormed(t *testing.T) {
	eachField(func(owner *ast.Definition, field *ast.FieldDefinition) {
		name := owner.Name + "." + field.Name
		if p := field.Directives.ForName("public"); p != nil && len(directiveArg(p, "reason")) < 10 {
			t.Errorf("%s: @public without a reason", name)
		}
		a := field.Directives.ForName("authz")
		if a == nil {
			return
		}
		typ, relation := directiveArg(a, "type"), directiveArg(a, "relation")
		known := false
		for _, p := range permissionsOf[typ] {
			known = known || p == relation
		}
		if !known {
			t.Errorf("%s: the model has no permission %q on %s", name, relation, typ)
		}
		arg, parent := directiveArg(a, "arg"), directiveArg(a, "parent")
		if (typ == "PLATFORM") != (arg == "" && parent == "") {
			t.Errorf("%s: an object needs arg or parent, the platform neither", name)
		}
		if rootTypes[owner.Name] && parent != "" {
			t.Errorf("%s: a root field has no parent", name)
		}
		if !rootTypes[owner.Name] && arg != "" {
			t.Errorf("%s: an edge takes its object from its parent", name)
		}
		if parent != "" {
			sample, ok := parentSamples[owner.Name]
			if !ok {
				t.Fatalf("%s: no sample of %s", name, owner.Name)
			}
			if id, err := parentID(sample, parent); err != nil || id == "" {
				t.Errorf("%s: parent %q is not readable: %v", name, parent, err)
			}
		}
	})
}

// Every element of the public contract is described.
func TestEverythingIsDescribed(t *testing.T) {
	bare := func(name, description string) {
		if description == "" {
			t.Errorf("%s has no description", name)
		}
	}
	for _, d := range schemaOf().Types {
		if d.BuiltIn {
			continue
		}
		bare(d.Name, d.Description)
		for _, f := range d.Fields {
			if f.Name[0] == '_' {
				continue
			}
			bare(d.Name+"."+f.Name, f.Description)
			for _, a := range f.Arguments {
				bare(d.Name+"."+f.Name+"."+a.Name, a.Description)
			}
		}
		for _, v := range d.EnumValues {
			bare(d.Name+"."+v.Name, v.Description)
		}
	}
	for name, d := range schemaOf().Directives {
		if d.Position.Src.BuiltIn {
			continue
		}
		bare("@"+name, d.Description)
		for _, a := range d.Arguments {
			bare("@"+name+"."+a.Name, a.Description)
		}
	}
}

var parentSamples = map[string]any{
	"Agent":       &model.Agent{ID: "agt_1"},
	"Session":     &model.Session{ID: "ses_1", AgentID: "agt_1", ActiveRunID: optional("run_1")},
	"Run":         &model.Run{ID: "run_1", AgentID: "agt_1", SessionID: "ses_1", ContinuesID: optional("run_0"), ContinuedByID: optional("run_2")},
	"SessionBusy": &model.SessionBusy{ActiveRunID: optional("run_1")},
}

// answer is a Guard with one answer for everything.
type answer struct {
	ok  bool
	err error
}

func (a answer) Require(context.Context, string, authz.Object) error {
	if a.err == nil && !a.ok {
		return problem.NotFoundf("object")
	}
	return a.err
}

func (a answer) Allowed(_ context.Context, _ string, objects []authz.Object) ([]bool, error) {
	out := make([]bool, len(objects))
	for i := range out {
		out[i] = a.ok
	}
	return out, a.err
}

func (a answer) Recheck(context.Context, string, authz.Object) (time.Time, error) {
	return time.Now().Add(time.Second), a.Require(context.Background(), "", authz.Object{})
}

// fieldContext is what the executor gives a directive on the field.
func fieldContext(owner string, field *ast.FieldDefinition) context.Context {
	ctx := authz.WithCaller(context.Background(), authz.Caller{Environment: "test", Subject: "bob"})
	ctx = graphql.WithOperationContext(ctx, &graphql.OperationContext{})
	return graphql.WithFieldContext(ctx, &graphql.FieldContext{
		Object: owner, Field: graphql.CollectedField{Field: &ast.Field{Name: field.Name, Definition: field}},
	})
}

// Every edge with @authz: a denial never reaches the resolver, and shows as null where the edge may be null.
func TestDeniedEdgesNeverResolve(t *testing.T) {
	edges := 0
	unavailable := problem.New(problem.AuthorizationUnavailable, "try again")
	eachField(func(owner *ast.Definition, field *ast.FieldDefinition) {
		a := field.Directives.ForName("authz")
		if a == nil || rootTypes[owner.Name] {
			return
		}
		edges++
		name := owner.Name + "." + field.Name
		call := func(guard Guard, obj any) (resolved bool, v any, err error) {
			r := &Root{Options: Options{Guard: guard}}
			v, err = r.authorize(fieldContext(owner.Name, field), obj, func(context.Context) (any, error) {
				resolved = true
				return "value", nil
			}, directiveArg(a, "relation"), model.AuthzType(directiveArg(a, "type")), nil, optional(directiveArg(a, "parent")), nil)
			return resolved, v, err
		}
		sample := parentSamples[owner.Name]
		resolved, v, err := call(answer{ok: false}, sample)
		if resolved || v != nil {
			t.Errorf("%s: denied, yet resolved %v, value %v", name, resolved, v)
		}
		if field.Type.NonNull != problem.Is(err, problem.NotFound) || (!field.Type.NonNull && err != nil) {
			t.Errorf("%s (%s): denied with %v", name, field.Type, err)
		}
		if resolved, v, err := call(answer{err: unavailable}, sample); resolved || v != nil || !errors.Is(err, unavailable) {
			t.Errorf("%s: no answer, yet resolved %v, value %v, error %v", name, resolved, v, err)
		}
		if resolved, v, err := call(answer{ok: true}, sample); !resolved || v != "value" || err != nil {
			t.Errorf("%s: allowed, yet resolved %v, value %v, error %v", name, resolved, v, err)
		}
	})
	if edges < 10 {
		t.Errorf("only %d edges found", edges)
	}
}

// An edge to nothing is null without asking; an unauthenticated caller gets nowhere.
func TestEdgesWithoutTargetOrCaller(t *testing.T) {
	field := schemaOf().Types["Session"].Fields.ForName("activeRun")
	r := &Root{Options: Options{Guard: answer{err: errors.New("asked")}}}
	never := func(context.Context) (any, error) { return nil, errors.New("resolved") }
	v, err := r.authorize(fieldContext("Session", field), &model.Session{ID: "ses_1"}, never, authz.CanView, model.AuthzTypeRun, nil, optional("activeRunId"), nil)
	if v != nil || err != nil {
		t.Errorf("no active run: %v, %v", v, err)
	}
	ctx := graphql.WithFieldContext(context.Background(), graphql.GetFieldContext(fieldContext("Session", field)))
	if _, err := r.authorize(ctx, nil, never, authz.CanView, model.AuthzTypeRun, nil, nil, nil); !problem.Is(err, problem.Unauthenticated) {
		t.Errorf("no caller: %v", err)
	}
	if _, err := parentID(&model.Run{}, "nothing"); err == nil {
		t.Error("an unreadable parent field must be an error")
	}
	if _, err := parentID(fmt.Errorf("x"), "id"); err == nil {
		t.Error("an unreadable parent must be an error")
	}
}
