package scalar

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/harness-engine/harness-engine/engine/problem"
)

func written(m graphql.Marshaler) string {
	var b bytes.Buffer
	m.MarshalGQL(&b)
	return b.String()
}

func TestInt(t *testing.T) {
	for _, v := range []any{1, int32(1), int64(1), 1.0, json.Number("1")} {
		if got, err := UnmarshalInt(v); got != 1 || err != nil {
			t.Errorf("%T: %d, %v", v, got, err)
		}
	}
	for _, v := range []any{
		"1", true, nil, 1.5, math.NaN(), math.Inf(1), int64(math.MaxInt32) + 1, int64(math.MinInt32) - 1, 1e10,
		json.Number("1.0"), json.Number("2147483648"), json.Number("99999999999999999999"), map[string]any{},
	} {
		if got, err := UnmarshalInt(v); !problem.Is(err, problem.BadUserInput) {
			t.Errorf("%v is taken as %d, %v", v, got, err)
		}
	}
	if got := written(MarshalInt(math.MaxInt64)); got != "9223372036854775807" {
		t.Errorf("written as %s", got)
	}
}

func TestDateTime(t *testing.T) {
	at, err := UnmarshalDateTime("2026-05-04T14:30:00.1234+02:00")
	if err != nil || written(MarshalDateTime(at)) != `"2026-05-04T12:30:00.123Z"` {
		t.Errorf("%s, %v", at, err)
	}
	if got := written(MarshalDateTime(time.Time{})); got != "null" {
		t.Errorf("no time is %s", got)
	}
	for _, v := range []any{"", "today", "2026-05-04", 17, nil, "2026-13-01T00:00:00Z"} {
		if _, err := UnmarshalDateTime(v); !problem.Is(err, problem.BadUserInput) {
			t.Errorf("%v: %v", v, err)
		}
	}
}

func TestJSON(t *testing.T) {
	nest := func(levels int, list bool) (v any) {
		for v = 1; levels > 0; levels-- {
			if list {
				v = []any{v}
			} else {
				v = map[string]any{"a": v}
			}
		}
		return v
	}
	for _, list := range []bool{false, true} {
		if _, err := UnmarshalJSON(nest(MaxJSONDepth, list)); err != nil {
			t.Errorf("deepest: %v", err)
		}
		if _, err := UnmarshalJSON(nest(MaxJSONDepth+1, list)); !problem.Is(err, problem.BadUserInput) {
			t.Errorf("too deep: %v", err)
		}
	}
	if _, err := UnmarshalJSON(strings.Repeat("x", MaxJSONBytes-2)); err != nil {
		t.Errorf("longest: %v", err)
	}
	if _, err := UnmarshalJSON(strings.Repeat("x", MaxJSONBytes-1)); !problem.Is(err, problem.BadUserInput) {
		t.Errorf("too long: %v", err)
	}
	got, err := UnmarshalJSON(map[string]any{"n": json.Number("12345678901234567890"), "s": "é"})
	if err != nil || written(MarshalJSON(got)) != `{"n":12345678901234567890,"s":"é"}` {
		t.Errorf("%s, %v", got, err)
	}
	if got := written(MarshalJSON(nil)); got != "null" {
		t.Errorf("nothing is %s", got)
	}
}

func TestString(t *testing.T) {
	for _, v := range []any{"", "x", "\u2028"} {
		if got, err := UnmarshalString(v); got != v || err != nil {
			t.Errorf("%v: %v, %v", v, got, err)
		}
	}
	for _, v := range []any{7, int64(7), 7.5, json.Number("7"), true, nil, []any{"x"}, map[string]any{}} {
		if got, err := UnmarshalString(v); !problem.Is(err, problem.BadUserInput) {
			t.Errorf("%v: %v, %v", v, got, err)
		}
	}
}
