package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

const (
	startOperation    = `mutation($in: StartRunInput!) { startRun(input: $in) { __typename ... on Problem { code message } } }`
	saveOperation     = `mutation($in: SaveAgentInput!) { saveAgent(input: $in) { __typename ... on Problem { code message } } }`
	validateOperation = `query($d: BlueprintInput!, $id: String!) { validateAgent(draft: $d, requestId: $id) { valid } }`
)

// object is a JSON object that is wrong in a way that no typed input can be.
type object map[string]any

// with returns a copy with one more member.
func (o object) with(key string, v any) object {
	out := object{key: v}
	for k, was := range o {
		if k != key {
			out[k] = was
		}
	}
	return out
}

// nested is a JSON value of that many levels.
func nested(levels int) any {
	var v any = "bottom"
	for range levels {
		v = object{"a": v}
	}
	return v
}

// tooDeep is nested deeper than a message may be: over HTTP it is a bad request, and a WebSocket is closed.
const tooDeep = "very deeply nested options"

// TestBadInput sends bad input through every operation, over HTTP and over WebSocket: each is answered with the code
// and names the field, and nothing is written.
func TestBadInput(t *testing.T) {
	ctx := bounded(t)
	engine := sharedEngine(t)
	c := clientAs(t, engine, "clumsy")
	agent := newAgent(ctx, t, c, scripted)
	r, _ := complete(ctx, t, c, agent.ID, "talk", "hello")
	before, err := c.Counts(ctx)
	if err != nil {
		t.Fatal(err)
	}

	run := object{"agentId": agent.ID, "message": object{"text": "hello"}}
	draft := object{"name": "Bad", "slug": "bad", "harness": object{"id": scripted}}
	save := func(d object) enginetest.Variables { return enginetest.Variables{"in": object{"draft": d}} }
	cases := []struct {
		name, query string
		vars        enginetest.Variables
		code, field string
	}{
		{"no text", startOperation, enginetest.Variables{"in": run.with("message", object{"text": ""})}, "BAD_USER_INPUT", "input.message.text"},
		{"oversized text", startOperation, enginetest.Variables{"in": run.with("message", object{"text": strings.Repeat("a", 256<<10+1)})}, "BAD_USER_INPUT", "input.message.text"},
		{"text with a NUL", startOperation, enginetest.Variables{"in": run.with("message", object{"text": "a\x00b"})}, "BAD_USER_INPUT", "input.message.text"},
		{"text that is a number", startOperation, enginetest.Variables{"in": run.with("message", object{"text": 7})}, "BAD_USER_INPUT", "text"},
		{"text that is null", startOperation, enginetest.Variables{"in": run.with("message", object{"text": nil})}, "BAD_USER_INPUT", "text"},
		{"unknown field", startOperation, enginetest.Variables{"in": run.with("shell", "rm")}, "BAD_USER_INPUT", "shell"},
		{"unknown enum value", startOperation, enginetest.Variables{"in": run.with("busyPolicy", "OBLITERATE")}, "BAD_USER_INPUT", "busyPolicy"},
		{"attachment that is a number", startOperation, enginetest.Variables{"in": run.with("message", object{"text": "hello", "attachments": []any{7}})}, "BAD_USER_INPUT", "input.message.attachments[0]"},
		{"conversation id with a line break", startOperation, enginetest.Variables{"in": run.with("conversationId", "a\nb")}, "BAD_USER_INPUT", "input.conversationId"},
		{"conversation id with a bidi override", startOperation, enginetest.Variables{"in": run.with("conversationId", "a\u202eb")}, "BAD_USER_INPUT", "input.conversationId"},
		{"empty idempotency key", startOperation, enginetest.Variables{"in": run.with("idempotencyKey", "")}, "BAD_USER_INPUT", "input.idempotencyKey"},
		{"long idempotency key", startOperation, enginetest.Variables{"in": run.with("idempotencyKey", strings.Repeat("k", 129))}, "BAD_USER_INPUT", "input.idempotencyKey"},
		{"agent id that is none", startOperation, enginetest.Variables{"in": run.with("agentId", "agt_nothing")}, "NOT_FOUND", ""},
		{"agent id with syntax of the authorizer", startOperation, enginetest.Variables{"in": run.with("agentId", "agt_x#owner@user:*")}, "NOT_FOUND", ""},
		{"oversized agent id", startOperation, enginetest.Variables{"in": run.with("agentId", strings.Repeat("a", 100_000))}, "BAD_USER_INPUT", "input.agentId"},
		{"missing variable", startOperation, nil, "BAD_USER_INPUT", "in"},

		{"no name", saveOperation, save(draft.with("name", "")), "BAD_USER_INPUT", "input.draft.name"},
		{"name with a control character", saveOperation, save(draft.with("name", "a\x07b")), "BAD_USER_INPUT", "input.draft.name"},
		{"name with a bidi override", saveOperation, save(draft.with("name", "a\u202eb")), "BAD_USER_INPUT", "input.draft.name"},
		{"long name", saveOperation, save(draft.with("name", strings.Repeat("a", 81))), "BAD_USER_INPUT", "input.draft.name"},
		{"bad slug", saveOperation, save(draft.with("slug", "../../etc")), "BAD_USER_INPUT", "input.draft.slug"},
		{"long description", saveOperation, save(draft.with("description", strings.Repeat("a", 2001))), "BAD_USER_INPUT", "input.draft.description"},
		{"oversized prompt", saveOperation, save(draft.with("prompt", object{"system": strings.Repeat("a", 200_001)})), "BAD_USER_INPUT", "input.draft.prompt.system"},
		{"same variable twice", saveOperation, save(draft.with("prompt", object{"system": "{{a}}", "variables": []object{{"name": "a", "value": "1"}, {"name": "a", "value": "2"}}})), "BAD_USER_INPUT", "input.draft.prompt.variables"},
		{"deeply nested options", saveOperation, save(draft.with("harness", object{"id": scripted, "options": nested(40)})), "BAD_USER_INPUT", "input.draft.harness.options"},
		{tooDeep, saveOperation, save(draft.with("harness", object{"id": scripted, "options": nested(5000)})), "BAD_USER_INPUT", ""}, // over HTTP it is refused before it is read
		{"oversized options", saveOperation, save(draft.with("harness", object{"id": scripted, "options": object{"a": strings.Repeat("a", 40<<10)}})), "BAD_USER_INPUT", "input.draft.harness.options"},
		{"run limit of no time", saveOperation, save(draft.with("limits", object{"maxRunSeconds": 0})), "BAD_USER_INPUT", "input.draft.limits.maxRunSeconds"},
		{"run limit beyond the bound", saveOperation, save(draft.with("limits", object{"maxRunSeconds": 86_401})), "BAD_USER_INPUT", "input.draft.limits.maxRunSeconds"},
		{"run limit beyond an Int", saveOperation, save(draft.with("limits", object{"maxRunSeconds": 1e30})), "BAD_USER_INPUT", "maxRunSeconds"},
		{"unknown model policy", saveOperation, save(draft.with("model", object{"policy": "CHEAPEST"})), "BAD_USER_INPUT", "policy"},
		{"revision without an agent", saveOperation, enginetest.Variables{"in": object{"draft": draft, "expectedRevision": 1}}, "BAD_USER_INPUT", "input.expectedRevision"},
		{"agent without a revision", saveOperation, enginetest.Variables{"in": object{"draft": draft, "agentId": agent.ID}}, "BAD_USER_INPUT", "input.expectedRevision"},
		{"request id with a tab", validateOperation, enginetest.Variables{"d": draft, "id": "a\tb"}, "BAD_USER_INPUT", "requestId"},

		{"page of nothing", `{ runs(first: 0) { edges { cursor } } }`, nil, "BAD_USER_INPUT", "first"},
		{"page too large", `{ runs(first: 101) { edges { cursor } } }`, nil, "BAD_USER_INPUT", "first"},
		{"cursor of nobody", `{ runs(after: "!!") { edges { cursor } } }`, nil, "BAD_USER_INPUT", "after"},
		{"events before the first", `query($id: ID!) { run(id: $id) { events(after: -1) { through } } }`, enginetest.Variables{"id": r.ID}, "BAD_USER_INPUT", "after"},
		{"unknown operation", `{ everything }`, nil, "BAD_USER_INPUT", ""},
		{"not GraphQL", `{{{`, nil, "BAD_USER_INPUT", ""},
		{"deep selection", strings.Repeat("{node(id:\"run_x\")", 60) + "{id}" + strings.Repeat("}", 60), nil, "BAD_USER_INPUT", ""},
		{"fragments that double", doubled(12), nil, "TOO_COMPLEX", ""},
		{"long document", "{" + strings.Repeat(" viewer{subject}", 3000) + "}", nil, "BAD_USER_INPUT", ""},
	}
	for _, tc := range cases {
		for over, ask := range map[string]func(context.Context, *enginetest.Client, string, enginetest.Variables) error{"HTTP": overHTTP, "WebSocket": overSocket} {
			t.Run(tc.name+"/"+over, func(t *testing.T) {
				err := ask(ctx, c, tc.query, tc.vars)
				var closed *websocket.CloseError
				if errors.As(err, &closed) && closed.Code == 4400 && tc.name == tooDeep {
					return // the message is none
				}
				if enginetest.Code(err) != tc.code {
					t.Fatalf("got %.300v, want %s", err, tc.code)
				}
				if got := enginetest.Field(err); !strings.HasPrefix(lastSteps(got, tc.field), tc.field) {
					t.Fatalf("the error names the field %q, want %q: %.300v", got, tc.field, err)
				}
				if s := err.Error(); len(s) > 2000 || !utf8.ValidString(s) {
					t.Fatalf("the error has %d bytes, or is not UTF-8", len(s))
				}
			})
		}
	}
	t.Run("subscription", func(t *testing.T) {
		if _, err := c.Follow(ctx, r.ID, -1); enginetest.Code(err) != "BAD_USER_INPUT" || enginetest.Field(err) != "after" {
			t.Errorf("after -1: got %v, want BAD_USER_INPUT for after", err)
		}
		if events, err := c.Follow(ctx, r.ID, 1<<30); err != nil || len(events) > 0 {
			t.Errorf("after the end: got %v (%v), want the end at once", events, err)
		}
	})
	if after, err := c.Counts(ctx); err != nil || after != before {
		t.Fatalf("there were %+v, now there are %+v (%v): something was written", before, after, err)
	}
}

