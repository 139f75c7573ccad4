package scalar

import (
	"github.com/99designs/gqlgen/graphql"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// MarshalString writes a String.
func MarshalString(s string) graphql.Marshaler { return graphql.MarshalString(s) }

// UnmarshalString reads a String: text, and nothing that could be written as text (GraphQL, section 3.5.3). The
// executor's own scalar takes numbers and booleans too.
func UnmarshalString(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", problem.New(problem.BadUserInput, "must be a string")
	}
	return s, nil
}
