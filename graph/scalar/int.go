// Package scalar holds the wire forms of the schema's scalars.
package scalar

import (
	"encoding/json"
	"io"
	"math"
	"strconv"

	"github.com/99designs/gqlgen/graphql"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// MarshalInt writes an Int. Sequences, revisions and token counts are 64-bit inside; none gets near the 31 bits that
// GraphQL promises, and JSON carries what does.
func MarshalInt(i int64) graphql.Marshaler {
	return graphql.WriterFunc(func(w io.Writer) { _, _ = io.WriteString(w, strconv.FormatInt(i, 10)) })
}

// UnmarshalInt reads an Int: a whole number of 32 bits (GraphQL, section 3.5.1), never a string.
func UnmarshalInt(v any) (int64, error) {
	var i int64
	switch v := v.(type) {
	case int:
		i = int64(v)
	case int32:
		i = int64(v)
	case int64:
		i = v
	case float64:
		if v != math.Trunc(v) || math.Abs(v) > math.MaxInt32 {
			return 0, notInt()
		}
		i = int64(v)
	case json.Number:
		n, err := strconv.ParseInt(string(v), 10, 32)
		if err != nil {
			return 0, notInt()
		}
		i = n
	default:
		return 0, notInt()
	}
	if i < math.MinInt32 || i > math.MaxInt32 {
		return 0, notInt()
	}
	return i, nil
}

func notInt() error { return problem.New(problem.BadUserInput, "must be a whole number of 32 bits") }