// lastSteps cuts a path to the steps from the wanted one on: a variable's type error is told before the argument's
// name is known, and then begins with the variable's.
func lastSteps(path, want string) string {
	if i := strings.LastIndex(path, want); i > 0 && path[i-1] == '.' {
		return path[i:]
	}
	return path
}

// doubled is an operation whose fragments spread out to 2^n fields.
func doubled(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{viewer{...f%d}} fragment f0 on Viewer{subject}", n)
	for i := range n {
		fmt.Fprintf(&b, " fragment f%d on Viewer{...f%d ...f%d}", i+1, i, i)
	}
	return b.String()
}

// TestBadRequests sends what is no operation at all to the HTTP endpoint.
func TestBadRequests(t *testing.T) {
	ctx := bounded(t)
	c := clientAs(t, sharedEngine(t), "clumsy")
	query := []byte(`{"query":"{ viewer { subject } }"}`)
	cases := []struct {
		name, contentType string
		body              []byte
		most              int // highest status that is still a refusal of the client's input
	}{
		{"no body", "application/json", nil, 499},
		{"no JSON", "application/json", []byte("hello"), 499},
		{"cut JSON", "application/json", query[:10], 499},
		{"list", "application/json", []byte("[1,2]"), 499},
		{"invalid UTF-8", "application/json", []byte("{\"query\":\"{ viewer { subject } } # \xff\xfe\"}"), 499},
		{"nested JSON", "application/json", []byte(`{"query":"{__typename}","variables":` + strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000) + "}"), 499},
		{"oversized", "application/json", append([]byte(`{"query":"{ viewer { subject } } # `), append(bytes.Repeat([]byte("a"), 2<<20), `"}`...)...), 499},
		{"form of another site", "application/x-www-form-urlencoded", []byte("query={viewer{subject}}"), 499},
		{"plain text of another site", "text/plain", query, 499},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			status, raw, err := c.Post(ctx, tc.contentType, tc.body)
			if err != nil {
				t.Fatal(err)
			}
			var answer struct {
				Data   json.RawMessage
				Errors enginetest.Errors
			}
			_ = json.Unmarshal(raw, &answer) // a refusal may be plain text
			if (status < 400 || status > tc.most) && len(answer.Errors) == 0 {
				t.Fatalf("status %d with %.200s, want a refusal", status, raw)
			}
			if len(answer.Data) > 0 && string(answer.Data) != "null" {
				t.Fatalf("the request was answered with %.200s", raw)
			}
			if len(raw) == 0 || len(raw) > 4<<10 {
				t.Fatalf("the refusal has %d bytes, want a short one", len(raw))
			}
		})
	}
	if status, raw, err := c.Post(ctx, "application/json", query); err != nil || status != http.StatusOK || !bytes.Contains(raw, []byte("clumsy")) {
		t.Fatalf("a good request is answered with %d %s (%v)", status, raw, err)
	}
}

