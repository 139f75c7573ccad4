package broker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// door is one route to a provider.
type door struct {
	method   string
	provider string
	path     string // below /model/<provider>
	upstream string // below the base URL
}

var doors = []door{
	{http.MethodPost, ProviderAnthropic, "/v1/messages", "/v1/messages"},
	{http.MethodPost, ProviderAnthropic, "/v1/messages/count_tokens", "/v1/messages/count_tokens"},
	{http.MethodGet, ProviderAnthropic, "/v1/models", "/v1/models"},
	{http.MethodPost, ProviderOpenAI, "/v1/chat/completions", "/chat/completions"},
	{http.MethodPost, ProviderOpenAI, "/v1/responses", "/responses"},
	{http.MethodGet, ProviderOpenAI, "/v1/models", "/models"},
}

// Headers that pass, both ways; everything else stops here: credentials of either side, cookies, trace context (which
// is not sent to providers), encodings. A name that ends with - is a prefix.
var (
	requestHeaders  = []string{"Accept", "Content-Type", "Anthropic-Version", "Anthropic-Beta", "Openai-Beta"}
	responseHeaders = []string{
		"Content-Type", "Cache-Control", "Retry-After", "Retry-After-Ms", "Request-Id", "X-Request-Id", "X-Should-Retry",
		"Anthropic-Ratelimit-", "X-Ratelimit-",
	}
)

func passHeaders(to, from http.Header, names []string) {
	for key, values := range from {
		for _, name := range names {
			if key == name || strings.HasSuffix(name, "-") && strings.HasPrefix(key, name) {
				to[key] = append([]string(nil), values...)
			}
		}
	}
}

// modelDoor passes one call on: it authorises, adds the provider's key, and streams the answer back. It never sends a
// call twice: a model call has been paid for, and may have been acted on, once its first byte was read.
func (b *Broker) modelDoor(d door) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := b.opts.Now()
		c, no := b.authorize(r)
		t, configured := b.targets[d.provider]
		switch {
		case no != nil:
		case !configured:
			no = &refusal{http.StatusNotFound, "not_found_error", "provider_not_configured",
				"the model provider " + d.provider + " is not configured in this deployment"}
		case r.ContentLength > b.opts.MaxBodyBytes:
			no = tooLarge(b.opts.MaxBodyBytes)
		case !b.calls.begin(c.RunID):
			w.Header().Set("Retry-After", "1")
			no = &refusal{http.StatusTooManyRequests, "rate_limit_error", "too_many_calls", "too many model calls at once"}
		}
		log := b.opts.Logger.With("door", d.provider+d.path, "session", c.SessionID, "run", c.RunID)
		if no != nil {
			b.stats.refused.Add(1)
			log.WarnContext(r.Context(), "model call refused", "status", no.status, "code", no.code)
			b.refuse(w, providers[d.provider], *no)
			return
		}
		defer b.calls.end(c.RunID)
		b.stats.calls.Add(1)
		b.pass(w, r, d, t, c, began, log)
	})
}

func tooLarge(limit int64) *refusal {
	return &refusal{http.StatusRequestEntityTooLarge, "request_too_large", "body_too_large",
		"the request is larger than " + strconv.FormatInt(limit, 10) + " bytes"}
}

// Causes of a context that the proxy itself ends.
var (
	errIdle     = errors.New("the provider went silent")
	errOverstay = errors.New("the capability expired during the call")
)

