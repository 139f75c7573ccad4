// Package broker is the worker edge: the listener that workers call with a capability. Its first door is the model
// proxy, which adds the provider's key, so that a worker, and the model-directed code beside it, never hold one.
package broker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Defaults of Options.
const (
	DefaultMaxBodyBytes  = 32 << 20
	DefaultMaxCalls      = 256
	DefaultMaxCallsOfRun = 16
	DefaultHeaderTimeout = 5 * time.Minute
	DefaultIdleTimeout   = 5 * time.Minute
)

// ErrUnknownSession is what a Bindings returns for a session that does not exist.
var ErrUnknownSession = errors.New("broker: unknown session")

// Bindings reads the authority for a conversation.
type Bindings interface {
	// Committed is a deciding read of the binding document: its epoch, the generation of the worker that serves it and
	// its active run (empty where there is none). ErrUnknownSession (wrapped) when there is no such session.
	Committed(ctx context.Context, sessionID string) (epoch, sandboxGen int64, activeRun string, err error)
}

// Options configure a Broker. Signer and Bindings are required.
type Options struct {
	Signer    *Signer
	Bindings  Bindings
	Upstreams map[string]Upstream // by provider; see UpstreamsFromEnv

	MaxBodyBytes  int64         // of one request; 0: DefaultMaxBodyBytes
	MaxCalls      int           // at once; 0: DefaultMaxCalls
	MaxCallsOfRun int           // at once of one run; 0: DefaultMaxCallsOfRun
	HeaderTimeout time.Duration // until the provider's response headers; 0: DefaultHeaderTimeout
	IdleTimeout   time.Duration // between two reads of a response, and of one write to the worker; 0: DefaultIdleTimeout

	Logger *slog.Logger     // nil: slog.Default()
	Now    func() time.Time // nil: time.Now
}

// Broker serves workers. Make one with New, and use Handler or Listen.
type Broker struct {
	opts    Options
	targets map[string]target
	client  *http.Client
	calls   *calls
	stats   stats
	mux     *http.ServeMux
}

// New checks the options and returns a Broker. It starts nothing.
func New(o Options) (*Broker, error) {
	if o.Signer == nil || o.Bindings == nil {
		return nil, errors.New("broker: a signer and bindings are required")
	}
	targets, err := newTargets(o.Upstreams)
	if err != nil {
		return nil, err
	}
	if o.MaxBodyBytes <= 0 {
		o.MaxBodyBytes = DefaultMaxBodyBytes
	}
	if o.MaxCalls <= 0 {
		o.MaxCalls = DefaultMaxCalls
	}
	if o.MaxCallsOfRun <= 0 {
		o.MaxCallsOfRun = DefaultMaxCallsOfRun
	}
	if o.HeaderTimeout <= 0 {
		o.HeaderTimeout = DefaultHeaderTimeout
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = DefaultIdleTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	b := &Broker{opts: o, targets: targets, calls: newCalls(o.MaxCalls, o.MaxCallsOfRun), mux: http.NewServeMux()}
	b.client = &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: o.HeaderTimeout,
			MaxIdleConnsPerHost:   32,
			IdleConnTimeout:       90 * time.Second,
			ForceAttemptHTTP2:     true,
			DisableCompression:    true, // a compressed stream would be held back by the decoder
		},
		// A redirect would carry the key to wherever the answer says.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	for _, d := range doors {
		b.mux.Handle(d.method+" /model/"+d.provider+d.path, b.modelDoor(d))
	}
	b.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		b.stats.refused.Add(1)
		b.refuse(w, providers[ProviderOpenAI], refusal{http.StatusNotFound, "not_found_error", "unknown_door", "the broker has no such door"})
	})
	return b, nil
}

// Handler serves the broker's doors.
func (b *Broker) Handler() http.Handler { return b.mux }
