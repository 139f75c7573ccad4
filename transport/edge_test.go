package transport_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/transport"
)

// stream sends an operation for server-sent events and reads to the first reply.
func (w *world) stream(subject, query string) reply {
	w.t.Helper()
	body := w.events(subject, query)
	defer body.Close()
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var r reply
			if err := json.Unmarshal([]byte(data), &r); err != nil {
				w.t.Fatal(err)
			}
			return r
		}
	}
	w.t.Fatalf("no reply: %v", lines.Err())
	return reply{}
}

func (w *world) events(subject, query string) io.ReadCloser {
	w.t.Helper()
	resp, err := w.askFor(w.http, subject, query)
	if err != nil {
		w.t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		w.t.Errorf("content type %q", kind)
	}
	return resp.Body
}

// askFor asks a server for an event stream.
func (w *world) askFor(server *httptest.Server, subject, query string) (*http.Response, error) {
	w.t.Helper()
	body, err := json.Marshal(vars{"query": query})
	if err != nil {
		w.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(w.ctx, http.MethodPost, server.URL+"/graphql", strings.NewReader(string(body)))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}}
	if subject != "" {
		req.Header.Set("Authorization", "Bearer "+w.token(subject))
	}
	return server.Client().Do(req)
}

func TestServerSentEvents(t *testing.T) {
	w := newWorld(t, option{})
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started(), event.TextStarted{MessageID: "m", Role: "assistant"}, event.TextDelta{MessageID: "m", Delta: "hi"})
	body := w.events("alice", `subscription { runEvents(runId: "`+l.id+`") { events { type } } }`)
	defer body.Close()
	lines := bufio.NewScanner(body)
	var got []string
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") && strings.Contains(lines.Text(), "text.delta") {
			l.append(event.TextFinished{MessageID: "m"}, finished())
		}
		got = append(got, lines.Text())
	}
	if all := strings.Join(got, "\n"); !strings.Contains(all, "run.finished") || !strings.Contains(all, "event: complete") {
		t.Errorf("stream: %s", all)
	}
	if r := w.stream("bob", `subscription { runEvents(runId: "`+l.id+`") { through } }`); r.code() != "NOT_FOUND" {
		t.Errorf("a stranger: %+v", r)
	}
}

// A quiet stream lives on behind the time that the listener gives a request to arrive.
func TestServerSentEventsOutliveTheReadTimeout(t *testing.T) {
	w := newWorld(t, option{limits: transport.Limits{PingInterval: 100 * time.Millisecond}})
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started())
	for arrives := 300 * time.Millisecond; ; arrives *= 2 { // until it is long enough for a request on this machine
		listener := httptest.NewUnstartedServer(nil)
		listener.Config = w.edge.HTTP("")
		listener.Config.ReadTimeout = arrives
		listener.Start()
		t.Cleanup(listener.Close)
		asked := time.Now()
		resp, err := w.askFor(listener, "alice", `subscription { runEvents(runId: "`+l.id+`") { events { type } } }`)
		if err != nil || resp.StatusCode != http.StatusOK {
			continue
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		over, ended := false, false
		for lines.Scan() {
			if lines.Text() == ":" && !over && time.Since(asked) > 2*arrives {
				over = true
				l.append(finished())
			}
			ended = ended || strings.Contains(lines.Text(), "run.finished")
		}
		if !over || !ended {
			t.Errorf("it ended before its time, %v: ended %v, %v", !over, ended, lines.Err())
		}
		return
	}
}

