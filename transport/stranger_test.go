package transport_test

import (
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/graph"
)

// entries are the operations of every root field with @authz, about what belongs to alice. $agent, $session and $run
// are put in.
var entries = map[string]string{
	"Query.harnesses":             `{ harnesses { id } }`,
	"Query.harness":               `{ harness(id: "scripted") { id } }`,
	"Query.catalogRevision":       `{ catalogRevision }`,
	"Query.agents":                `{ agents { edges { node { id } } } }`,
	"Query.agent":                 `{ agent(id: "$agent") { id name } }`,
	"Query.validateAgent":         `{ validateAgent(draft: {name: "n", slug: "s"}, requestId: "r", agentId: "$agent") { valid } }`,
	"Query.sessions":              `{ sessions { edges { node { id } } } }`,
	"Query.session":               `{ session(id: "$session") { id } }`,
	"Query.runs":                  `{ runs { edges { node { id } } } }`,
	"Query.run":                   `{ run(id: "$run") { id events { through } } }`,
	"Query.node":                  `{ node(id: "$run") { id } }`,
	"Mutation.saveAgent":          `mutation { saveAgent(input: {agentId: "$agent", expectedRevision: 2, draft: {name: "n", slug: "s"}}) { __typename } }`,
	"Mutation.startRun":           `mutation { startRun(input: {agentId: "$agent", message: {text: "hi"}}) { __typename } }`,
	"Mutation.cancelRun":          `mutation { cancelRun(runId: "$run") { id } }`,
	"Mutation.clearSession":       `mutation { clearSession(sessionId: "$session") { id } }`,
	"Mutation.resumeRun":          `mutation { resumeRun(input: {interruptId: "$interrupt", revision: 1, decision: {dismiss: true}}) { __typename } }`,
	"Subscription.sessionEvents":  `subscription { sessionEvents(sessionId: "$session") { ord } }`,
	"Subscription.sessionChanged": `subscription { sessionChanged { id } }`,
	"Subscription.catalogChanged": `subscription { catalogChanged { revision } }`,
	"Subscription.runEvents":      `subscription { runEvents(runId: "$run") { through } }`,
	"Query.node agent":            `{ node(id: "$agent") { id } }`,
	"Query.node session":          `{ node(id: "$session") { id } }`,
	"Query.validateAgent new":     `{ validateAgent(draft: {name: "n", slug: "s"}, requestId: "r") { valid } }`,
	"Mutation.saveAgent new":      `mutation { saveAgent(input: {draft: {name: "n", slug: "s"}}) { __typename } }`,
}

// onPlatform are the entries that ask the platform, where members may pass and a stranger to the platform is FORBIDDEN.
var onPlatform = map[string]bool{
	"Query.harnesses": true, "Query.harness": true, "Query.catalogRevision": true, "Query.agents": true, "Query.sessions": true,
	"Query.runs": true, "Subscription.sessionChanged": true, "Subscription.catalogChanged": true, "Query.validateAgent new": true, "Mutation.saveAgent new": true,
}

// one runs an operation by whatever carries it, and returns the first error's code.
func (w *world) one(subject, query string) (code string) {
	w.t.Helper()
	if !strings.HasPrefix(query, "subscription") {
		return w.ask(subject, query, nil).code()
	}
	if subject == "" {
		r := w.stream("", query)
		return r.code()
	}
	c := w.connect(w.token(subject))
	c.send(frame{ID: "1", Type: "subscribe", Payload: raw(vars{"query": query})})
	f := c.next()
	for _, code := range []string{"NOT_FOUND", "FORBIDDEN", "UNAUTHENTICATED"} {
		if f.Type == "error" && strings.Contains(string(f.Payload), `"`+code+`"`) {
			return code
		}
	}
	return f.Type
}

// Every @authz entry, run by a stranger and by nobody: nothing of the domain is read before the check, nothing is
// written, and what comes back does not tell whether the object exists.
func TestStrangersReadNothing(t *testing.T) {
	w := newWorld(t, option{})
	a := w.agent("alice", "helper")
	l := w.log("alice", a)
	l.append(started())
	fill := strings.NewReplacer("$agent", a, "$session", l.session, "$run", l.id, "$interrupt", id.OfInterrupt(l.id)).Replace
	absent := strings.NewReplacer("$agent", "agt_none", "$session", "ses_none", "$run", "run_none", "$interrupt", "int_none").Replace

	checked := 0
	for _, root := range []string{"Query", "Mutation", "Subscription"} {
		for _, field := range graph.NewExecutableSchema(graph.Config{}).Schema().Types[root].Fields {
			if name := root + "." + field.Name; field.Name[0] != '_' && field.Directives.ForName("authz") != nil {
				if _, ok := entries[name]; !ok {
					t.Errorf("no operation for %s", name)
				}
				checked++
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d entries found", checked)
	}
	for name, query := range entries {
		want, stranger := "NOT_FOUND", "bob"
		if onPlatform[name] {
			want, stranger = "FORBIDDEN", "mallory"
		}
		w.spy.take()
		if code := w.one(stranger, fill(query)); code != want {
			t.Errorf("%s by a stranger: %q, want %s", name, code, want)
		}
		if code := w.one("", fill(query)); code != "UNAUTHENTICATED" {
			t.Errorf("%s by nobody: %q", name, code)
		}
		if !onPlatform[name] {
			if code := w.one("alice", absent(query)); code != want {
				t.Errorf("%s by the owner of nothing: %q, want %s", name, code, want)
			}
		}
		if ops := w.spy.take(); len(ops) > 0 {
			t.Errorf("%s: the store was asked %v", name, ops)
		}
	}
	// The same operations by who may: the test above would be empty if they could not work.
	for _, name := range []string{"Query.agent", "Query.session", "Query.run", "Query.node", "Query.validateAgent", "Subscription.runEvents"} {
		if code := w.one("alice", fill(entries[name])); code != "" && code != "next" {
			t.Errorf("%s by the owner: %q", name, code)
		}
	}
	if ops := w.spy.take(); len(ops) == 0 {
		t.Error("the spy sees nothing")
	}
}

// The text of a denial is the same whether the object exists or not.
func TestDenialsLookAlike(t *testing.T) {
	w := newWorld(t, option{})
	l := w.log("alice", w.agent("alice", "helper"))
	const query = `query($id: ID!) { run(id: $id) { id } }`
	there, gone := w.ask("bob", query, vars{"id": l.id}), w.ask("bob", query, vars{"id": "run_none"})
	if string(raw(there.Errors)) != string(raw(gone.Errors)) {
		t.Errorf("%s and %s", raw(there.Errors), raw(gone.Errors))
	}
}
