package transport_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// What would take validation seconds is refused before it, whoever asks: it has a few kilobytes, and needs no token.
func TestDocumentsThatMergeTooMuch(t *testing.T) {
	w := newWorld(t, option{})
	code := func(document string) string {
		s := w.raw("", http.MethodPost, "/graphql", http.Header{"Content-Type": {"application/json"}}, document)
		switch {
		case strings.Contains(s.body, "TOO_COMPLEX"):
			return "TOO_COMPLEX"
		case strings.Contains(s.body, "BAD_USER_INPUT"):
			return "BAD_USER_INPUT"
		}
		return s.body
	}
	var aliases, doubling strings.Builder
	for i := range 300 {
		fmt.Fprintf(&aliases, "a%d: viewer { subject } ", i)
		fmt.Fprintf(&doubling, "fragment F%d on Query { ...F%d ...F%d } ", i, i+1, i+1)
	}
	for name, c := range map[string]struct{ query, want string }{
		"one field often":       {"{" + strings.Repeat("viewer { subject } ", 300) + "}", "TOO_COMPLEX"},
		"on two levels":         {"{" + strings.Repeat("viewer {"+strings.Repeat("subject ", 30)+"} ", 30) + "}", "TOO_COMPLEX"},
		"in a fragment":         {"{ viewer { subject } } fragment A on Query {" + strings.Repeat("viewer { subject } ", 300) + "}", "TOO_COMPLEX"},
		"in inline fragments":   {"{" + strings.Repeat("... { viewer { subject } } ", 300) + "}", "TOO_COMPLEX"},
		"fragments that double": {"{ ...F0 } " + doubling.String(), "TOO_COMPLEX"},
		"a fragment of itself":  {"{ ...A } fragment A on Query { viewer { subject } ...B } fragment B on Query { ...A }", "BAD_USER_INPUT"},
		"no such fragment":      {"{ ...A }", "BAD_USER_INPUT"},
		"no document":           {"{ viewer", "BAD_USER_INPUT"},
		"now and then":          {"{" + strings.Repeat("viewer { subject } ", 50) + "}", `{"data":{"viewer":null}}`},
	} {
		if got := code(document(c.query)); got != c.want {
			t.Errorf("%s: %.200s, want %s", name, got, c.want)
		}
	}
	if got := code(document("{" + aliases.String() + "}")); !strings.Contains(got, `"a299":null`) {
		t.Errorf("aliases: %.200s", got)
	}
}
