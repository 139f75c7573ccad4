package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// Bounds of one check of edited arguments. A schema comes from beside model-directed code, and a kilobyte of references
// that each refer twice to the next is a check without an end.
const (
	maxCheckWork   = 1 << 18 // schemas that are visited, times values that there are
	bytesAsValue   = 64      // of the arguments, for a pattern
	maxRecursion   = 16      // of one reference inside itself; the depth that an input may have
	dynamicRef     = "$dynamicRef"
	staticRef      = "$ref"
	localRefPrefix = "#"
)

// checkArguments validates edited arguments against the tool's schema, where the harness told it. A schema that cannot
// be used, or would be too much work, leaves the check to the tool.
func checkArguments(path string, schema, arguments json.RawMessage) error {
	if len(schema) == 0 {
		return nil
	}
	doc, err := canonicalValue(schema)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	value, err := canonicalValue(arguments)
	if err != nil {
		return problem.Field(path, "is not JSON")
	}
	w := work{root: doc, left: maxCheckWork / max(countValues(value), len(arguments)/bytesAsValue), inside: map[string]int{}}
	if w.visit(doc); w.left < 0 {
		return nil
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource("tool.json", doc); err != nil {
		return nil //nolint:nilerr // see above
	}
	compiled, err := c.Compile("tool.json")
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	var invalid *jsonschema.ValidationError
	if err := compiled.Validate(value); errors.As(err, &invalid) {
		for len(invalid.Causes) > 0 {
			invalid = invalid.Causes[0]
		}
		for _, at := range invalid.InstanceLocation {
			path += "." + at
		}
		return problem.Field(path, "does not fit the tool: %s", invalid.ErrorKind.KeywordPath())
	}
	return nil
}

// canonicalValue decodes JSON with numbers as RFC 8785 has them: the validator would expand 1e999999999 to its digits,
// and fails on 1e-100000000.
func canonicalValue(raw json.RawMessage) (any, error) {
	canonical, err := jcs.Transform(raw)
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(canonical))
}

// countValues counts a value and all that is in it.
func countValues(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, child := range v {
			n += countValues(child)
		}
	case []any:
		for _, child := range v {
			n += countValues(child)
		}
	}
	return n
}

// work follows a schema's references as a validator does, and counts what it meets.
type work struct {
	root   any
	left   int            // below 0: too much, or a reference that cannot be followed
	inside map[string]int // references that are being followed
}

func (w *work) visit(v any) {
	if w.left--; w.left < 0 {
		return
	}
	switch v := v.(type) {
	case []any:
		for _, child := range v {
			w.visit(child)
		}
	case map[string]any:
		for key, child := range v {
			switch text, isText := child.(string); {
			case key == dynamicRef && isText:
				w.left = -1
			case key == staticRef && isText:
				w.follow(text)
			case key == "pattern" && isText:
				w.pattern(text)
			case key == "patternProperties":
				for p := range asObject(child) {
					w.pattern(p)
				}
				w.visit(child)
			case key != "$defs" && key != "definitions": // they count where they are referred to
				w.visit(child)
			}
		}
	}
}

func (w *work) follow(ref string) {
	if w.left < 0 || w.inside[ref] > maxRecursion {
		return
	}
	pointer, local := strings.CutPrefix(ref, localRefPrefix)
	at := w.root
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch parent := at.(type) {
		case map[string]any:
			at = parent[token]
		case []any:
			if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(parent) {
				at = parent[i]
			}
		}
	}
	if !local || pointer != "" && pointer[0] != '/' || at == nil {
		w.left = -1
		return
	}
	w.inside[ref]++
	w.visit(at)
	w.inside[ref]--
}

// pattern counts the instructions of a regular expression: each may be tried at each character.
func (w *work) pattern(text string) {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return // the compiler says so
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return
	}
	w.left -= len(program.Inst)
}

func asObject(v any) map[string]any {
	object, _ := v.(map[string]any)
	return object
}

// noLoader keeps a harness's schema from reading anything.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) { return nil, fmt.Errorf("schema refers to %s", url) }
