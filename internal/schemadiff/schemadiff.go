// Package schemadiff tells what a change of the GraphQL schema does to clients that were written against the version
// before, and to who may read what.
//
// What may be removed is what the version before already called deprecated: its clients had one release to move. The
// schema says that its enums and unions may grow for clients that read, so growth is no break.
package schemadiff

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
)

// Level says how much a change matters.
type Level int

// Levels, the worst first.
const (
	Breaking Level = iota // a valid request of an older client is refused, or means or answers something else
	Exposed               // a field lost its protection, and nothing states why
	Security              // who may resolve a field changed: for a person to look at
	Notice                // visible to a client that looks closely, or removed after its deprecation
)

// String implements fmt.Stringer.
func (l Level) String() string {
	switch l {
	case Breaking:
		return "BREAKING"
	case Exposed:
		return "EXPOSED"
	case Security:
		return "SECURITY"
	default:
		return "NOTICE"
	}
}

// Fails reports whether the change must not be released.
func (l Level) Fails() bool { return l == Breaking || l == Exposed }

// Change is one difference.
type Change struct {
	Level Level
	Path  string // Type, Type.member, Type.field(argument:), @directive or @directive(argument:)
	Text  string // what happened
}

// String is the change as one line.
func (c Change) String() string { return fmt.Sprintf("%-8s %s: %s", c.Level, c.Path, c.Text) }

// Compare tells how the schema text after differs from the one before: the worst first, then by path. Only what a
// client or a reviewer must know of is told; what was added and may be ignored is not. An error says which of the two
// texts is no schema.
func Compare(before, after string) ([]Change, error) {
	old, err := load("before", before)
	if err != nil {
		return nil, err
	}
	now, err := load("after", after)
	if err != nil {
		return nil, err
	}
	c := &comparison{old: old, now: now, kept: lasting(old)}
	c.roots()
	for _, name := range sorted(old.Types) {
		if def := old.Types[name]; !def.BuiltIn {
			c.definition(def)
		}
	}
	for _, name := range sorted(old.Directives) {
		c.directive(old.Directives[name])
	}
	slices.SortStableFunc(c.changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(a.Path, b.Path))
	})
	return c.changes, nil
}

func load(name, text string) (*ast.Schema, error) {
	s, err := gqlparser.LoadSchema(&ast.Source{Name: name, Input: text})
	if err != nil {
		return nil, fmt.Errorf("failed to read the schema %s: %w", name, err)
	}
	return s, nil
}

// comparison collects the changes from one schema to another.
type comparison struct {
	old, now *ast.Schema
	kept     map[string]bool // types that clients reach without anything deprecated
	changes  []Change
}

func (c *comparison) add(l Level, path, format string, args ...any) {
	c.changes = append(c.changes, Change{Level: l, Path: path, Text: fmt.Sprintf(format, args...)})
}

// removed is a removal: a break, unless clients were told a release before.
func (c *comparison) removed(path, what string, deprecated bool) {
	if deprecated {
		c.add(Notice, path, "%s was removed, deprecated before", what)
		return
	}
	c.add(Breaking, path, "%s was removed or renamed; deprecate it for a release first", what)
}

func (c *comparison) roots() {
	for _, root := range []struct {
		name     string
		old, now *ast.Definition
	}{
		{"query", c.old.Query, c.now.Query},
		{"mutation", c.old.Mutation, c.now.Mutation},
		{"subscription", c.old.Subscription, c.now.Subscription},
	} {
		switch {
		case root.old == nil:
		case root.now == nil:
			c.add(Breaking, "schema."+root.name, "the operation type was removed")
		case root.old.Name != root.now.Name:
			c.add(Breaking, "schema."+root.name, "the operation type changed from %s to %s", root.old.Name, root.now.Name)
		}
	}
}

func (c *comparison) definition(old *ast.Definition) {
	now := c.now.Types[old.Name]
	switch {
	case now == nil:
		c.removed(old.Name, "the type", !c.kept[old.Name])
		return
	case now.Kind != old.Kind:
		c.add(Breaking, old.Name, "the type changed from %s to %s", old.Kind, now.Kind)
		return
	}
	switch old.Kind {
	case ast.Object, ast.Interface:
		for _, i := range missing(old.Interfaces, now.Interfaces) {
			c.add(Breaking, old.Name, "the type no longer implements %s", i)
		}
		c.fields(old, now)
	case ast.Union:
		for _, m := range missing(old.Types, now.Types) {
			c.add(Breaking, old.Name, "the member %s was removed", m)
		}
		for _, m := range missing(now.Types, old.Types) {
			c.add(Notice, old.Name, "the member %s was added", m)
		}
	case ast.Enum:
		for _, v := range old.EnumValues {
			if now.EnumValues.ForName(v.Name) == nil {
				c.removed(old.Name+"."+v.Name, "the value", deprecated(v.Directives))
			}
		}
	case ast.InputObject:
		c.inputFields(old, now)
	case ast.Scalar:
		if was, is := argument(old.Directives, "specifiedBy", "url"), argument(now.Directives, "specifiedBy", "url"); was != is {
			c.add(Notice, old.Name, "the scalar's specification changed from %q to %q", was, is)
		}
	}
}

