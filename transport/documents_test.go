package transport

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/harness-engine/harness-engine/engine/authz"
)

// Documents are kept within a bound of all their bytes, the last used, and none of nobody's.
func TestDocumentsAreBounded(t *testing.T) {
	known := authz.WithCaller(t.Context(), authz.Caller{Environment: "test", Subject: "alice"})
	d := newDocuments(10, 8<<10)
	text := func(i, n int) string { return fmt.Sprintf("{ a%d } #%s", i, strings.Repeat("x", n)) }
	has := func(ctx context.Context, s string) bool { _, ok := d.Get(ctx, s); return ok }
	d.Add(t.Context(), text(0, 1), &ast.QueryDocument{})
	d.Add(known, text(1, 9<<10), &ast.QueryDocument{})
	if has(known, text(0, 1)) || has(known, text(1, 9<<10)) {
		t.Error("kept what nobody sent, or what is too long")
	}
	for i := range 10 {
		d.Add(known, text(i, 5<<10), &ast.QueryDocument{})
		d.Add(known, text(i, 5<<10), &ast.QueryDocument{})
		if d.bytes > 10*meanDocument || !has(known, text(i, 5<<10)) {
			t.Errorf("%d bytes, %d documents", d.bytes, d.known.Len())
		}
	}
	if d.known.Len() != 3 {
		t.Errorf("%d documents are kept", d.known.Len())
	}
	for i := range 30 {
		d.Add(known, text(i, 1), &ast.QueryDocument{})
	}
	if d.known.Len() != 10 || d.bytes > 200 {
		t.Errorf("%d documents of %d bytes", d.known.Len(), d.bytes)
	}
}
