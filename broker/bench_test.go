package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
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

// answer is a whole response; err is how its body ended, or that there was none: then all else is empty.
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
		return answer{err: err}
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
		t.Fatalf("%d: not an error of a provider: %s (%v)", a.status, a.body, a.err)
	}
	return v.Error.Type, v.Error.Code, v.Error.Message
}

const hello = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"%s"}]}`

func say(text string) string { return fmt.Sprintf(hello, text) }
