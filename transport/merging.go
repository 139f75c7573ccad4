package transport

import (
	"context"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/harness-engine/harness-engine/engine/problem"
)

const (
	maxMerged = 20_000 // pairs of fields of one name in one place
	maxWalked = 20_000 // selections of a document, each fragment spread out wherever it is used
)

// merging is the extension that refuses documents which name the same field again and again. Validation compares each of
// them with each other one, before anybody is asked who the caller is: seconds of work for a document of some kilobytes.
// It comes before validation, and behind what finds the document.
type merging struct {
	known     graphql.Cache[*ast.QueryDocument] // validated documents
	maxTokens int
}

var _ interface {
	graphql.HandlerExtension
	graphql.OperationParameterMutator
} = merging{}

// ExtensionName implements graphql.HandlerExtension.
func (merging) ExtensionName() string { return "Merging" }

// Validate implements graphql.HandlerExtension.
func (merging) Validate(graphql.ExecutableSchema) error { return nil }

// MutateOperationParameters implements graphql.OperationParameterMutator.
func (m merging) MutateOperationParameters(ctx context.Context, params *graphql.RawParams) *gqlerror.Error {
	if _, ok := m.known.Get(ctx, params.Query); ok {
		return nil
	}
	doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: params.Query}, m.maxTokens)
	if err != nil {
		return nil //nolint:nilerr // the executor tells
	}
	w := walk{doc: doc, within: map[string]bool{}}
	for _, op := range doc.Operations {
		w.set(op.SelectionSet, &place{})
	}
	for _, f := range doc.Fragments {
		w.spread(f, &place{})
	}
	if w.tooMuch() {
		return wire(problem.New(problem.TooComplex, "the document names the same fields, or spreads fragments out, too often"))
	}
	return nil
}

// place is a path of response names, and how often a document selects it.
type place struct {
	times int
	below map[string]*place
}

// walk counts what validation would compare. It may be of a document that is not valid.
type walk struct {
	doc            *ast.QueryDocument
	within         map[string]bool // fragments that are being walked, by name
	walked, merged int
}

func (w *walk) tooMuch() bool { return w.walked > maxWalked || w.merged > maxMerged }

func (w *walk) set(set ast.SelectionSet, at *place) {
	for _, s := range set {
		if w.walked++; w.tooMuch() {
			return
		}
		switch s := s.(type) {
		case *ast.Field:
			if at.below == nil {
				at.below = map[string]*place{}
			}
			p := at.below[s.Alias]
			if p == nil {
				p = &place{}
				at.below[s.Alias] = p
			}
			w.merged += p.times
			p.times++
			w.set(s.SelectionSet, p)
		case *ast.InlineFragment:
			w.set(s.SelectionSet, at)
		case *ast.FragmentSpread:
			if f := w.doc.Fragments.ForName(s.Name); f != nil {
				w.spread(f, at)
			}
		}
	}
}

func (w *walk) spread(f *ast.FragmentDefinition, at *place) {
	if w.within[f.Name] {
		return
	}
	w.within[f.Name] = true
	w.set(f.SelectionSet, at)
	delete(w.within, f.Name)
}
