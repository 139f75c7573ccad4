package resolvers

import (
	"context"
	"fmt"
	"strings"

	"github.com/99designs/gqlgen/graphql"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/graph/model"
)

// nodeTypes says what an id's prefix names.
var nodeTypes = map[string]string{
	id.Agent:   authz.TypeAgent,
	id.Session: authz.TypeSession,
	id.Run:     authz.TypeRun,
}

// objectTypes are the authorization types of those AuthzType values that fix one.
var objectTypes = map[model.AuthzType]string{
	model.AuthzTypeAgent:   authz.TypeAgent,
	model.AuthzTypeSession: authz.TypeSession,
	model.AuthzTypeRun:     authz.TypeRun,
}

// rootTypes are the types whose fields are entry points: there a denial is an error.
var rootTypes = map[string]bool{"Query": true, "Mutation": true, "Subscription": true}

// authorize is @authz. It asks before the resolver runs. A denied root field is an error; a denied edge is null, or an
// error where the edge cannot be null.
func (r *Root) authorize(ctx context.Context, obj any, next graphql.Resolver, permission string, typ model.AuthzType,
	arg, parent, otherwise *string,
) (any, error) {
	if _, ok := authz.CallerFrom(ctx); !ok {
		return nil, problem.New(problem.Unauthenticated, "authentication required")
	}
	field := graphql.GetFieldContext(ctx)
	target, found, err := targetOf(ctx, field, obj, typ, arg, parent)
	if err != nil {
		return nil, err
	}
	if !found {
		switch {
		case otherwise != nil:
			permission, target = *otherwise, authz.Platform()
		case parent != nil && !field.Field.Definition.Type.NonNull:
			return nil, nil // nothing is there to be shown
		default:
			return nil, problem.NotFoundf("object")
		}
	}
	if rootTypes[field.Object] {
		if isShown(ctx) {
			return next(ctx) // under its feed's permission, which is asked for anew in time
		}
		if err := r.Guard.Require(ctx, permission, target); err != nil {
			return nil, err
		}
		return next(ctx)
	}
	ok, err := r.loaders(ctx).allowed.Load(ctx, question{permission, target})
	switch {
	case err != nil:
		return nil, err
	case ok:
		return next(ctx)
	case !field.Field.Definition.Type.NonNull:
		return nil, nil
	}
	return nil, problem.NotFoundf(target.Type)
}

// targetOf finds the object of a check; false where its id is absent.
func targetOf(ctx context.Context, field *graphql.FieldContext, obj any, typ model.AuthzType, arg, parent *string) (authz.Object, bool, error) {
	var objectID, path string
	switch {
	case typ == model.AuthzTypePlatform:
		return authz.Platform(), true, nil
	case parent != nil:
		v, err := parentID(obj, *parent)
		if err != nil {
			return authz.Object{}, false, err
		}
		objectID = v
	case arg != nil:
		path = *arg
		v, err := argumentID(ctx, field, path)
		if err != nil {
			return authz.Object{}, false, err
		}
		if v == nil {
			return authz.Object{}, false, nil
		}
		objectID = *v
		if err := checkID(path, objectID); err != nil {
			return authz.Object{}, false, err
		}
	}
	if objectID == "" {
		return authz.Object{}, false, nil
	}
	if typ == model.AuthzTypeInterrupt {
		runID, ok := id.RunOfInterrupt(objectID)
		if !ok {
			return authz.Object{}, false, problem.NotFoundf("run") // as for a run that is not there
		}
		return authz.Run(runID), true, nil
	}
	name, fixed := objectTypes[typ]
	if !fixed {
		prefix, _, _ := strings.Cut(objectID, "_")
		if name = nodeTypes[prefix]; name == "" {
			return authz.Object{}, false, problem.NotFoundf("object")
		}
	}
	return authz.Object{Type: name, ID: objectID}, true, nil
}

// argumentID reads the id at a dotted path of the field's arguments; nil where it is absent or null.
func argumentID(ctx context.Context, field *graphql.FieldContext, path string) (*string, error) {
	var at any = field.Field.ArgumentMap(graphql.GetOperationContext(ctx).Variables)
	for _, step := range strings.Split(path, ".") {
		m, ok := at.(map[string]any)
		if !ok {
			return nil, nil
		}
		at = m[step]
	}
	if at == nil {
		return nil, nil
	}
	v, err := graphql.UnmarshalID(at)
	if err != nil {
		return nil, problem.Field(path, "must be an id")
	}
	return &v, nil
}

// parentID reads the id that a field of the parent holds; empty where it is null.
func parentID(obj any, field string) (string, error) {
	deref := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	switch obj := obj.(type) {
	case *model.Agent:
		if field == "id" {
			return obj.ID, nil
		}
	case *model.Session:
		switch field {
		case "id":
			return obj.ID, nil
		case "agentId":
			return obj.AgentID, nil
		case "activeRunId":
			return deref(obj.ActiveRunID), nil
		}
	case *model.Run:
		switch field {
		case "id":
			return obj.ID, nil
		case "agentId":
			return obj.AgentID, nil
		case "sessionId":
			return obj.SessionID, nil
		case "continuesId":
			return deref(obj.ContinuesID), nil
		case "continuedById":
			return deref(obj.ContinuedByID), nil
		}
	case *model.SessionBusy:
		if field == "activeRunId" {
			return deref(obj.ActiveRunID), nil
		}
	}
	return "", fmt.Errorf("resolvers: @authz(parent: %q) is not readable on %T", field, obj)
}

// caller is the authenticated caller; behind @authz there always is one.
func caller(ctx context.Context) (authz.Caller, error) {
	c, ok := authz.CallerFrom(ctx)
	if !ok {
		return authz.Caller{}, problem.New(problem.Unauthenticated, "authentication required")
	}
	return c, nil
}

// allowedOnly keeps the items whose object the caller has the permission on.
func allowedOnly[T any](ctx context.Context, r *Root, permission string, items []T, object func(T) authz.Object) ([]T, error) {
	if len(items) == 0 {
		return items, nil
	}
	objects := make([]authz.Object, len(items))
	for i, item := range items {
		objects[i] = object(item)
	}
	ok, errs := r.allowedEach(ctx, permission, objects)
	kept := make([]T, 0, len(items))
	for i, item := range items {
		switch {
		case isDamaged(errs[i]):
			r.leftOut(ctx, objects[i].Type, objects[i].ID, errs[i])
		case errs[i] != nil:
			return nil, errs[i]
		case ok[i]:
			kept = append(kept, item)
		}
	}
	return kept, nil
}
