package transport

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDepthOf(t *testing.T) {
	for raw, want := range map[string]int{
		`1`: 0, `{}`: 1, `[[],[[]]]`: 3, `{"a":"[[[["}`: 1, `{"a\"[[":[]}`: 2, `"\\"`: 0, `]]][`: 0,
	} {
		if got := depthOf([]byte(raw)); got != want {
			t.Errorf("%s: %d, want %d", raw, got, want)
		}
	}
}

// What passes is one object with a document in it, no deeper than allowed; what does not pass has a message that does
// not repeat it.
func FuzzCheckRequest(f *testing.F) {
	for _, seed := range []string{`{"query":"{a}"}`, `{"query":"{a}","variables":{"a":[1]},"operationName":null}`, `[]`, `{"query":1}`, "{\"query\":\"\xff\"}", ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p := checkRequest(raw, 8)
		if p != nil {
			if len(raw) > 12 && strings.Contains(p.Error(), string(raw)) {
				t.Errorf("the message repeats %q", raw)
			}
			return
		}
		var request struct {
			Query      string         `json:"query"`
			Variables  map[string]any `json:"variables"`
			Extensions map[string]any `json:"extensions"`
		}
		// encoding/json reads names in any case; only exact ones are the request's.
		if err := json.Unmarshal(raw, &request); err != nil && !strings.Contains(err.Error(), "cannot unmarshal") {
			t.Errorf("%q passed: %v", raw, err)
		}
		if depthOf(raw) > 8 {
			t.Errorf("%q passed", raw)
		}
	})
}