// TestBadFrames sends what is no message to the WebSocket endpoint: the connection is closed, and the engine goes on.
func TestBadFrames(t *testing.T) {
	ctx := bounded(t)
	c := clientAs(t, sharedEngine(t), "clumsy")
	cases := []struct {
		name   string
		kind   int
		frames [][]byte
	}{
		{"no JSON", websocket.TextMessage, [][]byte{[]byte("hello")}},
		{"unknown type", websocket.TextMessage, [][]byte{[]byte(`{"type":"explode"}`)}},
		{"subscribe before init", websocket.TextMessage, [][]byte{[]byte(`{"id":"1","type":"subscribe","payload":{"query":"{ viewer { subject } }"}}`)}},
		{"bad token", websocket.TextMessage, [][]byte{[]byte(`{"type":"connection_init","payload":{"Authorization":"Bearer nonsense"}}`)}},
		{"oversized", websocket.TextMessage, [][]byte{append(append([]byte(`{"type":"connection_init","payload":{"a":"`), bytes.Repeat([]byte("a"), 8<<20)...), `"}}`...)}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			conn, err := c.DialRaw(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for _, f := range tc.frames {
				_ = conn.WriteMessage(tc.kind, f) // the server may close before all of it is sent
			}
			deadline, _ := ctx.Deadline()
			_ = conn.SetReadDeadline(deadline)
			for {
				_, raw, err := conn.ReadMessage()
				if err != nil {
					break
				}
				if bytes.Contains(raw, []byte(`"data"`)) || bytes.Contains(raw, []byte("connection_ack")) {
					t.Fatalf("the frame was answered with %.200s", raw)
				}
			}
			if ctx.Err() != nil {
				t.Fatal("the connection was not closed")
			}
		})
	}
	if err := overSocket(ctx, c, `{ viewer { subject } }`, nil); err != nil {
		t.Fatalf("after all this a good connection gets %v", err)
	}
}