// fields compares the fields of an object or interface.
func (c *comparison) fields(old, now *ast.Definition) {
	for _, f := range old.Fields {
		path := old.Name + "." + f.Name
		g := now.Fields.ForName(f.Name)
		if g == nil {
			c.removed(path, "the field", deprecated(f.Directives))
			continue
		}
		if !answersAs(f.Type, g.Type) {
			c.add(Breaking, path, "the type changed from %s to %s", f.Type, g.Type)
		}
		c.arguments(path+"(%s:)", f.Arguments, g.Arguments)
		c.protection(path, f.Directives, g.Directives)
	}
}

// arguments compares the arguments of a field or directive; path has a place for the argument's name.
func (c *comparison) arguments(path string, old, now ast.ArgumentDefinitionList) {
	for _, a := range old {
		at := fmt.Sprintf(path, a.Name)
		b := now.ForName(a.Name)
		if b == nil {
			c.removed(at, "the argument", deprecated(a.Directives))
			continue
		}
		c.input(at, a.Type, b.Type, a.DefaultValue, b.DefaultValue)
	}
	for _, b := range now {
		if old.ForName(b.Name) == nil && required(b.Type, b.DefaultValue) {
			c.add(Breaking, fmt.Sprintf(path, b.Name), "a required argument was added")
		}
	}
}

func (c *comparison) inputFields(old, now *ast.Definition) {
	if was, is := old.Directives.ForName("oneOf") != nil, now.Directives.ForName("oneOf") != nil; !was && is {
		c.add(Breaking, old.Name, "the input became one of its fields")
	} else if was && !is {
		c.add(Notice, old.Name, "the input is no longer exactly one of its fields")
	}
	for _, f := range old.Fields {
		path := old.Name + "." + f.Name
		g := now.Fields.ForName(f.Name)
		if g == nil {
			c.removed(path, "the input field", deprecated(f.Directives))
			continue
		}
		c.input(path, f.Type, g.Type, f.DefaultValue, g.DefaultValue)
	}
	for _, g := range now.Fields {
		if old.Fields.ForName(g.Name) == nil && required(g.Type, g.DefaultValue) {
			c.add(Breaking, now.Name+"."+g.Name, "a required input field was added")
		}
	}
}

// input compares the type and the default of an argument or an input field.
func (c *comparison) input(path string, old, now *ast.Type, oldDefault, nowDefault *ast.Value) {
	switch {
	case !takesAs(old, now):
		c.add(Breaking, path, "the type changed from %s to %s", old, now)
	case !required(old, oldDefault) && required(now, nowDefault):
		c.add(Breaking, path, "it became required")
	case text(oldDefault) != text(nowDefault):
		c.add(Breaking, path, "the default changed from %s to %s", text(oldDefault), text(nowDefault))
	}
}

// executable are the places where a client writes directives.
var executable = []ast.DirectiveLocation{
	ast.LocationQuery, ast.LocationMutation, ast.LocationSubscription, ast.LocationField,
	ast.LocationFragmentDefinition, ast.LocationFragmentSpread, ast.LocationInlineFragment, ast.LocationVariableDefinition,
}

// directive compares a directive as far as clients may write it. What the schema alone writes is nobody's contract but
// for the protection of fields.
func (c *comparison) directive(old *ast.DirectiveDefinition) {
	var used []ast.DirectiveLocation
	for _, l := range old.Locations {
		if slices.Contains(executable, l) {
			used = append(used, l)
		}
	}
	if len(used) == 0 {
		return
	}
	path := "@" + old.Name
	now := c.now.Directives[old.Name]
	if now == nil {
		c.removed(path, "the directive", false)
		return
	}
	for _, l := range missing(used, now.Locations) {
		c.add(Breaking, path, "the directive is no longer allowed on %s", l)
	}
	if old.IsRepeatable && !now.IsRepeatable {
		c.add(Breaking, path, "the directive can no longer be repeated")
	}
	c.arguments(path+"(%s:)", old.Arguments, now.Arguments)
}
