// Package client speaks the engine's public API as any program does: GraphQL over HTTP and over
// graphql-transport-ws, with cursors. The chat command, the end-to-end tests and the benchmarks are built on it.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	requestTimeout = 60 * time.Second
	maxResponse    = 64 << 20
)

// Target is where an engine is and who calls it.
type Target struct {
	URL   string // of the engine, without a trailing slash
	Token string // empty: nobody
}

// Options configure a Client.
type Options struct {
	Target Target
	// Renew, where set, is asked where the engine is now and for a fresh token, each time that a lost connection is
	// made again: an engine that was started anew may listen elsewhere, and tokens expire.
	Renew func(ctx context.Context) (Target, error)
}

// Client is one caller of an engine. It is safe for concurrent use.
type Client struct {
	http  *http.Client
	renew func(ctx context.Context) (Target, error)

	mu     sync.Mutex
	target Target
}

// New makes a client with a connection pool of its own; Close ends it.
func New(o Options) *Client {
	return &Client{
		target: o.Target, renew: o.Renew,
		http: &http.Client{Timeout: requestTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 16}},
	}
}

// Target is where the client believes the engine to be.
func (c *Client) Target() Target {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.target
}

// refresh asks anew where the engine is. What was known stays known when nobody can tell.
func (c *Client) refresh(ctx context.Context) {
	if c.renew == nil {
		return
	}
	t, err := c.renew(ctx)
	if err != nil {
		return // the next attempt to connect says what is wrong
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.target = t
}

// Variables are the variables of an operation: anything that encodes to JSON.
type Variables map[string]any

// request is an operation as both transports send it.
type request struct {
	Query     string    `json:"query"`
	Variables Variables `json:"variables,omitempty"`
}

// response is what the server answers to one operation.
type response struct {
	Data   json.RawMessage `json:"data"`
	Errors Errors          `json:"errors"`
}

// Do runs a query or mutation and decodes the data into out, which may be nil. GraphQL errors are returned as Errors.
func (c *Client) Do(ctx context.Context, query string, vars Variables, out any) error {
	body, err := json.Marshal(request{query, vars})
	if err != nil {
		return fmt.Errorf("failed to encode the operation: %w", err)
	}
	status, raw, err := c.Post(ctx, "application/json", body)
	if err != nil {
		return err
	}
	return decode(status, raw, out)
}

// Post sends a raw body to the GraphQL endpoint and returns what comes back, whatever it is.
func (c *Client) Post(ctx context.Context, contentType string, body []byte) (status int, raw []byte, err error) {
	return c.send(ctx, "/graphql", http.Header{"Content-Type": {contentType}}, bytes.NewReader(body))
}

// send posts a body to a path of the engine. A request that got no whole answer is an error in whose chain is ErrCut.
func (c *Client) send(ctx context.Context, path string, header http.Header, body io.Reader) (status int, raw []byte, err error) {
	t := c.Target()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL+path, body)
	if err != nil {
		return 0, nil, fmt.Errorf("failed to make a request: %w", err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("Accept", "application/json")
	if t.Token != "" {
		req.Header.Set("Authorization", "Bearer "+t.Token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("failed to send the operation: %w: %w", ErrCut, err)
	}
	defer res.Body.Close()
	if raw, err = io.ReadAll(io.LimitReader(res.Body, maxResponse)); err != nil {
		return res.StatusCode, nil, fmt.Errorf("failed to read the response: %w: %w", ErrCut, err)
	}
	return res.StatusCode, raw, nil
}

func decode(status int, raw []byte, out any) error {
	var r response
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("failed to decode the response (status %d): %w: %.200s", status, err, raw)
	}
	if len(r.Errors) > 0 {
		return r.Errors
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(r.Data, out); err != nil {
		return fmt.Errorf("failed to decode the data: %w: %.200s", err, r.Data)
	}
	return nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
