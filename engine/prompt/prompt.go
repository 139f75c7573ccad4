// Package prompt renders an agent's system prompt: {{name}} stands for the value of a variable.
package prompt

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// MaxRenderedBytes bounds a rendered prompt.
const MaxRenderedBytes = 256 << 10

// maxShownBytes bounds what an error repeats of a bad placeholder.
const maxShownBytes = 64

// Builtins are the values that the engine knows. Their names hold a dot, so that no variable of a user can have one.
type Builtins struct {
	AgentName string // {{agent.name}}
}

func (b Builtins) values() map[string]string {
	return map[string]string{"agent.name": b.AgentName}
}

// piece is literal text, or the name of a variable.
type piece struct {
	text     string
	variable bool
}

// Render replaces each {{name}} (white space inside the braces is allowed) by the variable's value. Values are put in
// as they are and never looked at again. {{{{ gives two literal braces; a }} outside a placeholder is literal.
//
// The error is a problem.Field for "prompt.system": a placeholder that is not closed or is no name, a name that is
// neither a variable nor a builtin, or a result above MaxRenderedBytes.
func Render(system string, vars map[string]string, builtins Builtins) (string, error) {
	pieces, err := parse(system)
	if err != nil {
		return "", err
	}
	known := builtins.values()
	maps.Copy(known, vars)
	var out strings.Builder
	for _, p := range pieces {
		text := p.text
		if p.variable {
			value, ok := known[p.text]
			if !ok {
				return "", problem.Field(field, "{{%s}} is not a variable of this agent; it has %s", p.text, list(known))
			}
			text = value
		}
		// Checked before it grows: a short prompt with long values could multiply.
		if out.Len()+len(text) > MaxRenderedBytes {
			return "", problem.Field(field, "the rendered prompt is longer than %d bytes", MaxRenderedBytes)
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

// Variables lists the names that the prompt uses, sorted, each once.
func Variables(system string) ([]string, error) {
	pieces, err := parse(system)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, p := range pieces {
		if p.variable {
			used[p.text] = true
		}
	}
	return slices.Sorted(maps.Keys(used)), nil
}

// field is the blueprint's path of the prompt.
const field = "prompt.system"

func parse(s string) ([]piece, error) {
	var out []piece
	for s != "" {
		i := strings.Index(s, "{{")
		if i < 0 {
			return append(out, piece{text: s}), nil
		}
		if i > 0 {
			out = append(out, piece{text: s[:i]})
		}
		s = s[i+2:]
		if rest, ok := strings.CutPrefix(s, "{{"); ok {
			out, s = append(out, piece{text: "{{"}), rest
			continue
		}
		inner, rest, closed := strings.Cut(s, "}}")
		if !closed {
			return nil, problem.Field(field, "the placeholder {{%s is not closed by }}; write {{{{ for two literal braces", shown(s))
		}
		name := strings.TrimSpace(inner)
		if !isName(name) {
			return nil, problem.Field(field, "{{%s}} is not a placeholder; write {{{{ for two literal braces", shown(inner))
		}
		out, s = append(out, piece{text: name, variable: true}), rest
	}
	return out, nil
}

// isName accepts the names of variables and of builtins: words of lower-case letters, digits and _ that begin with a
// letter, joined by dots.
func isName(s string) bool {
	if len(s) > 128 {
		return false
	}
	for word := range strings.SplitSeq(s, ".") {
		if word == "" || word[0] < 'a' || word[0] > 'z' {
			return false
		}
		for _, c := range word {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
				return false
			}
		}
	}
	return true
}

// shown is what an error repeats of the user's text: bounded and without control characters.
func shown(s string) string {
	if len(s) > maxShownBytes {
		s = strings.ToValidUTF8(s[:maxShownBytes], "") + "..."
	}
	q := fmt.Sprintf("%q", s)
	return q[1 : len(q)-1]
}

func list(known map[string]string) string {
	names := slices.Sorted(maps.Keys(known))
	const most = 20
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