// A stream that ends before the run does says so.
func TestDrainEndsServerSentEventsWithAnError(t *testing.T) {
	w := newWorld(t, option{})
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started())
	body := w.events("alice", `subscription { runEvents(runId: "`+l.id+`") { through } }`)
	defer body.Close()
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"through":1`) {
			w.edge.Drain()
		}
		if strings.Contains(lines.Text(), "CAPACITY") {
			return
		}
	}
	t.Errorf("ended without an error: %v", lines.Err())
}

func TestWhoMaySendWhat(t *testing.T) {
	w := newWorld(t, option{origins: []string{"https://app.example"}})
	const body = `{"query":"{ viewer { subject } }"}`
	jsonBody := func(more ...string) http.Header {
		h := http.Header{"Content-Type": {"application/json"}}
		for i := 0; i < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return h
	}
	query := "/graphql?query=" + url.QueryEscape("{ viewer { subject } }")
	for name, c := range map[string]struct {
		method, path string
		header       http.Header
		body         string
		status       int
		code         string
	}{
		"plain":            {"POST", "/graphql", jsonBody(), body, 200, ""},
		"own origin":       {"POST", "/graphql", jsonBody("Origin", w.http.URL), body, 200, ""},
		"listed origin":    {"POST", "/graphql", jsonBody("Origin", "https://app.example"), body, 200, ""},
		"foreign origin":   {"POST", "/graphql", jsonBody("Origin", "https://evil.example"), body, 403, "FORBIDDEN"},
		"null origin":      {"POST", "/graphql", jsonBody("Origin", "null"), body, 403, "FORBIDDEN"},
		"like the listed":  {"POST", "/graphql", jsonBody("Origin", "https://app.example.evil"), body, 403, "FORBIDDEN"},
		"simple post":      {"POST", "/graphql", http.Header{"Content-Type": {"text/plain"}}, body, 415, "BAD_USER_INPUT"},
		"form":             {"POST", "/graphql", http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, "query={viewer{subject}}", 415, "BAD_USER_INPUT"},
		"no content type":  {"POST", "/graphql", http.Header{}, body, 415, "BAD_USER_INPUT"},
		"get with header":  {"GET", query, http.Header{"X-Requested-With": {"x"}}, "", 200, ""},
		"get without":      {"GET", query, http.Header{}, "", 400, "BAD_USER_INPUT"},
		"get variables":    {"GET", query + "&variables=[]", http.Header{"X-Requested-With": {"x"}}, "", 400, "BAD_USER_INPUT"},
		"get nothing":      {"GET", "/graphql", http.Header{"X-Requested-With": {"x"}}, "", 400, "BAD_USER_INPUT"},
		"put":              {"PUT", "/graphql", jsonBody(), body, 405, "BAD_USER_INPUT"},
		"basic":            {"POST", "/graphql", jsonBody("Authorization", "Basic YTpi"), body, 401, "UNAUTHENTICATED"},
		"nonsense":         {"POST", "/graphql", jsonBody("Authorization", "Bearer x.y.z"), body, 401, "UNAUTHENTICATED"},
		"very long token":  {"POST", "/graphql", jsonBody("Authorization", "Bearer "+strings.Repeat("x", 9000)), body, 401, "UNAUTHENTICATED"},
		"with its charset": {"POST", "/graphql", http.Header{"Content-Type": {"application/json; charset=utf-8"}}, body, 200, ""},
	} {
		if r := w.send(c.method, c.path, c.header, c.body); r.status != c.status || r.code() != c.code {
			t.Errorf("%s: %d %q, want %d %q", name, r.status, r.code(), c.status, c.code)
		}
	}
	// A GET changes nothing, whatever it carries.
	w.spy.take()
	req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.http.URL+"/graphql?query="+url.QueryEscape(`mutation { cancelRun(runId: "run_1") { id } }`), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"X-Requested-With": {"x"}, "Authorization": {"Bearer " + w.token("alice")}}
	resp, err := w.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode < 400 || len(w.spy.take()) > 0 {
		t.Errorf("a mutation by GET: %d", resp.StatusCode)
	}
}

func (w *world) get(path string) (*http.Response, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.http.URL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.http.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(body)
}

func TestHealthAndReadiness(t *testing.T) {
	w := newWorld(t, option{})
	w.readyErr = errors.New("dial unix: no such file")
	if resp, body := w.get("/healthz"); resp.StatusCode != 200 || !strings.Contains(body, `"ok"`) {
		t.Errorf("health: %d %s", resp.StatusCode, body)
	}
	resp, body := w.get("/readyz")
	if resp.StatusCode != 503 || !strings.Contains(body, `{"name":"store","ok":false}`) || !strings.Contains(body, `{"name":"authorization","ok":true}`) || strings.Contains(body, "dial") {
		t.Errorf("not ready: %d %s", resp.StatusCode, body)
	}
	w.readyErr = nil
	w.until(func() bool { resp, _ := w.get("/readyz"); return resp.StatusCode == 200 })
	w.edge.Drain()
	if resp, body := w.get("/readyz"); resp.StatusCode != 503 || !strings.Contains(body, "draining") {
		t.Errorf("draining: %d %s", resp.StatusCode, body)
	}
}

func TestEveryAnswerHasItsHeaders(t *testing.T) {
	w := newWorld(t, option{})
	for _, path := range []string{"/healthz", "/playground", "/graphql", "/nowhere"} {
		resp, _ := w.get(path)
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe-eval") {
			t.Errorf("%s: policy %q", path, csp)
		}
	}
}
