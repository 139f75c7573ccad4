package scalar

import (
	"io"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// dateTimeLayout is RFC 3339 with milliseconds, always in UTC.
const dateTimeLayout = "2006-01-02T15:04:05.000Z"

// MarshalDateTime writes a point in time; the zero time is null.
func MarshalDateTime(t time.Time) graphql.Marshaler {
	if t.IsZero() {
		return graphql.Null
	}
	return graphql.WriterFunc(func(w io.Writer) { _, _ = io.WriteString(w, `"`+t.UTC().Format(dateTimeLayout)+`"`) })
}

// UnmarshalDateTime reads RFC 3339 with any offset and precision.
func UnmarshalDateTime(v any) (time.Time, error) {
	if s, ok := v.(string); ok {
		if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, problem.New(problem.BadUserInput, "must be an RFC 3339 date and time")
}
