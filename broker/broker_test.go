package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/internal/fakemodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// canary is the provider's key; it must not be seen by a worker, in an answer or in a log.
const canary = "sk-canary-0123456789abcdef0123456789"

// committed is the state of one conversation.
type committed struct {
	epoch int64
	gen   int64
	run   string
	err   error
}

type bindings struct {
	mu sync.Mutex
	committed
}

func (b *bindings) Committed(_ context.Context, sessionID string) (int64, int64, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if sessionID != "ses_one" {
		return 0, 0, "", fmt.Errorf("session %s: %w", sessionID, ErrUnknownSession)
	}
	return b.epoch, b.gen, b.run, b.err
}

// bench is a broker on a real socket before an upstream.
type bench struct {
	t        *testing.T
	broker   *Broker
	signer   *Signer
	bindings *bindings
	socket   string
	client   *http.Client
	token    string
	log      *bytes.Buffer
}

// newBench serves until the test ends. change may adjust the options.
func newBench(t *testing.T, upstream http.Handler, change func(*Options)) *bench {
	t.Helper()
	srv := httptest.NewServer(upstream)
	t.Cleanup(srv.Close)
	b := &bench{t: t, bindings: &bindings{committed: committed{epoch: 2, gen: 3, run: "run_one"}}, log: &bytes.Buffer{}}
	b.signer = newSigner(t, testKey, nil)
	b.token = mint(t, b.signer, testBinding, "run_one", time.Minute)
	o := Options{
		Signer: b.signer, Bindings: b.bindings,
		Upstreams: map[string]Upstream{
			ProviderAnthropic: {BaseURL: srv.URL, Key: canary}, ProviderOpenAI: {BaseURL: srv.URL + "/v1/", Key: canary},
		},
		Logger: slog.New(slog.NewTextHandler(&lockedWriter{w: b.log}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&o)
	}
	var err error
	if b.broker, err = New(o); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "brk") // short: t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b.socket = filepath.Join(dir, "b.sock")
	l, err := b.broker.Listen(b.socket)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", b.socket)
	}}
	b.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		b.broker.client.CloseIdleConnections()
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (b *bench) request(method, path, body string) *http.Request {
	r, err := http.NewRequest(method, "http://broker"+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+b.token)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// answer is a whole response; err is how its body ended.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func (b *bench) do(r *http.Request) answer {
	b.t.Helper()
	res, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(raw), err}
}

// code reads the error of either provider's form.
func (a answer) code(t *testing.T) (kind, code, message string) {
	t.Helper()
	var v struct{ Error failureDetail }
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || v.Error.Message == "" {
		t.Fatalf("%d: not an error of a provider: %s", a.status, a.body)
	}
	return v.Error.Type, v.Error.Code, v.Error.Message
}

