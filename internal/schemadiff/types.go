package schemadiff

import (
	"maps"
	"slices"

	"github.com/vektah/gqlparser/v2/ast"
)

// answersAs reports whether whoever reads a value of the type old can read one of the type now: the same, or null in
// fewer places.
func answersAs(old, now *ast.Type) bool {
	if old.NonNull && !now.NonNull {
		return false
	}
	return sameShape(old, now, answersAs)
}

// takesAs reports whether whatever was sent for the type old is taken for the type now: the same, or null in more
// places.
func takesAs(old, now *ast.Type) bool {
	if !old.NonNull && now.NonNull {
		return false
	}
	return sameShape(old, now, takesAs)
}

// sameShape compares what is inside.
func sameShape(old, now *ast.Type, inner func(old, now *ast.Type) bool) bool {
	if old.Elem == nil || now.Elem == nil {
		return old.Elem == nil && now.Elem == nil && old.NamedType == now.NamedType
	}
	return inner(old.Elem, now.Elem)
}

// required reports whether a client must send a value.
func required(t *ast.Type, standard *ast.Value) bool { return t.NonNull && standard == nil }

func deprecated(d ast.DirectiveList) bool { return d.ForName("deprecated") != nil }

// argument is the text of a directive's argument, "" where either is absent.
func argument(d ast.DirectiveList, directive, name string) string {
	if dir := d.ForName(directive); dir != nil {
		if a := dir.Arguments.ForName(name); a != nil {
			return a.Value.Raw
		}
	}
	return ""
}

func text(v *ast.Value) string {
	if v == nil {
		return "none"
	}
	return v.String()
}

// missing is what the one list has and the other has not.
func missing[T comparable](from, in []T) []T {
	var out []T
	for _, v := range from {
		if !slices.Contains(in, v) {
			out = append(out, v)
		}
	}
	return out
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// lasting are the types that a client of the schema reaches without using anything deprecated: all others may go.
func lasting(s *ast.Schema) map[string]bool {
	reached := map[string]bool{}
	var reach func(name string)
	arguments := func(list ast.ArgumentDefinitionList) {
		for _, a := range list {
			if !deprecated(a.Directives) {
				reach(a.Type.Name())
			}
		}
	}
	reach = func(name string) {
		def := s.Types[name]
		if def == nil || reached[name] {
			return
		}
		reached[name] = true
		for _, f := range def.Fields {
			if !deprecated(f.Directives) {
				reach(f.Type.Name())
				arguments(f.Arguments)
			}
		}
		for _, i := range def.Interfaces {
			reach(i)
		}
		if def.IsAbstractType() {
			for _, possible := range s.GetPossibleTypes(def) {
				reach(possible.Name)
			}
		}
	}
	for _, root := range []*ast.Definition{s.Query, s.Mutation, s.Subscription} {
		if root != nil {
			reach(root.Name)
		}
	}
	for _, d := range s.Directives {
		arguments(d.Arguments)
	}
	return reached
}
