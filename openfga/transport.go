package openfga

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
)

const (
	// maxResponse bounds a response body. A page of 100 tuples or 50 models is far below.
	maxResponse = 8 << 20
	maxConns    = 64
)

// pauses are the waits before a read is repeated; there are as many repetitions.
var pauses = []time.Duration{20 * time.Millisecond, 100 * time.Millisecond}

// statusError is an HTTP status that is no success.
type statusError struct {
	status int
	text   string // what the server said, cut
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.text) }

// ResponseStatusCode is the method by which the SDK's errors tell it too.
func (e *statusError) ResponseStatusCode() int { return e.status }

// read runs an idempotent request under the client's timeout and repeats it, a bounded number of times, while the
// server is not there or overloaded. Whatever fails is authz.ErrUnavailable.
func (c *Client) read(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for attempt := 0; ; attempt++ {
		err := request(ctx)
		if err == nil {
			return nil
		}
		if attempt == len(pauses) || ctx.Err() != nil || !repeatable(err) {
			return unavailable(err)
		}
		timer := time.NewTimer(pauses[attempt])
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return unavailable(err)
		}
	}
}

// write runs a request once under the client's timeout.
func (c *Client) write(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := request(ctx); err != nil {
		return unavailable(err)
	}
	return nil
}

func unavailable(err error) error {
	if errors.Is(err, authz.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", authz.ErrUnavailable, err)
}

// repeatable: no answer at all, or one that says "later".
func repeatable(err error) bool {
	status, ok := statusOf(err)
	return !ok || status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

func statusOf(err error) (int, bool) {
	var s interface{ ResponseStatusCode() int }
	if !errors.As(err, &s) {
		return 0, false
	}
	return s.ResponseStatusCode(), true
}

// call is one JSON request; in is nil for none, out is nil to ignore the answer.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("failed to encode request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return fmt.Errorf("failed to make request: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("failed to read response: %w", err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return &statusError{status: response.StatusCode, text: string(b[:min(len(b), 512)])}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("failed to decode response: %w", err)
	}
	return nil
}

// newHTTPClient returns a client of its own pool that bears the token, reads bounded bodies and follows no redirect,
// since that would carry the token elsewhere.
func newHTTPClient(token string) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxConnsPerHost = maxConns
	transport.MaxIdleConnsPerHost = maxConns
	return &http.Client{
		Transport:     &bearer{token: token, next: transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bearer adds the token to requests and a limit to responses.
type bearer struct {
	token string
	next  *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	response, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = http.MaxBytesReader(nil, response.Body, maxResponse)
	return response, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the pool.
func (b *bearer) CloseIdleConnections() { b.next.CloseIdleConnections() }

func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("no valid URL") // url.Error would repeat what may hold a secret
	}
	return u, nil
}