const hello = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"%s"}]}`

func say(text string) string { return fmt.Sprintf(hello, text) }

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

func TestAStreamArrivesAsItIsMade(t *testing.T) {
	step := make(chan struct{})
	b := newBench(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-step
		}
	}), nil)
	res, err := b.client.Do(b.request("POST", "/model/anthropic/v1/messages", "{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	buf := make([]byte, 100)
	for i := range 3 {
		// The provider waits for us: nothing more comes unless this part was passed on at once.
		n, err := io.ReadAtLeast(res.Body, buf, len("data: 0\n\n"))
		if err != nil || string(buf[:n]) != fmt.Sprintf("data: %d\n\n", i) {
			t.Fatalf("got %q, %v", buf[:n], err)
		}
		step <- struct{}{}
	}
}

func TestCutStreamsAreSeenAsCutsAndNeverTriedAgain(t *testing.T) {
	fake := fakemodel.New(fakemodel.Options{})
	b := newBench(t, fake, nil)
	for _, path := range []string{"/model/anthropic/v1/messages", "/model/openai/v1/chat/completions"} {
		fake.Reset()
		a := b.do(b.request("POST", path, say("[[text 2]][[cut]]")))
		if a.err == nil || !strings.Contains(a.body, "word2") {
			t.Errorf("%s: the cut answer looks whole (%v): %s", path, a.err, a.body)
		}
		if n := len(fake.Requests()); n != 1 {
			t.Errorf("%s: the provider was called %d times", path, n)
		}
	}
	if s := b.broker.Stats(); s.Cut != 2 {
		t.Errorf("stats: %+v", s)
	}
}

// A connection that dies before any answer is not tried again either, new or used before: the call may have been paid
// for.
func TestALostCallIsNotRepeated(t *testing.T) {
	var calls atomic.Int64
	b := newBench(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		calls.Add(1)
		if string(raw) == "die" {
			panic(http.ErrAbortHandler)
		}
	}), nil)
	for i, c := range []struct {
		body   string
		status int
	}{{"die", 502}, {"live", 200}, {"die", 502}} {
		r := b.request("POST", "/model/anthropic/v1/messages", c.body)
		r.Header.Set("Idempotency-Key", "x") // would make the transport repeat it
		if a := b.do(r); a.status != c.status || calls.Load() != int64(i+1) {
			t.Fatalf("call %d: got %d %s after %d calls", i, a.status, a.body, calls.Load())
		}
	}
}

func TestAWorkerThatLeavesEndsTheCall(t *testing.T) {
	ended := make(chan struct{})
	b := newBench(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, "data: x\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	}), nil)
	ctx, leave := context.WithCancel(t.Context())
	res, err := b.client.Do(b.request("POST", "/model/anthropic/v1/messages", "{}").WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	leave()
	_ = res.Body.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the provider's call goes on")
	}
}

func TestSlowAndSilentProviders(t *testing.T) {
	fake := fakemodel.New(fakemodel.Options{})
	b := newBench(t, fake, func(o *Options) { o.HeaderTimeout, o.IdleTimeout = 100*time.Millisecond, 100*time.Millisecond })
	a := b.do(b.request("POST", "/model/anthropic/v1/messages", say("[[hang]]")))
	if kind, code, _ := a.code(t); a.status != 504 || code != "upstream_timeout" || kind != "timeout_error" {
		t.Errorf("no headers: got %d %s", a.status, a.body)
	}
	a = b.do(b.request("POST", "/model/anthropic/v1/messages", say("[[text 1]][[hang]]")))
	if a.err == nil || !strings.Contains(a.body, "word1") {
		t.Errorf("silence in mid-stream looks like an end: %v %s", a.err, a.body)
	}
}

func TestACallDoesNotOutliveItsCapability(t *testing.T) {
	b := newBench(t, fakemodel.New(fakemodel.Options{}), nil)
	b.token = mint(t, b.signer, testBinding, "run_one", 150*time.Millisecond)
	a := b.do(b.request("POST", "/model/anthropic/v1/messages", say("[[text 1]][[hang]]")))
	if a.err == nil || !strings.Contains(a.body, "word1") {
		t.Errorf("got %v %s", a.err, a.body)
	}
	b.token = mint(t, b.signer, testBinding, "run_one", 150*time.Millisecond)
	a = b.do(b.request("POST", "/model/anthropic/v1/messages", say("[[hang]]")))
	if _, code, _ := a.code(t); a.status != 401 || code != "capability_expired" {
		t.Errorf("got %d %s", a.status, a.body)
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
	if got := fmt.Sprint(b.broker.Providers()); got != "[openai]" {
		t.Errorf("providers %s", got)
	}
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

func TestTheSocket(t *testing.T) {
	b := newBench(t, http.NotFoundHandler(), nil)
	info, err := os.Stat(b.socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if _, err := b.broker.Listen(b.socket); err == nil || !strings.Contains(err.Error(), "another engine") {
		t.Errorf("a second listener: %v", err)
	}
	if _, err := b.broker.Listen(filepath.Join(filepath.Dir(b.socket), strings.Repeat("x", 108))); err == nil || !strings.Contains(err.Error(), "at most 107") {
		t.Errorf("a long path: %v", err)
	}
	// What a killed engine leaves: the file, with nobody behind it.
	left := filepath.Join(filepath.Dir(b.socket), "left.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	l, err := b.broker.Listen(left)
	if err != nil {
		t.Fatalf("after a kill: %v", err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err, open := <-l.Done(); open && err != nil {
		t.Error(err)
	}
	file := filepath.Join(filepath.Dir(b.socket), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.broker.Listen(file); err == nil {
		t.Error("a file was taken for a socket")
	}
	if raw, _ := os.ReadFile(file); string(raw) != "precious" {
		t.Error("the file is gone")
	}
}

// Closing in mid-stream must look like a cut, not like the end of the answer.
func TestClosingCutsWhatGoesOn(t *testing.T) {
	b := newBench(t, fakemodel.New(fakemodel.Options{}), nil)
	l, err := b.broker.Listen(b.socket + "2")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", l.Path())
	}}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Do(b.request("POST", "/model/anthropic/v1/messages", say("[[text 1]][[hang]]")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if raw, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("the answer looks whole: %s", raw)
	}
}

func BenchmarkProxiedStream(b *testing.B) {
	fake := httptest.NewServer(fakemodel.New(fakemodel.Options{}))
	defer fake.Close()
	s, _ := NewSigner(testKey, nil)
	br, err := New(Options{
		Signer: s, Bindings: &bindings{committed: committed{epoch: 2, gen: 3, run: "run_one"}},
		Upstreams: map[string]Upstream{ProviderAnthropic: {BaseURL: fake.URL, Key: canary}}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	front := httptest.NewServer(br.Handler())
	defer front.Close()
	token, _ := s.Mint(testBinding, "run_one", time.Now().Add(time.Hour))
	for _, c := range []struct{ name, url string }{{"direct", fake.URL}, {"proxied", front.URL + "/model/anthropic"}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				r, _ := http.NewRequest("POST", c.url+"/v1/messages", strings.NewReader(say("[[text 100]]")))
				r.Header.Set("Authorization", "Bearer "+token)
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil {
					b.Fatal(err)
				}
				_ = res.Body.Close()
			}
		})
	}
	http.DefaultClient.CloseIdleConnections()
	br.client.CloseIdleConnections()
}
