package fakemodel

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestIDsAreOfOneLife asks two endpoints the same: a conversation that meets both, as when the engine with the built-in
// one is started anew, must not meet one id of a message or call twice.
func TestIDsAreOfOneLife(t *testing.T) {
	requests := map[string]string{
		"/v1/messages":         `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"[[tool ls {}]]"}],"tools":[{"name":"ls"}]}`,
		"/v1/chat/completions": `{"model":"m","messages":[{"role":"user","content":"[[tool ls {}]]"}],"tools":[{"type":"function","function":{"name":"ls"}}]}`,
	}
	for path, body := range requests {
		seen := map[string]bool{}
		for range 2 {
			w := httptest.NewRecorder()
			New(Options{}).ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(body)))
			var answer any
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			ids := idsIn(answer)
			if len(ids) != 2 {
				t.Fatalf("%s: the answer has the ids %v, want one of the message and one of the call: %s", path, ids, w.Body)
			}
			for _, id := range ids {
				if seen[id] {
					t.Errorf("%s: the id %s came twice", path, id)
				}
				seen[id] = true
			}
		}
	}
}

// idsIn collects the values of all members id.
func idsIn(v any) (ids []string) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if id, ok := x.(string); ok && k == "id" {
				ids = append(ids, id)
			}
			ids = append(ids, idsIn(x)...)
		}
	case []any:
		for _, x := range v {
			ids = append(ids, idsIn(x)...)
		}
	}
	return ids
}
