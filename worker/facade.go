package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"
)

// Bounds of the facade.
const (
	maxFacadeCalls = 32
	maxModelBody   = 32 << 20 // of a request
)

// facade is the model endpoint that the harness sees: a listener on the loopback interface that hands every request on
// to the broker's unix socket (forward.go) with the capability of the current run. A secret path segment keeps other users of the
// machine out. The provider's key is on the broker's side; what the harness sends as a key is dropped.
type facade struct {
	listener net.Listener
	server   *http.Server
	prefix   string // "/<secret>"
	log      *slog.Logger
	slots    chan struct{}
	served   chan struct{}

	wait       time.Duration // defaultFacadeWait, less in tests
	probeTime  time.Duration // defaultProbeTime, less in tests
	probePause time.Duration // between two probes; likewise

	life    context.Context // ends with close
	endLife context.CancelFunc
	probes  sync.WaitGroup

	mu     sync.Mutex
	broker string              // path of the broker's socket
	grant  *grant              // of the current run, or nil
	sent   map[*call]struct{}  // that wait for their answer or its end
	probed map[string]struct{} // sockets of brokers that are being watched
}

// grant lets the harness call the model during one turn.
type grant struct {
	turn       context.Context // its end ends calls in flight
	capability string
}

func newFacade(log *slog.Logger) (*facade, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("failed to listen for model calls: %w", err)
	}
	f := &facade{
		listener: l, prefix: "/" + rand.Text(), log: log,
		slots: make(chan struct{}, maxFacadeCalls), served: make(chan struct{}),
		wait: defaultFacadeWait, probeTime: defaultProbeTime, probePause: defaultProbeTime,
		sent: map[*call]struct{}{}, probed: map[string]struct{}{},
	}
	f.life, f.endLife = context.WithCancel(context.Background())
	proxy := &httputil.ReverseProxy{
		Rewrite:       f.rewrite,
		FlushInterval: -1, // every write is passed on at once
		Transport:     newForwarder(f),
		ErrorHandler:  f.fail,
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	f.server = &http.Server{
		Handler:           f.guard(proxy),
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(f.served)
		_ = f.server.Serve(l)
	}()
	return f, nil
}

// url is the base URL for drivers.
func (f *facade) url() string { return "http://" + f.listener.Addr().String() + f.prefix + "/model" }

// allow lets calls through for one turn. They are cut when the turn ends.
func (f *facade) allow(turn context.Context, capability string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.grant = &grant{turn: turn, capability: capability}
}

// deny ends what allow began.
func (f *facade) deny() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.grant = nil
}

func (f *facade) close() {
	f.deny()
	f.endLife()
	_ = f.server.Close()
	<-f.served
	f.probes.Wait()
}

func (f *facade) current() (grant, string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.grant == nil || f.grant.turn.Err() != nil {
		return grant{}, "", false
	}
	return *f.grant, f.broker, true
}

type callKey struct{}

// guard admits calls that know the secret, while a turn is running.
func (f *facade) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A path that climbs could leave the model's door on the broker's side.
		if !strings.HasPrefix(r.URL.Path, f.prefix+"/model/") || path.Clean(r.URL.Path) != r.URL.Path {
			refuse(w, http.StatusNotFound, "not_found", "no such endpoint")
			return
		}
		g, broker, ok := f.current()
		switch {
		case !ok:
			refuse(w, http.StatusForbidden, "no_run", "no run is active")
			return
		case broker == "":
			refuse(w, http.StatusServiceUnavailable, "no_broker", "there is no model endpoint")
			return
		}
		select {
		case f.slots <- struct{}{}:
			defer func() { <-f.slots }()
		default:
			refuse(w, http.StatusTooManyRequests, "too_many", "too many model calls at once")
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(g.turn, cancel)()
		c := &call{turn: g.turn, cut: cancel}
		defer f.over(c)
		r = r.WithContext(context.WithValue(ctx, callKey{}, c))
		r.Body = http.MaxBytesReader(w, r.Body, maxModelBody)
		next.ServeHTTP(w, r)
	})
}

// credentialHeaders is what a harness may send as a key. None of it leaves the sandbox.
var credentialHeaders = []string{
	"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Cookie",
	"Harness-Secret", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
}

// credentialParams is the same for queries.
var credentialParams = []string{"key", "api_key", "access_token"}

func (f *facade) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "http", "broker", "broker"
	p.Out.URL.Path = strings.TrimPrefix(p.In.URL.Path, f.prefix)
	p.Out.URL.RawPath = "" // escaped anew
	for _, h := range credentialHeaders {
		p.Out.Header.Del(h)
	}
	p.Out.URL.RawQuery = withoutCredentials(p.In.URL.Query())
}

func withoutCredentials(q url.Values) string {
	for _, p := range credentialParams {
		q.Del(p)
	}
	return q.Encode()
}

// fail answers for a call without an answer. Where nothing was sent, the harness is told so. Where something was, nobody
// knows what became of it: like after the first byte the connection is cut, so that a cut stays a cut.
func (f *facade) fail(w http.ResponseWriter, r *http.Request, err error) {
	f.log.Warn("model call failed", "error", err)
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		refuse(w, http.StatusRequestEntityTooLarge, "too_large", "the request is too large")
		return
	}
	if r.Context().Err() != nil || !errors.Is(err, errNotSent) {
		panic(http.ErrAbortHandler)
	}
	refuse(w, http.StatusServiceUnavailable, "unavailable", "the model endpoint cannot be reached")
}

// refuse answers in the form that model SDKs read.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"error":{"type":%q,"message":%q}}`, code, message)
}
