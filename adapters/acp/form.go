package acp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/harness-engine/harness-engine/engine/event"
)

// elicitation is the request elicitation/create, as far as the driver reads it.
type elicitation struct {
	SessionID string          `json:"sessionId"`
	Mode      string          `json:"mode"` // form, url
	Message   string          `json:"message"`
	Schema    json.RawMessage `json:"requestedSchema"`
}

// elicitationAnswer is its result.
type elicitationAnswer struct {
	Action  string                     `json:"action"` // accept, decline, cancel
	Content map[string]json.RawMessage `json:"content,omitempty"`
}

// form is what a person is asked, and how the answers become the content that the agent wants.
type form struct {
	prompt string
	fields []event.FormField
	slots  map[string]slot // by field name
}

// slot is where the value of a field goes.
type slot struct {
	property string
	choices  map[string]string // a choice's value, where it differs from what is shown
	item     string            // of a list: the item that a yes puts into it
}

// errUnshowable: what the agent asks cannot be shown as a form.
var errUnshowable = errors.New("form cannot be shown")

type formSchema struct {
	Required []string `json:"required"`
}

// formProperty is one property of the flat schema that the protocol allows.
type formProperty struct {
	Type        string       `json:"type"`
	Title       string       `json:"title"`
	Description string       `json:"description"`
	Enum        []string     `json:"enum"`
	OneOf       []formOption `json:"oneOf"`
	Items       struct {
		Enum  []string     `json:"enum"`
		AnyOf []formOption `json:"anyOf"`
	} `json:"items"`
}

type formOption struct {
	Const string `json:"const"`
	Title string `json:"title"`
}

// fieldKinds are the kinds of fields for the schema's types.
var fieldKinds = map[string]string{"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}

// newForm turns an elicitation into a form. A choice of several becomes a yes or no for each.
func newForm(e elicitation) (*form, error) {
	if e.Mode != "form" {
		return nil, errUnshowable
	}
	var schema formSchema
	properties, err := properties(e.Schema)
	if err != nil || json.Unmarshal(e.Schema, &schema) != nil {
		return nil, errUnshowable
	}
	f := &form{prompt: e.Message, slots: map[string]slot{}}
	for _, p := range properties {
		required := slices.Contains(schema.Required, p.name)
		if err := f.add(p.name, p.raw, required); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *form) add(name string, raw json.RawMessage, required bool) error {
	var p formProperty
	if json.Unmarshal(raw, &p) != nil {
		return errUnshowable
	}
	label := p.label(name)
	if p.Type == "array" {
		for i, o := range append(plainOptions(p.Items.Enum), p.Items.AnyOf...) {
			field := event.FormField{Name: fmt.Sprintf("%s.%d", name, i+1), Label: label + ": " + o.shown(), Kind: "boolean"}
			f.put(field, slot{property: name, item: o.Const})
		}
		return nil
	}
	kind, known := fieldKinds[p.Type]
	if !known {
		return errUnshowable
	}
	field := event.FormField{Name: name, Label: label, Kind: kind, Required: required}
	s := slot{property: name}
	if options := append(plainOptions(p.Enum), p.OneOf...); kind == "string" && len(options) > 0 {
		field.Kind, s.choices = "choice", map[string]string{}
		for _, o := range options {
			field.Choices = append(field.Choices, o.shown())
			s.choices[o.shown()] = o.Const
		}
	}
	f.put(field, s)
	return nil
}

func (f *form) put(field event.FormField, s slot) {
	f.fields = append(f.fields, field)
	f.slots[field.Name] = s
}

func (p formProperty) label(name string) string {
	switch {
	case p.Title == "" && p.Description == "":
		return name
	case p.Title == "":
		return p.Description
	case p.Description == "":
		return p.Title
	}
	return p.Title + ": " + p.Description
}

func (o formOption) shown() string {
	if o.Title == "" {
		return o.Const
	}
	return o.Title
}

func plainOptions(values []string) []formOption {
	var out []formOption
	for _, v := range values {
		out = append(out, formOption{Const: v})
	}
	return out
}

// request is the form as an event.
func (f *form) request() event.InterruptRequested {
	return event.InterruptRequested{Kind: event.InterruptForm, Prompt: f.prompt, Fields: f.fields}
}

// answer turns a person's answers into the agent's content. Without answers the form is declined.
func (f *form) answer(raw json.RawMessage) (elicitationAnswer, error) {
	if absentValue(raw) {
		return elicitationAnswer{Action: "decline"}, nil
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil {
		return elicitationAnswer{}, fmt.Errorf("failed to read form: %w", err)
	}
	content := map[string]json.RawMessage{}
	lists := map[string][]string{}
	for _, field := range f.fields {
		v, given := values[field.Name]
		s := f.slots[field.Name]
		switch {
		case !given || string(v) == "null":
		case s.item != "":
			if string(v) == "true" {
				lists[s.property] = append(lists[s.property], s.item)
			}
		case s.choices != nil:
			var chosen string
			if err := json.Unmarshal(v, &chosen); err != nil {
				return elicitationAnswer{}, fmt.Errorf("failed to read field %s: %w", field.Name, err)
			}
			if value, known := s.choices[chosen]; known {
				content[s.property], _ = json.Marshal(value)
			}
		default:
			content[s.property] = v
		}
	}
	for property, items := range lists {
		content[property], _ = json.Marshal(items)
	}
	return elicitationAnswer{Action: "accept", Content: content}, nil
}

func absentValue(raw json.RawMessage) bool {
	trimmed := bytes.TrimSpace(raw)
	return len(trimmed) == 0 || string(trimmed) == "null"
}

type namedProperty struct {
	name string
	raw  json.RawMessage
}

// properties gives the properties of a schema in the order in which they are written, which is the order in which a
// person shall read them.
func properties(schema json.RawMessage) ([]namedProperty, error) {
	var s struct {
		Properties json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("failed to read schema: %w", err)
	}
	if absentValue(s.Properties) {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(s.Properties))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errUnshowable
	}
	var out []namedProperty
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("failed to read schema: %w", err)
		}
		p := namedProperty{name: name.(string)} // the tokens of an object's keys are strings
		if err := d.Decode(&p.raw); err != nil {
			return nil, fmt.Errorf("failed to read schema: %w", err)
		}
		out = append(out, p)
	}
	return out, nil
}
