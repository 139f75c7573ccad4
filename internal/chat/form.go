package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/harness-engine/harness-engine/internal/client"
)

// Words that answer the whole form instead of a field.
const (
	wordLater   = "/later"
	wordDismiss = "/dismiss"
)

// askForm asks for the values field by field.
func (c *chat) askForm(ctx context.Context, i client.Interrupt) (client.Decision, error) {
	c.draw.note(faint, "("+wordLater+" leaves it, "+wordDismiss+" gives it up)")
	var b bytes.Buffer
	b.WriteByte('{')
	for _, f := range i.Fields {
		value, err := c.askField(ctx, f)
		switch {
		case err != nil:
			return client.Decision{}, err
		case value == nil:
			continue
		case string(value) == wordDismiss:
			return client.Decision{Dismiss: true}, nil
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(f.Name)
		if err != nil {
			return client.Decision{}, fmt.Errorf("failed to encode the form: %w", err)
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return client.Decision{Form: b.Bytes()}, nil
}

// askField asks until the value fits the field; nil is none.
func (c *chat) askField(ctx context.Context, f client.FormField) (json.RawMessage, error) {
	c.draw.note(bold, fieldLabel(f))
	for n, choice := range f.Choices {
		c.draw.note(plain, fmt.Sprintf("%s%d. %s", indent, n+1, line(choice)))
	}
	for {
		text, err := c.answer(ctx, answerPrompt)
		switch {
		case err != nil:
			return nil, err
		case text == wordLater:
			return nil, errLater
		case text == wordDismiss:
			return json.RawMessage(wordDismiss), nil
		}
		value, err := fieldValue(f, text)
		if err == nil {
			return value, nil
		}
		c.draw.note(yellow, err.Error())
	}
}

func fieldLabel(f client.FormField) string {
	label := line(f.Label)
	if label == "" {
		label = line(f.Name)
	}
	kind := line(f.Kind)
	if !f.Required {
		kind += ", may be empty"
	}
	return label + " (" + kind + ")"
}

var booleans = map[string]string{"y": "true", "yes": "true", "true": "true", "n": "false", "no": "false", "false": "false"}

// fieldValue reads what was typed as the field's kind; nil is none.
func fieldValue(f client.FormField, text string) (json.RawMessage, error) {
	if text == "" {
		if f.Required {
			return nil, errors.New("a value is needed")
		}
		return nil, nil
	}
	switch f.Kind {
	case "number":
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			return nil, fmt.Errorf("%q is no number", text)
		}
		if json.Valid([]byte(text)) { // as it was typed: no digit is lost
			return json.RawMessage(text), nil
		}
		return json.Marshal(v)
	case "boolean":
		if v, ok := booleans[strings.ToLower(text)]; ok {
			return json.RawMessage(v), nil
		}
		return nil, errors.New("please answer yes or no")
	case "choice":
		for _, choice := range f.Choices {
			if choice == text {
				return json.Marshal(choice)
			}
		}
		if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(f.Choices) {
			return json.Marshal(f.Choices[n-1])
		}
		return nil, errors.New("please give one of the choices, or its number")
	}
	return json.Marshal(text)
}
