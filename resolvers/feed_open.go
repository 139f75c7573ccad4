package resolvers

import (
	"context"
	"strconv"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/graph/model"
	"github.com/harness-engine/harness-engine/graph/scalar"
	"github.com/harness-engine/harness-engine/resolvers/encode"
)

// OpenFeed opens the feed of a subscription. ok is false where the operation has to be executed in the ordinary way, by
// the executor; nothing was asked or opened then. The caller has checked the operation (CreateOperationContext does);
// authorization, arguments and their bounds are checked here. The error is a gqlerror.List, what the ordinary way would
// answer. after, where it is not empty, is put into the place of the argument of that name: the cursor of an Item. ctx must
// carry the caller; its values are not kept, its end is not that of the feed. The feed of a state is a StateFeed, which
// keeps the operation.
func (r *Root) OpenFeed(ctx context.Context, op *graphql.OperationContext, after string) (f Feed, ok bool, err error) {
	root, err := encode.Root(op)
	if err != nil {
		return nil, false, nil //nolint:nilerr // it is another operation
	}
	ctx = graphql.WithOperationContext(ctx, op)
	ctx = graphql.WithFieldContext(ctx, &graphql.FieldContext{Object: "Subscription", Field: root, Args: root.ArgumentMap(op.Variables)})
	if watch := watches[root.Name]; watch != nil && after == "" {
		opened, err := r.openState(ctx, op, root, watch)
		if err != nil {
			return nil, true, r.unopened(ctx, err)
		}
		return opened, true, nil
	}
	if root.Name != encode.RunEvents && root.Name != encode.SessionEvents {
		return nil, false, nil
	}
	args, known := feedArguments(root.Field, op.Variables)
	if !known { // the executor tells what is wrong with them
		return nil, false, nil
	}
	form, err := r.forms.of(op)
	if err != nil {
		return nil, false, nil //nolint:nilerr // the executor knows more
	}
	opened, err := r.openOperation(ctx, root, args, form, after)
	if err != nil {
		return nil, true, r.unopened(ctx, err)
	}
	opened.present = r.presentAt(strings.Clone(root.Alias)) // a feed keeps nothing of the document
	return opened, true, nil
}

// unopened is why a feed was not opened, as the executor would answer.
func (r *Root) unopened(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return gqlerror.List{r.Present(ctx, graphql.ErrorOnPath(ctx, graphql.AddFieldLocationToError(ctx, err)))}
}

func (r *Root) openOperation(ctx context.Context, root graphql.CollectedField, args feedArgs, form *form, after string) (*feed, error) {
	permission, object, err := feedTarget(ctx, root)
	if err != nil {
		return nil, err
	}
	return r.openFeed(ctx, permission, object, func() (source, error) {
		if root.Name == encode.SessionEvents {
			return r.sessionSource(ctx, args, form, after)
		}
		at := args.sequence
		if after != "" {
			n, err := strconv.ParseInt(after, 10, 64)
			if err != nil {
				return nil, problem.Field("after", "is not a cursor of this run")
			}
			at = n
		}
		if err := checkSequence("after", at); err != nil {
			return nil, err
		}
		if err := r.sameEpoch(ctx, args.id, args.logEpoch); err != nil {
			return nil, err
		}
		return &runSource{frames: r.frames, form: form, sub: r.Hub.Subscribe(args.id, at), limit: r.Limits.BatchEvents}, nil
	})
}

// feedArgs are the arguments of runEvents and sessionEvents.
type feedArgs struct {
	id       string // of the run or session
	sequence int64
	cursor   *string
	logEpoch *string
}

// feedArguments reads them; false where one is unknown, or not of its type.
func feedArguments(field *ast.Field, variables map[string]any) (a feedArgs, ok bool) {
	session := field.Name == encode.SessionEvents
	var err error
	for name, value := range field.ArgumentMap(variables) {
		switch {
		case name == "runId" && !session, name == "sessionId" && session:
			if value == nil {
				return a, false
			}
			a.id, err = graphql.UnmarshalID(value)
		case name == "after" && !session:
			a.sequence, err = scalar.UnmarshalInt(value)
		case value == nil && (name == "after" || name == "logEpoch"):
		case name == "after":
			a.cursor, err = pointerTo(scalar.UnmarshalString(value))
		case name == "logEpoch" && !session:
			a.logEpoch, err = pointerTo(graphql.UnmarshalID(value))
		default:
			return a, false
		}
		if err != nil {
			return a, false
		}
	}
	a.id = strings.Clone(a.id)
	return a, a.id != ""
}

func pointerTo(s string, err error) (*string, error) { return &s, err }

// feedTarget reads the field's @authz: the permission, and the object that it is asked of.
func feedTarget(ctx context.Context, root graphql.CollectedField) (permission string, object authz.Object, err error) {
	if _, err := caller(ctx); err != nil {
		return "", authz.Object{}, err
	}
	rule := root.Definition.Directives.ForName("authz")
	text := func(name string) string {
		if a := rule.Arguments.ForName(name); a != nil {
			return a.Value.Raw
		}
		return ""
	}
	arg := text("arg")
	object, found, err := targetOf(ctx, graphql.GetFieldContext(ctx), nil, model.AuthzType(text("type")), &arg, nil)
	if err == nil && !found {
		err = problem.NotFoundf("object")
	}
	object.ID = strings.Clone(object.ID) // it is a part of the document
	return text("relation"), object, err
}
