package enginetest

import (
	"context"

	"github.com/harness-engine/harness-engine/internal/client"
)

// What the tests see of the client.
type (
	Variables  = client.Variables
	Errors     = client.Errors
	Refusal    = client.Refusal
	Socket     = client.Socket
	Operation  = client.Operation
	Watch      = client.Watch
	Batch      = client.Batch
	Run        = client.Run
	Input      = client.Input
	StartInput = client.StartInput
	Failure    = client.Failure
	Thread     = client.Thread
	Session    = client.Session
	Said       = client.Said
	RunSummary = client.RunSummary
	Agent      = client.Agent
)

// ErrCut: the connection went away without an end of the operation.
var ErrCut = client.ErrCut

// Client is one caller of an engine, with what only tests do.
type Client struct{ *client.Client }

// NewClient makes a client with a connection pool of its own. The empty token makes an unauthenticated one.
func NewClient(url, token string) *Client {
	return &Client{client.New(client.Options{Target: client.Target{URL: url, Token: token}})}
}

// Code returns the stable code of the first GraphQL error in err's chain, or "".
func Code(err error) string { return client.Code(err) }

// Field returns the input field that the first GraphQL error in err's chain names, or "".
func Field(err error) string { return client.Field(err) }

// Follow subscribes after a sequence and reads to the end of the run on one connection.
func (c *Client) Follow(ctx context.Context, runID string, after int64) ([]Event, error) {
	w, err := c.Watch(ctx, runID, after)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return w.Rest(ctx)
}

// Counts is how many agents, sessions and runs the client can list, up to 100 each.
type Counts struct{ Agents, Sessions, Runs int }

// Counts lists everything of the client and counts it.
func (c *Client) Counts(ctx context.Context) (Counts, error) {
	type list = client.Connection[struct {
		ID string `json:"id"`
	}]
	var data struct{ Agents, Sessions, Runs list }
	err := c.Do(ctx, `{
	  agents(first: 100) { edges { node { id } } }
	  sessions(first: 100) { edges { node { id } } }
	  runs(first: 100) { edges { node { id } } }
	}`, nil, &data)
	return Counts{Agents: len(data.Agents.Edges), Sessions: len(data.Sessions.Edges), Runs: len(data.Runs.Edges)}, err
}
