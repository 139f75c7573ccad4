package broker

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/internal/fakemodel"
)

func TestTheKeyIsInjectedAndTheWorkersHeadersStop(t *testing.T) {
	fake := fakemodel.New(fakemodel.Options{APIKey: canary})
	b := newBench(t, fake, nil)
	for _, c := range []struct{ method, path, body, want, arrives string }{
		{"POST", "/model/anthropic/v1/messages", say("[[text 2]]"), "word2", "/v1/messages"},
		{"POST", "/model/anthropic/v1/messages/count_tokens", say("x"), "input_tokens", "/v1/messages/count_tokens"},
		{"GET", "/model/anthropic/v1/models", "", "fake-model", "/v1/models"},
		{"POST", "/model/openai/v1/chat/completions", say("[[text 2]]"), "word2", "/v1/chat/completions"},
		{"GET", "/model/openai/v1/models", "", "fake-model", "/v1/models"},
	} {
		t.Run(c.path, func(t *testing.T) {
			fake.Reset()
			r := b.request(c.method, c.path, c.body)
			r.Header.Set("X-Api-Key", "the-workers-own")
			r.Header.Set("Cookie", "a=b")
			r.Header.Set("Traceparent", "00-1-1-00")
			r.Header.Set("Anthropic-Beta", "some-feature")
			a := b.do(r)
			if a.status != 200 || a.err != nil || !strings.Contains(a.body, c.want) {
				t.Fatalf("got %d %v %s", a.status, a.err, a.body)
			}
			seen := fake.Requests()
			if len(seen) != 1 || seen[0].Path != c.arrives {
				t.Fatalf("the provider saw %+v", seen)
			}
			h := seen[0].Header
			for _, values := range h {
				for _, v := range values {
					if strings.Contains(v, b.token) || strings.Contains(v, "workers-own") {
						t.Errorf("a credential of the worker went out: %v", h)
					}
				}
			}
			if h.Get("Cookie")+h.Get("Traceparent") != "" {
				t.Errorf("headers that should stop went out: %v", h)
			}
			if h.Get("Anthropic-Beta") != "some-feature" {
				t.Errorf("a header that should pass did not: %v", h)
			}
			for key, values := range a.header {
				if strings.Contains(strings.Join(values, ""), canary) {
					t.Errorf("the key came back in %s", key)
				}
			}
		})
	}
	if strings.Contains(b.log.String(), canary) || strings.Contains(b.log.String(), "word2") || strings.Contains(b.log.String(), b.token) {
		t.Errorf("the log holds a key, a capability or content:\n%s", b.log)
	}
}

func TestCapabilitiesAreCheckedAgainstTheCommittedBinding(t *testing.T) {
	fake := fakemodel.New(fakemodel.Options{})
	b := newBench(t, fake, nil)
	past := newSigner(t, testKey, func() time.Time { return time.Now().Add(-time.Hour) })
	other := newSigner(t, []byte(strings.Repeat("x", 32)), nil)
	with := func(change func(*harness.Binding)) string {
		n := testBinding
		change(&n)
		return "Bearer " + mint(t, b.signer, n, "run_one", time.Minute)
	}
	for _, c := range []struct {
		name, authorization string
		state               committed
		status              int
		code                string
	}{
		{"none", "", committed{}, 401, "capability_missing"},
		{"another scheme", "Basic " + b.token, committed{}, 401, "capability_missing"},
		{"garbage", "Bearer garbage", committed{}, 401, "capability_malformed"},
		{"forged", "Bearer " + mint(t, other, testBinding, "run_one", time.Minute), committed{}, 401, "capability_forged"},
		{"expired", "Bearer " + mint(t, past, testBinding, "run_one", time.Minute), committed{}, 401, "capability_expired"},
		{"unknown session", with(func(n *harness.Binding) { n.SessionID = "ses_two" }), committed{}, 403, "session_unknown"},
		{"token of an older epoch", with(func(n *harness.Binding) { n.Epoch = 1 }), committed{}, 403, "stale_epoch"},
		{"token of an older worker", with(func(n *harness.Binding) { n.SandboxGen = 2 }), committed{}, 403, "stale_worker"},
		{"token of a later worker", with(func(n *harness.Binding) { n.SandboxGen = 4 }), committed{}, 403, "stale_worker"},
		{"cleared meanwhile", "Bearer " + b.token, committed{epoch: 3, gen: 3, run: "run_one"}, 403, "stale_epoch"},
		{"replaced meanwhile", "Bearer " + b.token, committed{epoch: 2, gen: 4, run: "run_one"}, 403, "stale_worker"},
		{"another run", "Bearer " + b.token, committed{epoch: 2, gen: 3, run: "run_two"}, 403, "stale_run"},
		{"no run", "Bearer " + b.token, committed{epoch: 2, gen: 3}, 403, "stale_run"},
		{"store down", "Bearer " + b.token, committed{epoch: 2, gen: 3, run: "run_one", err: errors.New("disk on fire")}, 503, "binding_unavailable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.state.epoch == 0 {
				c.state = committed{epoch: 2, gen: 3, run: "run_one"}
			}
			b.bindings.mu.Lock()
			b.bindings.committed = c.state
			b.bindings.mu.Unlock()
			for _, path := range []string{"/model/anthropic/v1/messages", "/model/openai/v1/chat/completions"} {
				r := b.request("POST", path, say("hi"))
				r.Header.Set("Authorization", c.authorization)
				a := b.do(r)
				if _, code, _ := a.code(t); a.status != c.status || code != c.code {
					t.Errorf("got %d %s, want %d %s", a.status, code, c.status, c.code)
				}
				if strings.Contains(a.body, "disk") {
					t.Errorf("the store's error leaks: %s", a.body)
				}
			}
		})
	}
	if n := len(fake.Requests()); n != 0 {
		t.Errorf("%d refused calls reached the provider", n)
	}
	if s := b.broker.Stats(); s.Refused != 28 || s.Calls != 0 || s.Active != 0 {
		t.Errorf("stats: %+v", s)
	}
}

