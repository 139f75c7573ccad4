package e2e

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// TestStranger asks for everything that somebody else owns, by query, mutation and subscription, and gets the answer
// that something would get that does not exist. Beside it the owner asks the same and gets it, so that the test fails
// too when an operation is merely broken.
func TestStranger(t *testing.T) {
	ctx := bounded(t)
	engine := sharedEngine(t)
	owner := clientOf(t, engine)
	stranger := clientAs(t, engine, "mallory")
	nobody := enginetest.NewClient(engine.URL(), "")
	t.Cleanup(nobody.Close)
	agent := newAgent(ctx, t, owner, scripted)
	r, _ := complete(ctx, t, owner, agent.ID, "", "hello")

	draft := enginetest.Variables{"name": "Stolen", "slug": "stolen"}
	// Harmless operations come first, so that the owner's turn at the end changes nothing for those before.
	cases := []struct {
		name, query string
		vars        enginetest.Variables
	}{
		{"agent", `query($id: ID!) { agent(id: $id) { id } }`, enginetest.Variables{"id": agent.ID}},
		{"session", `query($id: ID!) { session(id: $id) { id } }`, enginetest.Variables{"id": r.SessionID}},
		{"run", `query($id: ID!) { run(id: $id) { id } }`, enginetest.Variables{"id": r.ID}},
		{"events", `query($id: ID!) { run(id: $id) { events { events { type } } } }`, enginetest.Variables{"id": r.ID}},
		{"node of an agent", `query($id: ID!) { node(id: $id) { id } }`, enginetest.Variables{"id": agent.ID}},
		{"node of a session", `query($id: ID!) { node(id: $id) { id } }`, enginetest.Variables{"id": r.SessionID}},
		{"node of a run", `query($id: ID!) { node(id: $id) { id } }`, enginetest.Variables{"id": r.ID}},
		{"validateAgent", `query($id: ID!, $d: BlueprintInput!) { validateAgent(agentId: $id, draft: $d, requestId: "q") { valid } }`,
			enginetest.Variables{"id": agent.ID, "d": draft}},
		{"cancelRun", `mutation($id: ID!) { cancelRun(runId: $id) { id } }`, enginetest.Variables{"id": r.ID}},
		{"startRun", `mutation($in: StartRunInput!) { startRun(input: $in) { __typename } }`,
			enginetest.Variables{"in": enginetest.StartInput{AgentID: agent.ID, Message: enginetest.Input{Text: "hello"}}}},
		{"clearSession", `mutation($id: ID!) { clearSession(sessionId: $id) { id } }`, enginetest.Variables{"id": r.SessionID}},
		{"saveAgent", `mutation($in: SaveAgentInput!) { saveAgent(input: $in) { __typename } }`,
			enginetest.Variables{"in": enginetest.SaveInput{AgentID: agent.ID, ExpectedRevision: agent.Revision, Draft: enginetest.Draft{Name: "Stolen", Slug: "stolen"}}}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			for over, ask := range map[string]func(context.Context, *enginetest.Client, string, enginetest.Variables) error{"HTTP": overHTTP, "WebSocket": overSocket} {
				if err := ask(ctx, stranger, tc.query, tc.vars); enginetest.Code(err) != "NOT_FOUND" {
					t.Errorf("a stranger over %s gets %v, want NOT_FOUND", over, err)
				}
			}
			if err := overHTTP(ctx, nobody, tc.query, tc.vars); enginetest.Code(err) != "UNAUTHENTICATED" {
				t.Errorf("a caller without a token gets %v, want UNAUTHENTICATED", err)
			}
			if err := overHTTP(ctx, owner, tc.query, tc.vars); err != nil {
				t.Errorf("the owner gets %v", err)
			}
		})
	}
	t.Run("runEvents", func(t *testing.T) {
		if _, err := stranger.Follow(ctx, r.ID, 0); enginetest.Code(err) != "NOT_FOUND" {
			t.Errorf("a stranger's subscription ends with %v, want NOT_FOUND", err)
		}
		if _, err := owner.Follow(ctx, r.ID, 0); err != nil {
			t.Errorf("the owner gets %v", err)
		}
	})
	t.Run("lists", func(t *testing.T) {
		if n, err := stranger.Counts(ctx); err != nil || n != (enginetest.Counts{}) {
			t.Errorf("a stranger lists %+v (%v), want nothing", n, err)
		}
		if n, err := owner.Counts(ctx); err != nil || n.Agents == 0 || n.Sessions == 0 || n.Runs == 0 {
			t.Errorf("the owner lists %+v (%v)", n, err)
		}
	})
}

func overHTTP(ctx context.Context, c *enginetest.Client, query string, vars enginetest.Variables) error {
	return c.Do(ctx, query, vars, nil)
}

// overSocket runs an operation over a WebSocket and returns its first error.
func overSocket(ctx context.Context, c *enginetest.Client, query string, vars enginetest.Variables) error {
	s, err := c.Dial(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	op, err := s.Subscribe(query, vars)
	if err != nil {
		return err
	}
	for {
		if _, err := op.Next(ctx, nil); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
