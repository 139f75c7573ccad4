package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/harness-engine/harness-engine/engine/agent"
)

const optionsPath = "harness.options"

// maxOptionIssues bounds what one report says about options.
const maxOptionIssues = 50

// noOptions is the schema of a harness that declares none.
const noOptions = `{"type":"object","additionalProperties":false}`

// optionsSchema is a compiled JSON Schema (2020-12) of a harness's options.
type optionsSchema struct{ compiled *jsonschema.Schema }

// refuseLoader keeps schemas self-contained: nothing is read from disk or network.
type refuseLoader struct{}

func (refuseLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("a schema may not refer to %q", url)
}

func compileOptions(raw json.RawMessage) (*optionsSchema, error) {
	if len(raw) == 0 {
		raw = json.RawMessage(noOptions)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("failed to read options schema: %w", err)
	}
	root, ok := doc.(map[string]any)
	if !ok || root["type"] != "object" {
		return nil, errors.New("the options schema is not one of an object")
	}
	if err := checkClosed(doc, "", true); err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(refuseLoader{})
	c.DefaultDraft(jsonschema.Draft2020)
	const name = "urn:harness:options"
	if err := c.AddResource(name, doc); err != nil {
		return nil, fmt.Errorf("failed to read options schema: %w", err)
	}
	s, err := c.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("failed to compile options schema: %w", err)
	}
	return &optionsSchema{compiled: s}, nil
}

// checkClosed makes sure that unknown keys are refused at every level: each schema that has properties, and the root,
// closes them.
func checkClosed(v any, path string, root bool) error {
	switch v := v.(type) {
	case map[string]any:
		_, has := v["properties"].(map[string]any)
		if (has || root) && v["additionalProperties"] != false && v["unevaluatedProperties"] != false {
			return fmt.Errorf("the options schema lets unknown keys through at %q", path+"/")
		}
		for key, child := range v {
			if key == "enum" || key == "const" || key == "default" || key == "examples" {
				continue
			}
			if key == "properties" || key == "$defs" || key == "patternProperties" {
				named, _ := child.(map[string]any)
				for name, schema := range named {
					if err := checkClosed(schema, path+"/"+key+"/"+name, false); err != nil {
						return err
					}
				}
				continue
			}
			if err := checkClosed(child, path+"/"+key, false); err != nil {
				return err
			}
		}
	case []any:
		for i, child := range v {
			if err := checkClosed(child, path+"/"+strconv.Itoa(i), false); err != nil {
				return err
			}
		}
	}
	return nil
}

// review lists what the schema says against the options, each with the path of the field.
func (s *optionsSchema) review(raw json.RawMessage) []agent.Issue {
	if len(raw) == 0 {
		raw = json.RawMessage(`{}`)
	}
	// Canonical numbers are small: the validator would expand 1e999999999 to its digits.
	raw, err := jcs.Transform(raw)
	if err != nil {
		return []agent.Issue{optionIssue(optionsPath, "is not well-formed JSON")}
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return []agent.Issue{optionIssue(optionsPath, "is not well-formed JSON")}
	}
	var invalid *jsonschema.ValidationError
	switch err := s.compiled.Validate(value); {
	case err == nil:
		return nil
	case !errors.As(err, &invalid):
		return []agent.Issue{optionIssue(optionsPath, "cannot be judged by the harness's schema")}
	}
	var out []agent.Issue
	collect(invalid, value, &out)
	slices.SortStableFunc(out, func(a, b agent.Issue) int { return strings.Compare(a.Path, b.Path) })
	return out[:min(len(out), maxOptionIssues)]
}

// collect takes the leaves of the error tree. A choice between forms is one issue: what each form says on its own
// would contradict the others.
func collect(e *jsonschema.ValidationError, value any, out *[]agent.Issue) {
	path := instancePath(e.InstanceLocation, value)
	switch k := e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf, *kind.Not:
		*out = append(*out, removable(optionIssue(path, "has none of the forms that the harness allows")))
		return
	case *kind.AdditionalProperties:
		for _, key := range k.Properties {
			*out = append(*out, removable(optionIssue(join(path, key), "is not an option of this harness")))
		}
		return
	case *kind.Required:
		for _, key := range k.Missing {
			*out = append(*out, optionIssue(join(path, key), "is required"))
		}
		return
	}
	if len(e.Causes) > 0 {
		for _, cause := range e.Causes {
			collect(cause, value, out)
		}
		return
	}
	*out = append(*out, removable(optionIssue(path, describe(e.ErrorKind))))
}

// describe says what is wrong without repeating the value, which may be a secret.
func describe(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "must be of type " + strings.Join(k.Want, " or ")
	case *kind.Enum:
		return "must be one of " + encoded(k.Want)
	case *kind.Const:
		return "must be " + encoded(k.Want)
	case *kind.Minimum:
		return "must be at least " + k.Want.RatString()
	case *kind.Maximum:
		return "must be at most " + k.Want.RatString()
	case *kind.ExclusiveMinimum:
		return "must be more than " + k.Want.RatString()
	case *kind.ExclusiveMaximum:
		return "must be less than " + k.Want.RatString()
	case *kind.MultipleOf:
		return "must be a multiple of " + k.Want.RatString()
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items", k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d keys", k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d keys", k.Want)
	case *kind.Pattern:
		return "must match the pattern " + k.Want
	case *kind.UniqueItems:
		return "must not repeat an item"
	case *kind.FalseSchema:
		return "is not allowed"
	}
	return "is not what the harness's schema asks for"
}

func encoded(v any) string {
	raw, err := json.Marshal(v)
	if err != nil || len(raw) > 400 {
		return "the values in the harness's schema"
	}
	return string(raw)
}

func optionIssue(path, message string) agent.Issue {
	return agent.Issue{
		Path: path, Step: agent.StepAdvanced, Code: CodeOptionInvalid, Severity: agent.SeverityError, Message: message,
	}
}

// removable offers to drop the field, which brings back the harness's default.
func removable(i agent.Issue) agent.Issue {
	i.Fixes = []agent.Fix{{Label: "Remove it", Path: i.Path, Value: json.RawMessage(`null`)}}
	return i
}

var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// join names a key below a path; a key that is no plain word is quoted.
func join(path, key string) string {
	if plainKey.MatchString(key) {
		return path + "." + key
	}
	return path + "[" + strconv.Quote(key) + "]"
}

// instancePath turns a location into a field path: harness.options.retries[2].
func instancePath(location []string, value any) string {
	path := optionsPath
	for _, token := range location {
		if items, ok := value.([]any); ok {
			path += "[" + token + "]"
			if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(items) {
				value = items[i]
			}
			continue
		}
		path = join(path, token)
		object, _ := value.(map[string]any)
		value = object[token]
	}
	return path
}
