package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// maxAnswer bounds what Send reads.
const maxAnswer = 32 << 20

// Answer is what a path beside /graphql answered.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Problem is the code and the field of a refusal (RFC 9457), both empty where the answer is none.
func (a Answer) Problem() (code, field string) {
	var p struct {
		Code  string `json:"code"`
		Field string `json:"field"`
	}
	_ = json.Unmarshal(a.Body, &p) // what is no JSON is no refusal
	return p.Code, p.Field
}

// Send makes one plain HTTP request as the client's caller and returns whatever comes back.
func (c *Client) Send(ctx context.Context, method, path string, header http.Header, body []byte) (Answer, error) {
	target := c.Target()
	req, err := http.NewRequestWithContext(ctx, method, target.URL+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, fmt.Errorf("failed to make a request: %w", err)
	}
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if target.Token != "" {
		req.Header.Set("Authorization", "Bearer "+target.Token)
	}
	// Not the header "Connection: close" instead: a server then drops what it refuses without reading it to the end, and
	// the answer may be lost with it.
	var connections http.Transport
	defer connections.CloseIdleConnections()
	res, err := (&http.Client{Transport: &connections}).Do(req)
	if err != nil {
		return Answer{}, fmt.Errorf("failed to send %s %s: %w", method, path, err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return Answer{}, fmt.Errorf("failed to read the answer to %s %s: %w", method, path, err)
	}
	return Answer{Status: res.StatusCode, Header: res.Header, Body: raw}, nil
}
