package schemadiff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// Directives of the schema that say who may resolve a field, and why anybody may.
const (
	guarded = "authz"
	open    = "public"
)

// protection tells when a field asks for another permission than before. Whether that is meant only a person can say,
// but a field that asked and now neither asks nor says why it is open is a mistake.
func (c *comparison) protection(path string, old, now ast.DirectiveList) {
	was, is := old.ForName(guarded), now.ForName(guarded)
	switch {
	case was == nil && is == nil:
		if old.ForName(open) != nil && now.ForName(open) == nil {
			c.add(Security, path, "@%s was removed", open)
		}
	case was == nil:
		c.add(Security, path, "@%s was added: %s", guarded, written(is))
	case is == nil && now.ForName(open) == nil:
		c.add(Exposed, path, "@%s was removed, and no @%s says why: it was %s", guarded, open, written(was))
	case is == nil:
		c.add(Security, path, "@%s gave way to @%s, %q: it was %s", guarded, open, argument(now, open, "reason"), written(was))
	case written(was) != written(is):
		c.add(Security, path, "@%s changed from %s to %s", guarded, written(was), written(is))
	}
}

// written is a directive's arguments in order of name.
func written(d *ast.Directive) string {
	parts := make([]string, 0, len(d.Arguments))
	for _, a := range d.Arguments {
		parts = append(parts, fmt.Sprintf("%s: %s", a.Name, a.Value))
	}
	slices.Sort(parts)
	return "(" + strings.Join(parts, ", ") + ")"
}