func TestLimits(t *testing.T) {
	fake := fakemodel.New(fakemodel.Options{})
	b := newBench(t, fake, func(o *Options) { o.MaxBodyBytes = 1000; o.MaxCallsOfRun = 2 })
	exact := say(strings.Repeat("x", 1000-len(say(""))))
	if a := b.do(b.request("POST", "/model/anthropic/v1/messages", exact)); a.status != 200 {
		t.Errorf("the longest body: got %d %s", a.status, a.body)
	}
	a := b.do(b.request("POST", "/model/anthropic/v1/messages", exact+" "))
	if kind, _, _ := a.code(t); a.status != 413 || kind != "request_too_large" {
		t.Errorf("one byte more: got %d %s", a.status, a.body)
	}
	r := b.request("POST", "/model/openai/v1/chat/completions", "")
	r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(exact), strings.NewReader(" "))), -1
	if a = b.do(r); a.status != 413 {
		t.Errorf("one byte more, length unknown: got %d %s", a.status, a.body)
	}

	var hanging []*http.Response
	for range 2 {
		res, err := b.client.Do(b.request("POST", "/model/anthropic/v1/messages", say("[[text 1]][[hang]]")))
		if err != nil {
			t.Fatal(err)
		}
		hanging = append(hanging, res)
	}
	a = b.do(b.request("POST", "/model/anthropic/v1/messages", say("hi")))
	if kind, _, _ := a.code(t); a.status != 429 || kind != "rate_limit_error" || a.header.Get("Retry-After") == "" {
		t.Errorf("a third call at once: got %d %s", a.status, a.body)
	}
	for _, res := range hanging {
		_ = res.Body.Close()
	}
	for b.broker.Stats().Active > 0 { // the broker learns of it by the connection
		runtime.Gosched()
	}
	if a = b.do(b.request("POST", "/model/anthropic/v1/messages", say("hi"))); a.status != 200 {
		t.Errorf("after the others ended: got %d %s", a.status, a.body)
	}
	for _, c := range []struct{ method, path string }{
		{"POST", "/model/google/v1/x"}, {"POST", "/model/anthropic/v1/other"}, {"GET", "/model/anthropic/v1/messages"},
		{"POST", "/model/anthropic/v1/messages/../../x"}, {"DELETE", "/"}, {"POST", "/model/openai/v1//chat/completions"},
	} {
		if a := b.do(b.request(c.method, c.path, "{}")); a.status < 300 || a.status > 499 {
			t.Errorf("%s %s: got %d", c.method, c.path, a.status)
		}
	}
}

