package transport_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/transport"
)

// exchange is one request and what came back.
type exchange struct {
	status int
	header http.Header
	body   string
}

// raw sends a request as it is; as the subject, unless that is empty.
func (w *world) raw(subject, method, path string, header http.Header, body string) exchange {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.ctx, method, w.http.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if subject != "" {
		req.Header.Set("Authorization", "Bearer "+w.token(subject))
	}
	resp, err := w.http.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return exchange{resp.StatusCode, resp.Header, string(got)}
}

func document(query string) string { return string(raw(vars{"query": query})) }

// The status of an answer, by the form that the client takes (GraphQL over HTTP, section 6.4).
func TestStatusOfAnswers(t *testing.T) {
	w := newWorld(t, option{limits: transport.Limits{MaxBodyBytes: 4096}})
	const jsonType, graphQLType = "application/json; charset=utf-8", "application/graphql-response+json; charset=utf-8"
	for name, c := range map[string]struct {
		subject, body  string
		plain, graphQL int
		data           bool
	}{
		"executed":              {"alice", document(`{ viewer { subject } }`), 200, 200, true},
		"executed with a error": {"alice", document(`{ run(id: "run_none") { id } }`), 200, 200, true},
		"null bubbled up":       {"mallory", document(`{ harnesses { id } }`), 200, 200, true},
		"not JSON":              {"alice", `{`, 400, 400, false},
		"no document":           {"alice", `{}`, 400, 400, false},
		"too long":              {"alice", document(strings.Repeat(" ", 5000)), 413, 413, false},
		"syntax":                {"alice", document(`{`), 200, 400, false},
		"not valid":             {"alice", document(`{ viewr }`), 200, 400, false},
		"variables":             {"alice", document(`query($id: ID!) { run(id: $id) { id } }`), 200, 400, false},
		"no such operation":     {"alice", `{"query":"query A { viewer { subject } }","operationName":"B"}`, 200, 400, false},
		"two operations":        {"alice", document(`query A { viewer { subject } } query B { viewer { subject } }`), 200, 400, false},
		"introspection":         {"alice", document(`{ __schema { queryType { name } } }`), 200, 403, false},
		"nobody introspects":    {"", document(`{ __schema { queryType { name } } }`), 200, 401, false},
		"a subscription":        {"alice", document(`subscription { catalogChanged { revision } }`), 200, 400, false},
		"dear":                  {"alice", document(`{ sessions(first: 100) { edges { node { messages(first: 100) { edges { node { text } } } } } } }`), 200, 400, false},
	} {
		for accept, want := range map[string]struct {
			status int
			kind   string
		}{
			"":                 {c.plain, jsonType},
			"application/json": {c.plain, jsonType},
			"application/graphql-response+json, application/json;q=0.9": {c.graphQL, graphQLType},
		} {
			got := w.raw(c.subject, http.MethodPost, "/graphql", http.Header{"Content-Type": {"application/json"}, "Accept": {accept}}, c.body)
			if got.status != want.status || got.header.Get("Content-Type") != want.kind || strings.Contains(got.body, `"data"`) != c.data {
				t.Errorf("%s for %q: %d %s %s", name, accept, got.status, got.header.Get("Content-Type"), got.body)
			}
		}
	}
	for name, c := range map[string]struct {
		method, path string
		header       http.Header
		status       int
		allow        string
	}{
		"a mutation by GET": {"GET", "/graphql?query=" + url.QueryEscape(`mutation { cancelRun(runId: "run_1") { id } }`), nil, 405, "POST"},
		"streamed":          {"GET", "/graphql?query=" + url.QueryEscape(`mutation { cancelRun(runId: "run_1") { id } }`), http.Header{"Accept": {"text/event-stream"}}, 405, "POST"},
		"a query by GET":    {"GET", "/graphql?query=" + url.QueryEscape(`{ viewer { subject } }`), nil, 200, ""},
		"PUT":               {"PUT", "/graphql", nil, 405, "GET, POST, OPTIONS"},
		"not acceptable":    {"POST", "/graphql", http.Header{"Content-Type": {"application/json"}, "Accept": {"text/html"}}, 406, ""},
		"packed":            {"POST", "/graphql", http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, 415, ""},
		"another charset":   {"POST", "/graphql", http.Header{"Content-Type": {"application/json; charset=utf-16"}}, 415, ""},
	} {
		got := w.raw("alice", c.method, c.path, c.header, document("{ viewer { subject } }"))
		if got.status != c.status || got.header.Get("Allow") != c.allow || got.header.Get("Content-Type") != jsonType {
			t.Errorf("%s: %d %v %s", name, got.status, got.header, got.body)
		}
	}
}

