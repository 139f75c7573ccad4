package run

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// doubling is a schema of n references that each refer twice to the next.
func doubling(n int) string {
	var b strings.Builder
	b.WriteString(`{"type":"object","required":["path"],"$ref":"#/$defs/a0","$defs":{`)
	for i := range n {
		fmt.Fprintf(&b, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `"a%d":true}}`, n)
	return b.String()
}

// TestEditedArguments: what does not fit is refused where the schema can say so in bounded time. Each case that is left
// to the tool would take the validator for ever, or fail in it.
func TestEditedArguments(t *testing.T) {
	const recursive = `{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"path":{"type":"string"},"next":{"$ref":"#/$defs/n"}}}}}`
	for name, c := range map[string]struct{ schema, arguments, field string }{
		"no schema":                       {``, `{"path":1}`, ""},
		"fits":                            {`{"properties":{"path":{"type":"string"}}}`, `{"path":"a"}`, ""},
		"does not":                        {`{"properties":{"path":{"type":"string"}}}`, `{"path":1}`, "p.path"},
		"does not by a reference":         {`{"properties":{"path":{"$ref":"#/$defs/a~1b"}},"$defs":{"a/b":{"type":"string"}}}`, `{"path":1}`, "p.path"},
		"does not in a list":              {`{"properties":{"path":{"$ref":"#/allOf/0"}},"allOf":[{"type":["string","object"]}]}`, `{"path":1}`, "p.path"},
		"does not, deep":                  {recursive, `{"next":{"next":{"path":1}}}`, "p.next.next.path"},
		"a few references":                {doubling(4), `{}`, "p"},
		"references that double":          {doubling(60), `{}`, ""},
		"recursion that multiplies":       {`{"$ref":"#/$defs/n","$defs":{"n":{"allOf":[{"properties":{"a":{"$ref":"#/$defs/n"}}},{"properties":{"a":{"$ref":"#/$defs/n"}}},{"properties":{"a":{"$ref":"#/$defs/n"}}},{"properties":{"a":{"$ref":"#/$defs/n"}}}]}}}`, strings.Repeat(`{"a":`, 15) + `1` + strings.Repeat(`}`, 15), ""},
		"references by name":              {`{"$dynamicAnchor":"a","$dynamicRef":"#a","type":"array"}`, `{}`, ""},
		"a reference to elsewhere":        {`{"$ref":"file:///etc/passwd"}`, `{}`, ""},
		"a reference to nothing":          {`{"$ref":"#/$defs/none"}`, `{}`, ""},
		"a pattern that tries much":       {`{"properties":{"a":{"pattern":"((a{1,30}){1,30})*$"}}}`, `{"a":"` + strings.Repeat("a", 60_000) + `!"}`, ""},
		"a number with many digits":       {`{"properties":{"a":{"maximum":3,"multipleOf":2}}}`, `{"a":1e-100000000}`, ""},
		"a bound with many digits":        {`{"properties":{"a":{"minimum":1e-100000000}}}`, `{"a":-1}`, "p.a"},
		"a number too large for a double": {`{"properties":{"a":{"maximum":3}}}`, `{"a":1e400}`, "p"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkArguments("p", json.RawMessage(c.schema), json.RawMessage(c.arguments))
			if c.field == "" && err != nil {
				t.Fatal(err)
			}
			if p, _ := problem.As(err); c.field != "" && (p == nil || strings.Join(p.Field, ".") != c.field) {
				t.Fatalf("got %v, want a refusal of %s", err, c.field)
			}
		})
	}
}
