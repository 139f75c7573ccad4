package scalar

import (
	"encoding/json"
	"io"

	"github.com/99designs/gqlgen/graphql"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// Bounds of a JSON value as input. Text counts in its compact form.
const (
	MaxJSONDepth = 16
	MaxJSONBytes = 64 << 10
)

// MarshalJSON writes a JSON value as it is; an empty one is null.
func MarshalJSON(raw json.RawMessage) graphql.Marshaler {
	if len(raw) == 0 {
		return graphql.Null
	}
	return graphql.WriterFunc(func(w io.Writer) { _, _ = w.Write(raw) })
}

// UnmarshalJSON reads any JSON value within the bounds. Scalars are of depth 0.
func UnmarshalJSON(v any) (json.RawMessage, error) {
	if deeper(v, MaxJSONDepth) {
		return nil, problem.New(problem.BadUserInput, "is nested more than %d levels deep", MaxJSONDepth)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, problem.New(problem.BadUserInput, "is not JSON").Because(err)
	}
	if len(raw) > MaxJSONBytes {
		return nil, problem.New(problem.BadUserInput, "is %d bytes, at most %d are allowed", len(raw), MaxJSONBytes)
	}
	return raw, nil
}

// deeper reports whether v has more than depth levels of arrays and objects; it looks no further than that.
func deeper(v any, depth int) bool {
	switch v := v.(type) {
	case map[string]any:
		if depth == 0 {
			return true
		}
		for _, item := range v {
			if deeper(item, depth-1) {
				return true
			}
		}
	case []any:
		if depth == 0 {
			return true
		}
		for _, item := range v {
			if deeper(item, depth-1) {
				return true
			}
		}
	}
	return false
}
