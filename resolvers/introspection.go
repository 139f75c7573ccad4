package resolvers

import (
	"context"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/authz"
)

// Introspection is the extension that opens the schema to callers with can_introspect on the platform, and to nobody
// else.
type Introspection struct{ root *Root }

var _ interface {
	graphql.HandlerExtension
	graphql.OperationContextMutator
} = Introspection{}

// Introspection returns the extension.
func (r *Root) Introspection() Introspection { return Introspection{root: r} }

// ExtensionName implements graphql.HandlerExtension.
func (Introspection) ExtensionName() string { return "Introspection" }

// Validate implements graphql.HandlerExtension.
func (Introspection) Validate(graphql.ExecutableSchema) error { return nil }

// MutateOperationContext implements graphql.OperationContextMutator.
func (i Introspection) MutateOperationContext(ctx context.Context, op *graphql.OperationContext) *gqlerror.Error {
	if !introspects(op.Operation.SelectionSet, map[string]bool{}) {
		return nil
	}
	if err := i.root.Guard.Require(ctx, authz.CanIntrospect, authz.Platform()); err != nil {
		return i.root.Present(ctx, err)
	}
	op.DisableIntrospection = false
	return nil
}

// introspects looks for __schema and __type among the root fields; seen keeps it from reading a fragment twice.
func introspects(set ast.SelectionSet, seen map[string]bool) bool {
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			if s.Name == "__schema" || s.Name == "__type" {
				return true
			}
		case *ast.InlineFragment:
			if introspects(s.SelectionSet, seen) {
				return true
			}
		case *ast.FragmentSpread:
			if seen[s.Name] || s.Definition == nil {
				continue
			}
			seen[s.Name] = true
			if introspects(s.Definition.SelectionSet, seen) {
				return true
			}
		}
	}
	return false
}