// A document that was sent once, by who is known, can be named by its hash.
func TestPersistedQueries(t *testing.T) {
	w := newWorld(t, option{limits: transport.Limits{MaxCachedQuery: 200}})
	const query = `{ viewer { subject } }`
	request := func(query, hash string, version any) string {
		v := vars{"extensions": vars{"persistedQuery": vars{"version": version, "sha256Hash": hash}}}
		if query != "" {
			v["query"] = query
		}
		return string(raw(v))
	}
	send := func(subject, body string) reply {
		h := http.Header{"Content-Type": {"application/json"}}
		if subject != "" {
			h.Set("Authorization", "Bearer "+w.token(subject))
		}
		return w.send(http.MethodPost, "/graphql", h, body)
	}
	sum := func(query string) string {
		s := sha256.Sum256([]byte(query))
		return hex.EncodeToString(s[:])
	}
	const missing = "PERSISTED_QUERY_NOT_FOUND"
	long, invalid := query+strings.Repeat(" ", 200), "{ viewr }"
	for _, c := range []struct {
		name, subject, body, code, field string
	}{
		{"not known yet", "alice", request("", sum(query), 1), missing, ""},
		{"sent by nobody", "", request(query, sum(query), 1), "", ""},
		{"which counts for nothing", "alice", request("", sum(query), 1), missing, ""},
		{"sent along", "alice", request(query, sum(query), 1), "", ""},
		{"known", "bob", request("", sum(query), 1), "", ""},
		{"in upper case", "bob", request("", strings.ToUpper(sum(query)), 1), "", ""},
		{"of another document", "alice", request("{ viewer { subject } } ", sum(query), 1), "BAD_USER_INPUT", "extensions.persistedQuery.sha256Hash"},
		{"not a hash", "alice", request("", "x", 1), "BAD_USER_INPUT", "extensions.persistedQuery.sha256Hash"},
		{"another version", "alice", request("", sum(query), 2), "BAD_USER_INPUT", "extensions.persistedQuery.version"},
		{"no version", "alice", request("", sum(query), nil), "BAD_USER_INPUT", "extensions.persistedQuery.version"},
		{"not an object", "alice", `{"extensions":{"persistedQuery":1}}`, "BAD_USER_INPUT", "extensions.persistedQuery"},
		{"a long one", "alice", request(long, sum(long), 1), "", ""},
		{"is not kept", "alice", request("", sum(long), 1), missing, ""},
		{"one that is not valid", "alice", request(invalid, sum(invalid), 1), "BAD_USER_INPUT", ""},
		{"is not kept either", "alice", request("", sum(invalid), 1), missing, ""},
	} {
		if r := send(c.subject, c.body); r.code() != c.code || r.field() != c.field {
			t.Errorf("%s: %q %q %+v", c.name, r.code(), r.field(), r.Errors)
		}
	}
	path := "/graphql?extensions=" + url.QueryEscape(`{"persistedQuery":{"version":1,"sha256Hash":"`+sum(query)+`"}}`)
	if got := w.raw("alice", http.MethodGet, path, nil, ""); got.status != 200 || got.body != `{"data":{"viewer":{"subject":"alice"}}}` {
		t.Errorf("by GET: %+v", got)
	}
}