func (b *Broker) pass(w http.ResponseWriter, r *http.Request, d door, t target, c claims, began time.Time, log *slog.Logger) {
	ctx, stop := context.WithCancelCause(r.Context())
	defer stop(nil)
	// A call does not outlive the capability that it came with.
	overstay := time.AfterFunc(time.UnixMilli(c.ExpiryMs).Sub(began), func() { stop(errOverstay) })
	defer overstay.Stop()

	body := http.MaxBytesReader(w, r.Body, b.opts.MaxBodyBytes)
	out, err := http.NewRequestWithContext(ctx, d.method, t.base.String()+d.upstream, body)
	if err != nil { // base and paths are checked: cannot be
		b.refuse(w, t.provider, refusal{http.StatusInternalServerError, "api_error", "internal", "the call cannot be made"})
		return
	}
	out.ContentLength = r.ContentLength
	if d.method == http.MethodGet {
		out.Body, out.ContentLength = nil, 0
	}
	passHeaders(out.Header, r.Header, requestHeaders)
	out.Header.Set("User-Agent", "harness-engine")
	t.authorize(out.Header, t.key)

	res, err := b.client.Do(out)
	if err != nil {
		b.stats.failed.Add(1)
		no := b.unanswered(ctx, err)
		log.WarnContext(ctx, "model call failed", "status", no.status, "code", no.code, "error", redact(err.Error(), t))
		b.refuse(w, t.provider, no)
		return
	}
	defer func() { _ = res.Body.Close() }()
	log = log.With("status", res.StatusCode)
	passHeaders(w.Header(), res.Header, responseHeaders)
	if res.StatusCode < 200 || res.StatusCode > 299 {
		b.stats.failed.Add(1)
		log.WarnContext(ctx, "model call answered with an error", "took", b.opts.Now().Sub(began))
		b.passFailure(w, res, t)
		return
	}
	n, err := b.stream(ctx, stop, w, res)
	b.stats.bytesOut.Add(n)
	log = log.With("bytes", n, "took", b.opts.Now().Sub(began))
	if err == nil {
		log.DebugContext(ctx, "model call")
		return
	}
	if r.Context().Err() != nil {
		b.stats.left.Add(1)
		log.DebugContext(ctx, "the worker left a model call")
	} else {
		b.stats.cut.Add(1)
		log.WarnContext(ctx, "model call cut", "error", redact(err.Error(), t))
	}
	// The worker must see that the answer is not whole: drop the connection instead of ending the body.
	panic(http.ErrAbortHandler)
}

// unanswered maps what stands in place of a response.
func (b *Broker) unanswered(ctx context.Context, err error) refusal {
	var large *http.MaxBytesError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &large):
		return *tooLarge(large.Limit)
	case errors.Is(context.Cause(ctx), errOverstay):
		return *capabilityRefusals[errExpired]
	case errors.As(err, &timeout) && timeout.Timeout():
		return refusal{http.StatusGatewayTimeout, "timeout_error", "upstream_timeout", "the model provider did not answer in time"}
	}
	return refusal{http.StatusBadGateway, "api_error", "upstream_unreachable", "the model provider cannot be reached"}
}

// stream copies the response, flushed at each read, and returns an error when it is not whole.
func (b *Broker) stream(ctx context.Context, stop context.CancelCauseFunc, w http.ResponseWriter, res *http.Response) (int64, error) {
	w.WriteHeader(res.StatusCode)
	rc := http.NewResponseController(w)
	idle := time.AfterFunc(b.opts.IdleTimeout, func() { stop(errIdle) })
	defer idle.Stop()
	buf := make([]byte, 32<<10)
	var sent int64
	for {
		n, err := res.Body.Read(buf)
		idle.Reset(b.opts.IdleTimeout)
		if n > 0 {
			// A writer without deadlines (a test's) has no slow reader either.
			_ = rc.SetWriteDeadline(time.Now().Add(b.opts.IdleTimeout))
			if _, err := w.Write(buf[:n]); err != nil {
				return sent, err
			}
			if err := rc.Flush(); err != nil {
				return sent, err
			}
			sent += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF):
			return sent, nil
		case err != nil && ctx.Err() != nil:
			return sent, context.Cause(ctx)
		case err != nil:
			return sent, err
		}
	}
}

// refuse answers in the form of the provider's API.
func (b *Broker) refuse(w http.ResponseWriter, p provider, no refusal) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(no.status)
	_ = json.NewEncoder(w).Encode(p.failure(no.kind, no.code, no.message)) // the worker is gone: nobody to tell
}
