package transport

import (
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/99designs/gqlgen/graphql"
)

func TestDepthOf(t *testing.T) {
	for raw, want := range map[string]int{
		`1`: 0, `{}`: 1, `[[],[[]]]`: 3, `{"a":"[[[["}`: 1, `{"a\"[[":[]}`: 2, `"\\"`: 0, `]]][`: 0,
	} {
		if got, _ := extentOf([]byte(raw)); got != want {
			t.Errorf("%s: %d, want %d", raw, got, want)
		}
	}
}

func TestParseBodyReadsExactNames(t *testing.T) {
	var got graphql.RawParams
	p := parseBody([]byte(`{"query":"{a}","Query":"{b}","operationName":null,"variables":{"n":9007199254740993},"extensions":null,"more":[1]}`), 8, &got)
	want := graphql.RawParams{Query: "{a}", Variables: map[string]any{"n": json.Number("9007199254740993")}}
	if p != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, p)
	}
}

func TestParseQuery(t *testing.T) {
	for raw, want := range map[string]struct{ field, message string }{
		"query={a}":                     {},
		"query={a}&variables={}&x=1":    {},
		"query={a}&variables=null":      {},
		"variables={}":                  {"query", "must be a string with a document"},
		"":                              {"query", "must be a string with a document"},
		"query={a}&query={b}":           {"query", "is given more than once"},
		"query=%ff":                     {"query", "is not valid UTF-8"},
		"query={a}&variables=[]":        {"variables", "must be an object"},
		"query={a}&extensions=x":        {"extensions", "must be an object"},
		"query={a}&variables={}{}":      {"variables", "must be one object"},
		"query={a}&variables={a:[[[[[[": {"variables", "is nested more than 4 levels deep"},
		"query=%zz":                     {"", "the query string is malformed"},
		"query={a};b":                   {"", "the query string is malformed"},
		`extensions={"persistedQuery":{"version":1,"sha256Hash":"x"}}`: {},
	} {
		p := parseQuery(raw, 4, &graphql.RawParams{})
		switch {
		case want.message == "" && p != nil:
			t.Errorf("%s: %v", raw, p)
		case want.message != "" && (p == nil || p.Message != want.message || strings.Join(p.Field, ".") != want.field):
			t.Errorf("%s: %v", raw, p)
		}
	}
}

func TestIsJSON(t *testing.T) {
	for header, want := range map[[2]string]bool{
		{"application/json", ""}: true, {"application/json; charset=utf-8", ""}: true, {"Application/JSON;charset=\"UTF-8\"", ""}: true,
		{"application/json; charset=utf-16", ""}: false, {"application/json", "gzip"}: false, {"application/json", "identity"}: true,
		{"text/plain", ""}: false, {"", ""}: false, {"application/json;;", ""}: false, {"application/jsonx", ""}: false,
	} {
		r := &http.Request{Header: http.Header{"Content-Type": {header[0]}, "Content-Encoding": {header[1]}}}
		if got := isJSON(r); got != want {
			t.Errorf("%v: %v", header, got)
		}
	}
}

// What passes is one object with a document in it, no deeper than allowed; what does not pass has a message that does
// not repeat it.
func FuzzParseBody(f *testing.F) {
	for _, seed := range []string{`{"query":"{a}"}`, `{"query":"{a}","variables":{"a":[1]},"operationName":null}`, `[]`, `{"query":1}`, "{\"query\":\"\xff\"}", ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var got graphql.RawParams
		p := parseBody(raw, 8, &got)
		if p != nil {
			if len(raw) > 12 && strings.Contains(p.Error(), string(raw)) {
				t.Errorf("the message repeats %q", raw)
			}
			return
		}
		var members map[string]any
		if err := json.Unmarshal(raw, &members); err != nil {
			t.Fatalf("%q passed: %v", raw, err)
		}
		query, _ := members["query"].(string)
		name, _ := members["operationName"].(string)
		if query != got.Query || name != got.OperationName || !utf8.ValidString(got.Query) || deep(raw) > 8 {
			t.Errorf("%q was read as %+v", raw, got)
		}
		if got.Query == "" && got.Extensions["persistedQuery"] == nil {
			t.Errorf("%q has no document", raw)
		}
		for member, read := range map[string]map[string]any{"variables": got.Variables, "extensions": got.Extensions} {
			if of, _ := members[member].(map[string]any); len(of) != len(read) {
				t.Errorf("%q: %s was read as %v", raw, member, read)
			}
		}
	})
}

// The query string says the same as the JSON of the same parameters.
func FuzzParseQuery(f *testing.F) {
	for _, seed := range []string{"query={a}", "query={a}&variables={\"a\":1}&operationName=A", "query=%7Ba%7D&extensions={}", "a=%zz", "query=a;b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var got graphql.RawParams
		if p := parseQuery(raw, 8, &got); p != nil {
			if len(raw) > 12 && strings.Contains(p.Error(), raw) {
				t.Errorf("the message repeats %q", raw)
			}
			return
		}
		values, err := url.ParseQuery(raw)
		if err != nil || values.Get("query") != got.Query || values.Get("operationName") != got.OperationName {
			t.Fatalf("%q was read as %+v", raw, got)
		}
		body, err := json.Marshal(map[string]any{"query": got.Query, "operationName": got.OperationName, "variables": got.Variables, "extensions": got.Extensions})
		if err != nil {
			t.Fatal(err)
		}
		var again graphql.RawParams
		if p := parseBody(body, 16, &again); p != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("%q was read as %+v, its JSON as %+v: %v", raw, got, again, p)
		}
	})
}

func deep(raw []byte) int {
	depth, _ := extentOf(raw)
	return depth
}

// A request of many small values would take fifty times its length.
func TestValuesOfARequestAreBounded(t *testing.T) {
	many := `{"query":"{ a }","variables":{"x":[` + strings.Repeat("0,", maxValues) + `0]}}`
	if p := parseBody([]byte(many), 64, &graphql.RawParams{}); p == nil || !strings.Contains(p.Message, "65536 values") {
		t.Errorf("a body: %v", p)
	}
	if p := parseQuery("query=a&variables="+url.QueryEscape(`{"x":[`+strings.Repeat("{},", maxValues/2)+`0]}`), 64, &graphql.RawParams{}); p == nil || p.Field[0] != "variables" {
		t.Errorf("a query string: %v", p)
	}
	if p := parseBody([]byte(`{"query":"{ a }","variables":{"x":"`+strings.Repeat(",", 2*maxValues)+`"}}`), 64, &graphql.RawParams{}); p != nil {
		t.Errorf("a long string: %v", p)
	}
}
