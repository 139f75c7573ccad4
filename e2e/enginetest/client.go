package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	requestTimeout = 60 * time.Second
	maxResponse    = 64 << 20
)

// Client is one caller of an engine. The zero token makes an unauthenticated one.
type Client struct {
	URL   string // of the engine, without a trailing slash
	Token string
	http  *http.Client
}

// NewClient makes a client with a connection pool of its own.
func NewClient(url, token string) *Client {
	return &Client{URL: url, Token: token, http: &http.Client{Timeout: requestTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
}

// Variables are the variables of an operation: anything that encodes to JSON.
type Variables map[string]any

// Error is one error of a GraphQL response.
type Error struct {
	Message    string          `json:"message"`
	Path       []any           `json:"path"`
	Extensions ErrorExtensions `json:"extensions"`
}

// ErrorExtensions is the machine-readable part of an Error.
type ErrorExtensions struct {
	Code  string `json:"code"`
	Field string `json:"field"` // path of the input field, for instance input.message.text
}

// Errors are the errors of a GraphQL response, in order; never empty.
type Errors []Error

// Error implements error.
func (e Errors) Error() string {
	parts := make([]string, len(e))
	for i, x := range e {
		parts[i] = fmt.Sprintf("%s: %s %s", x.Extensions.Code, x.Extensions.Field, x.Message)
	}
	return strings.Join(parts, "; ")
}

// Code returns the stable code of the first GraphQL error in err's chain, or "".
func Code(err error) string {
	var e Errors
	if errors.As(err, &e) && len(e) > 0 {
		return e[0].Extensions.Code
	}
	return ""
}

// Field returns the input field that the first GraphQL error in err's chain names, or "".
func Field(err error) string {
	var e Errors
	if errors.As(err, &e) && len(e) > 0 {
		return e[0].Extensions.Field
	}
	return ""
}

// response is what the server answers to one operation.
type response struct {
	Data   json.RawMessage `json:"data"`
	Errors Errors          `json:"errors"`
}

// Do runs a query or mutation and decodes the data into out, which may be nil. GraphQL errors are returned as Errors.
func (c *Client) Do(ctx context.Context, query string, vars Variables, out any) error {
	body, err := json.Marshal(struct {
		Query     string    `json:"query"`
		Variables Variables `json:"variables,omitempty"`
	}{query, vars})
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/graphql", bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("failed to make a request: %w", err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/json")
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("failed to send the operation: %w", err)
	}
	defer res.Body.Close()
	if raw, err = io.ReadAll(io.LimitReader(res.Body, maxResponse)); err != nil {
		return res.StatusCode, nil, fmt.Errorf("failed to read the response: %w", err)
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