func TestFailuresKeepStatusAndCodeAndLoseSecrets(t *testing.T) {
	var status int
	var body, location string
	b := newBench(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Set-Cookie", "a=b")
		if location != "" {
			w.Header().Set("Location", location)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.ReplaceAll(body, "HOST", r.Host))
	}), nil)
	for _, c := range []struct {
		name, body, location string
		status, want         int
		kind, code, message  string
	}{
		{name: "a bad request", status: 400, want: 400, kind: "invalid_request_error", code: "context_length_exceeded", message: "too long",
			body: `{"error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"too long","param":"x"}}`},
		{name: "throttled", status: 429, want: 429, kind: "rate_limit_error", message: "org [redacted] is over",
			body: `{"type":"error","error":{"type":"rate_limit_error","message":"org org-AbCdEf123 is over"}}`},
		{name: "overloaded", status: 529, want: 529, kind: "overloaded_error", message: "Overloaded",
			body: `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`},
		{name: "a key in the message", status: 400, want: 400, kind: "api_error", message: "key [redacted] at [redacted] or [redacted]",
			body: `{"error":{"message":"key ` + canary + ` at http://HOST/v1 or HOST"}}`},
		{name: "a masked key", status: 401, want: 401, kind: "authentication_error", code: "upstream_credential",
			message: "the model provider refused this deployment's credential",
			body:    `{"error":{"message":"Incorrect API key provided: sk-cana****6789"}}`},
		{name: "not permitted", status: 403, want: 403, kind: "permission_error", code: "upstream_permission",
			message: "the model provider does not permit this call to this deployment", body: `{"error":{"message":"project proj_x"}}`},
		{name: "a page", status: 502, want: 502, kind: "api_error", message: "the model provider answered with an error",
			body: `<html>nginx at HOST</html>`},
		{name: "strange fields", status: 500, want: 500, kind: "api_error", message: "x",
			body: `{"error":{"type":"<b>","code":7777777777777777777777777777777777777777777777777777777777777777777,"message":"x"}}`},
		{name: "a redirect", status: 307, want: 502, location: "http://127.0.0.1:1/elsewhere", kind: "api_error",
			code: "upstream_redirect", message: "the model provider answered with a redirect"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body, location = c.status, c.body, c.location
			for _, path := range []string{"/model/anthropic/v1/messages", "/model/openai/v1/responses"} {
				a := b.do(b.request("POST", path, "{}"))
				kind, code, message := a.code(t)
				if a.status != c.want || kind != c.kind || code != c.code || message != c.message {
					t.Errorf("got %d %q %q %q", a.status, kind, code, message)
				}
				if a.header.Get("Retry-After") != "7" || a.header.Get("Set-Cookie")+a.header.Get("Location") != "" {
					t.Errorf("headers: %v", a.header)
				}
				if strings.Contains(a.body, "canary") || strings.Contains(a.body, "127.0.0.1") {
					t.Errorf("leak: %s", a.body)
				}
			}
		})
	}
}

func TestUnconfiguredAndUnreachableProviders(t *testing.T) {
	b := newBench(t, http.NotFoundHandler(), func(o *Options) {
		o.Upstreams = map[string]Upstream{ProviderOpenAI: {BaseURL: "http://127.0.0.1:1/v1", Key: canary}}
	})
	a := b.do(b.request("POST", "/model/anthropic/v1/messages", "{}"))
	if _, code, _ := a.code(t); a.status != 404 || code != "provider_not_configured" {
		t.Errorf("got %d %s", a.status, a.body)
	}
	a = b.do(b.request("POST", "/model/openai/v1/chat/completions", "{}"))
	if _, code, _ := a.code(t); a.status != 502 || code != "upstream_unreachable" || strings.Contains(a.body, "127.0.0.1") {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if strings.Contains(b.log.String(), "127.0.0.1") {
		t.Errorf("the log names the upstream: %s", b.log)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	s := newSigner(t, testKey, nil)
	for name, u := range map[string]map[string]Upstream{
		"unknown provider": {"acme": {Key: "k"}},
		"no URL":           {ProviderOpenAI: {BaseURL: "api.openai.com"}},
		"another scheme":   {ProviderOpenAI: {BaseURL: "file:///etc/passwd"}},
		"a password":       {ProviderOpenAI: {BaseURL: "https://user:hunter2@host/v1"}},
		"a query":          {ProviderOpenAI: {BaseURL: "https://host/v1?key=hunter2"}},
		"a broken key":     {ProviderOpenAI: {Key: "hunter2\nx: y"}},
	} {
		_, err := New(Options{Signer: s, Bindings: &bindings{}, Upstreams: u})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Options{Signer: s}); err == nil {
		t.Error("no bindings: accepted")
	}
	env := map[string]string{"ANTHROPIC_API_KEY": "k", "OPENAI_BASE_URL": "http://x/v1"}
	got := UpstreamsFromEnv(func(k string) string { return env[k] })
	if fmt.Sprint(got) != "map[anthropic:{ k} openai:{http://x/v1 }]" {
		t.Errorf("from the environment: %v", got)
	}
}
