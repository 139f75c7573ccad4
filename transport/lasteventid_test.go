package transport

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// What passes is short and printable, and a place of a run is exactly how a sequence is written.
func FuzzLastEventID(f *testing.F) {
	for _, seed := range []string{"7", "0", "007", "-1", "+1", "2147483647", "2147483648", "eyJhIjoxfQ", "a b", "\x00", "١", strings.Repeat("1", 300)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		id, p := lastEventID(http.Header{"Last-Event-Id": {raw}})
		if p != nil {
			if len(raw) > 12 && strings.Contains(p.Error(), raw) {
				t.Errorf("the message repeats %q", raw)
			}
			return
		}
		if id != raw || len(id) > maxEventID || strings.ContainsAny(id, " \r\n\x00") {
			t.Errorf("%q passed as %q", raw, id)
		}
		cursor, p := cursorOf(id, ".ab")
		if marked := strings.Contains(id, "."); marked && !strings.HasSuffix(id, ".ab") && p == nil || !marked && cursor != id {
			t.Errorf("%q was read as %q, %v", id, cursor, p)
		}
		n, p := sequenceOf(lastEventIDField, id)
		if (p == nil) != (id != "" && strconv.FormatInt(n, 10) == id) || n < 0 || n > 1<<31-1 {
			t.Errorf("%q was read as %d, %v", id, n, p)
		}
	})
}

func TestPlaceOf(t *testing.T) {
	for name, c := range map[string]struct {
		query  string
		header []string
		after  int64
		field  string
	}{
		"the beginning":            {"", nil, 0, ""},
		"after":                    {"after=7", nil, 7, ""},
		"the id wins":              {"after=7&format=canonical", []string{"9"}, 9, ""},
		"a marked id":              {"", []string{"9.ab"}, 9, ""},
		"of another history":       {"", []string{"9.ac"}, 0, ""},
		"a mark and nothing else":  {"", []string{".ab"}, 0, "Last-Event-ID"},
		"an empty id":              {"after=7", []string{""}, 7, ""},
		"a bad after":              {"after=x", []string{"9"}, 0, "after"},
		"an empty after":           {"after=", nil, 0, "after"},
		"a negative after":         {"after=-1", nil, 0, "after"},
		"after, written otherwise": {"after=07", nil, 0, "after"},
		"two of after":             {"after=1&after=2", nil, 0, "after"},
		"a bad id":                 {"after=7", []string{"x"}, 0, "Last-Event-ID"},
		"a long id":                {"after=7", []string{strings.Repeat("9", 300)}, 0, "Last-Event-ID"},
		"two ids":                  {"", []string{"1", "2"}, 0, "Last-Event-ID"},
		"another format":           {"format=agui", nil, 0, "format"},
		"a format twice":           {"format=canonical&format=agui", nil, 0, "format"},
	} {
		r := &http.Request{URL: &url.URL{RawQuery: c.query}, Header: http.Header{"Last-Event-Id": c.header}}
		after, p := placeOf(r, ".ab")
		switch {
		case name == "of another history":
			if codeOf(p) != problem.CursorExpired {
				t.Errorf("%s: %d, %v", name, after, p)
			}
		case c.field == "" && (p != nil || after != c.after):
			t.Errorf("%s: %d, %v", name, after, p)
		case c.field != "" && (p == nil || strings.Join(p.Field, ".") != c.field):
			t.Errorf("%s: %d, %v", name, after, p)
		}
	}
}
