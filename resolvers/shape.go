package resolvers

import (
	"context"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// Shape is the extension that refuses operations which are too deep or, with their fragments spread out, too wide. It
// reads each fragment once, however often that is spread, and so must come before everything that spreads them out.
type Shape struct {
	MaxDepth  int // levels of selections
	MaxFields int // selected fields, fragments spread out
}

var _ interface {
	graphql.HandlerExtension
	graphql.OperationContextMutator
} = Shape{}

// ExtensionName implements graphql.HandlerExtension.
func (Shape) ExtensionName() string { return "Shape" }

// Validate implements graphql.HandlerExtension.
func (Shape) Validate(graphql.ExecutableSchema) error { return nil }

// MutateOperationContext implements graphql.OperationContextMutator.
func (s Shape) MutateOperationContext(_ context.Context, op *graphql.OperationContext) *gqlerror.Error {
	size := measure(op.Operation.SelectionSet, map[string]extent{}, s.MaxFields+1)
	var p *problem.Error
	switch {
	case size.depth > s.MaxDepth:
		p = problem.New(problem.TooComplex, "the operation has %d levels, at most %d are allowed", size.depth, s.MaxDepth)
	case size.fields > s.MaxFields:
		p = problem.New(problem.TooComplex, "the operation selects more than %d fields", s.MaxFields)
	default:
		return nil
	}
	return fill(&gqlerror.Error{}, p, nil)
}

// extent is the size of a selection.
type extent struct{ depth, fields int }

// measure gives the extent of a selection; fields stop counting at most, so that doubling fragments cannot overflow.
func measure(set ast.SelectionSet, known map[string]extent, most int) extent {
	var total extent
	for _, s := range set {
		var e extent
		switch s := s.(type) {
		case *ast.Field:
			inner := measure(s.SelectionSet, known, most)
			e = extent{depth: inner.depth + 1, fields: inner.fields + 1}
		case *ast.InlineFragment:
			e = measure(s.SelectionSet, known, most)
		case *ast.FragmentSpread:
			if s.Definition == nil {
				continue
			}
			found, ok := known[s.Name]
			if !ok {
				found = measure(s.Definition.SelectionSet, known, most)
				known[s.Name] = found
			}
			e = found
		}
		total.depth = max(total.depth, e.depth)
		total.fields = min(total.fields+e.fields, most)
	}
	return total
}
