package transport_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/event"
)

func TestViewerAndCatalog(t *testing.T) {
	w := newWorld(t, option{})
	const query = `{ viewer { subject environment canCreateAgent canIntrospect } }`
	if r := w.must("", query, nil); r.at("viewer") != nil {
		t.Errorf("nobody is %v", r.Data)
	}
	if r := w.must("alice", query, nil); r.at("viewer", "subject") != "alice" || r.at("viewer", "canCreateAgent") != true || r.at("viewer", "canIntrospect") != false {
		t.Errorf("alice is %v", r.Data)
	}
	r := w.must("alice", `{ catalogRevision harness(id: "gone") { id } harnesses { id availability availabilityDetail enabled certification revision optionsSchema
		models { provider id } capabilities { key level } supplyChain { packages licence } } }`, nil)
	if r.at("harness") != nil || r.at("harnesses", 0, "id") != "other" || r.at("harnesses", 1, "certification") != "EXPERIMENTAL" ||
		r.at("harnesses", 1, "availability") != "AVAILABLE" || r.at("harnesses", 1, "capabilities", 0, "level") != "NATIVE" ||
		r.at("harnesses", 0, "optionsSchema", "type") != "object" || r.at("harnesses", 0, "availabilityDetail") != nil {
		t.Errorf("catalog: %v", r.Data)
	}
	if r := w.must("ada", `{ harness(id: "scripted") { availabilityDetail } }`, nil); r.at("harness", "availabilityDetail") != "ready" {
		t.Errorf("an operator sees %v", r.Data)
	}
}

func TestAgentsFromDraftToVersions(t *testing.T) {
	w := newWorld(t, option{})
	const validate = `query($draft: BlueprintInput!, $id: ID) { validateAgent(draft: $draft, requestId: "r-1", agentId: $id) {
		requestId valid fingerprint catalogRevision issues { path code severity } normalised { name slug harness { id options } } capabilities { key } } }`

	w.spy.take()
	r := w.must("alice", validate, vars{"draft": draft("helper")})
	if r.at("validateAgent", "requestId") != "r-1" || r.at("validateAgent", "valid") != true || len(w.spy.take()) != 0 {
		t.Errorf("report: %v", r.Data)
	}
	fingerprint, revision := r.at("validateAgent", "fingerprint"), r.at("validateAgent", "catalogRevision")
	unknown := draft("helper")
	unknown["harness"] = vars{"id": "gone"}
	if r := w.must("alice", validate, vars{"draft": unknown}); r.at("validateAgent", "valid") != false ||
		r.at("validateAgent", "issues", 0, "code") != "HARNESS_UNKNOWN" || r.at("validateAgent", "normalised", "harness", "id") != "gone" {
		t.Errorf("unknown harness: %v", r.Data)
	}

	save := func(input vars) reply { return w.must("alice", saveAgent, vars{"input": input}) }
	r = save(vars{"draft": draft("helper"), "fingerprint": fingerprint, "catalogRevision": revision})
	agentID := r.at("saveAgent", "agent", "id")
	if r.at("saveAgent", "version", "fingerprint") != fingerprint || r.at("saveAgent", "version", "number") != 1.0 {
		t.Fatalf("saved: %v", r.Data)
	}
	current := r.at("saveAgent", "agent", "revision")

	// Each way not to be saved is a result, and writes nothing.
	w.spy.take()
	for want, input := range map[string]vars{
		"ValidationStale":  {"draft": draft("second"), "fingerprint": "0000"},
		"ValidationFailed": {"draft": unknown},
		"RevisionConflict": {"agentId": agentID, "expectedRevision": 999, "draft": draft("helper")},
	} {
		if r := save(input); r.at("saveAgent", "__typename") != want || r.at("saveAgent", "code") == "" {
			t.Errorf("%s: %v", want, r.Data)
		}
	}
	if changed := writes(w.spy.take()); len(changed) > 0 {
		t.Errorf("wrote %v", changed)
	}
	if r := save(vars{"draft": draft("helper")}); r.at("saveAgent", "__typename") != "SlugTaken" {
		t.Errorf("slug: %v", r.Data)
	}

	second := draft("helper")
	second["name"] = "Better helper"
	if r := save(vars{"agentId": agentID, "expectedRevision": current, "draft": second}); r.at("saveAgent", "agent", "version") != 2.0 {
		t.Errorf("second version: %v", r.Data)
	}
	r = w.must("alice", `query($id: ID!) { agent(id: $id) { name slug owner version harness { id } viewerCan { use viewConfig edit }
		config { name slug description harness { id profileId options } prompt { system variables { name value } } model { policy provider id } limits { maxRunSeconds } }
		versions(first: 1) { edges { cursor node { number config { name } } } pageInfo { hasNextPage endCursor } } } }`, vars{"id": agentID})
	if r.at("agent", "name") != "Better helper" || r.at("agent", "viewerCan", "edit") != true || r.at("agent", "harness", "id") != "scripted" ||
		r.at("agent", "versions", "edges", 0, "node", "number") != 2.0 || r.at("agent", "versions", "pageInfo", "hasNextPage") != true {
		t.Errorf("agent: %v", r.Data)
	}
	// What is shown is taken back as it is.
	config := r.at("agent", "config").(map[string]any)
	if r := w.must("alice", validate, vars{"draft": config, "id": agentID}); r.at("validateAgent", "valid") != true {
		t.Errorf("round trip: %v", r.Data)
	}
	r = w.must("alice", `query($id: ID!, $after: String) { agent(id: $id) { versions(after: $after) { edges { node { number config { name } } } pageInfo { hasNextPage hasPreviousPage } } } }`,
		vars{"id": agentID, "after": r.at("agent", "versions", "pageInfo", "endCursor")})
	if r.at("agent", "versions", "edges", 0, "node", "config", "name") != "Helper" || r.at("agent", "versions", "edges", 1) != nil {
		t.Errorf("first version: %v", r.Data)
	}
}

func TestAgentsArePagedNewestFirst(t *testing.T) {
	w := newWorld(t, option{})
	var want []any
	for i := range 5 {
		want = append([]any{w.agent("alice", fmt.Sprintf("a-%d", i))}, want...)
	}
	w.agent("bob", "bobs")
	var got []any
	var after any
	for range 4 {
		r := w.must("alice", `query($after: String) { agents(first: 2, after: $after) { edges { node { id name config { slug } } } pageInfo { hasNextPage endCursor } } }`, vars{"after": after})
		edges, _ := r.at("agents", "edges").([]any)
		for i := range edges {
			got = append(got, r.at("agents", "edges", i, "node", "id"))
		}
		if after = r.at("agents", "pageInfo", "endCursor"); r.at("agents", "pageInfo", "hasNextPage") != true {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Who may only run an agent sees that it is there, and nothing of what it is told.
func TestARunnerSeesNoConfiguration(t *testing.T) {
	w := newWorld(t, option{})
	a := w.agent("alice", "helper")
	tuples := append(authz.AgentTuples(a, "alice"), authz.Tuple{User: "user:rita", Relation: authz.RelationRunner, Object: "agent:" + a})
	if err := w.client.Apply(w.ctx, authz.Agent(a), tuples); err != nil {
		t.Fatal(err)
	}
	r := w.must("rita", `query($id: ID!) { agent(id: $id) { name config { prompt { system } } versions { edges { node { number } } } viewerCan { use viewConfig edit } } }`, vars{"id": a})
	if r.at("agent", "name") != "Helper" || r.at("agent", "config") != nil || r.at("agent", "versions") != nil ||
		r.at("agent", "viewerCan", "use") != true || r.at("agent", "viewerCan", "edit") != false {
		t.Errorf("rita sees %v", r.Data)
	}
	if r := w.ask("rita", saveAgent, vars{"input": vars{"agentId": a, "expectedRevision": 1, "draft": draft("mine")}}); r.code() != "NOT_FOUND" {
		t.Errorf("rita saves: %+v", r)
	}
	// Her own conversation with it outlives the right to see the agent.
	runID, sessionID := w.start("rita", a, "c", "hi")
	if err := w.client.Apply(w.ctx, authz.Agent(a), authz.AgentTuples(a, "alice")); err != nil {
		t.Fatal(err)
	}
	w.until(func() bool { // the authorization server repeats an answer for up to 2 seconds
		r = w.must("rita", `query($s: ID!, $r: ID!) { session(id: $s) { agentId agent { id } } run(id: $r) { agentId agent { id } session { id } } }`, vars{"s": sessionID, "r": runID})
		return r.at("session", "agent") == nil && r.at("run", "agent") == nil
	})
	if r.at("session", "agentId") != a || r.at("run", "agent") != nil || r.at("run", "session", "id") != sessionID {
		t.Errorf("after the end: %v", r.Data)
	}
}

func TestRunsFromStartToCancel(t *testing.T) {
	w := newWorld(t, option{})
	a := w.agent("alice", "helper")
	input := vars{"agentId": a, "conversationId": "c-1", "message": vars{"text": "hello"}, "idempotencyKey": "k-1"}
	r := w.must("alice", startRun, vars{"input": input})
	runID, sessionID := r.at("startRun", "run", "id"), r.at("startRun", "run", "sessionId")
	if r.at("startRun", "__typename") != "StartRunSuccess" || r.at("startRun", "run", "input", "text") != "hello" {
		t.Fatalf("started: %v", r.Data)
	}
	if r := w.must("alice", startRun, vars{"input": input}); r.at("startRun", "run", "id") != runID {
		t.Errorf("same key, same request: %v", r.Data)
	}
	other := vars{"agentId": a, "conversationId": "c-1", "message": vars{"text": "other"}, "idempotencyKey": "k-1"}
	if r := w.must("alice", startRun, vars{"input": other}); r.at("startRun", "code") != "IDEMPOTENCY_CONFLICT" {
		t.Errorf("same key, other request: %v", r.Data)
	}
	second := vars{"agentId": a, "conversationId": "c-1", "message": vars{"text": "more"}}
	if r := w.must("alice", startRun, vars{"input": second}); r.at("startRun", "code") != "SESSION_BUSY" ||
		r.at("startRun", "activeRunId") != runID || r.at("startRun", "activeRun", "id") != runID {
		t.Errorf("busy: %v", r.Data)
	}
	r = w.must("alice", `query($r: ID!, $s: ID!) { run(id: $r) { status agent { id } session { id } harness { id } agentVersion events { events { sequence } through hasMore } }
		session(id: $s) { conversationId epoch activeRunId activeRun { id } messages { edges { node { role text runId } } } runs { edges { node { id } } } }
		runs(filter: {sessionId: $s}) { edges { node { id } } } sessions(agentId: "`+a+`") { edges { node { id } } } node(id: $r) { id ... on Run { status } } }`, vars{"r": runID, "s": sessionID})
	if r.at("run", "agent", "id") != a || r.at("run", "harness", "id") != "scripted" || r.at("session", "conversationId") != "c-1" || r.at("session", "activeRun", "id") != runID ||
		r.at("session", "messages", "edges", 0, "node", "text") != "hello" || r.at("session", "runs", "edges", 0, "node", "id") != runID ||
		r.at("runs", "edges", 0, "node", "id") != runID || r.at("sessions", "edges", 0, "node", "id") != sessionID || r.at("node", "id") != runID {
		t.Errorf("read: %v", r.Data)
	}

	stream := w.subscribe("alice", runID.(string), 0)
	w.must("alice", `mutation($id: ID!) { cancelRun(runId: $id) { id cancelReason } }`, vars{"id": runID})
	last := stream.toTheEnd()
	if last.event("type") != "run.cancelled" || last.event("reason") != "client_request" {
		t.Errorf("last event: %v", last)
	}
	w.until(func() bool {
		r = w.must("alice", `query($r: ID!, $s: ID!) { run(id: $r) { status ending { cancelReason thread { durability } } generation endedAt } session(id: $s) { activeRunId } }`, vars{"r": runID, "s": sessionID})
		return r.at("session", "activeRunId") == nil && r.at("run", "status") == "CANCELLED"
	})
	if r.at("run", "ending", "cancelReason") != "client_request" || r.at("run", "generation") == nil || r.at("run", "endedAt") == nil {
		t.Errorf("cancelled: %v", r.Data)
	}
	r = w.must("alice", `mutation($id: ID!) { clearSession(sessionId: $id) { epoch activeRunId messages { edges { node { id } } } } }`, vars{"id": sessionID})
	if r.at("clearSession", "epoch") != 2.0 || len(r.at("clearSession", "messages", "edges").([]any)) != 0 {
		t.Errorf("cleared: %v", r.Data)
	}
}

// The transcript is what the person said and what the agent answered, in order, page by page.
func TestMessages(t *testing.T) {
	w := newWorld(t, option{})
	a := w.agent("alice", "helper")
	var sessionID string
	for range 3 {
		var runID string
		w.until(func() bool { // the run before has ended, and lets the conversation go a moment later
			r := w.must("alice", startRun, vars{"input": vars{"agentId": a, "conversationId": "c", "message": vars{"text": "answer"}}})
			runID, _ = r.at("startRun", "run", "id").(string)
			sessionID, _ = r.at("startRun", "run", "sessionId").(string)
			return runID != ""
		})
		if last := w.subscribe("alice", runID, 0).toTheEnd(); last["type"] != "run.finished" {
			t.Fatalf("ended with %v", last)
		}
	}
	w.until(func() bool {
		return w.must("alice", `query($s: ID!) { session(id: $s) { activeRunId } }`, vars{"s": sessionID}).at("session", "activeRunId") == nil
	})
	for _, first := range []int{1, 2, 3, 4, 100} {
		var got []string
		var after any
		for {
			r := w.must("alice", `query($s: ID!, $first: Int!, $after: String) { session(id: $s) { messages(first: $first, after: $after) { edges { node { role text } } pageInfo { hasNextPage endCursor } } } }`,
				vars{"s": sessionID, "first": first, "after": after})
			edges, _ := r.at("session", "messages", "edges").([]any)
			for i := range edges {
				got = append(got, fmt.Sprint(r.at("session", "messages", "edges", i, "node", "role"), " ", r.at("session", "messages", "edges", i, "node", "text")))
			}
			if after = r.at("session", "messages", "pageInfo", "endCursor"); r.at("session", "messages", "pageInfo", "hasNextPage") != true {
				break
			}
		}
		want := []string{"USER answer", "ASSISTANT Hi there.", "USER answer", "ASSISTANT Hi there.", "USER answer", "ASSISTANT Hi there."}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("in pages of %d: %q", first, got)
		}
		// And back from the end.
		got = nil
		for before := any(nil); ; {
			r := w.must("alice", `query($s: ID!, $last: Int!, $before: String) { session(id: $s) { messages(last: $last, before: $before) { edges { node { role text } } pageInfo { hasPreviousPage hasNextPage startCursor } } } }`,
				vars{"s": sessionID, "last": first, "before": before})
			if next := r.at("session", "messages", "pageInfo", "hasNextPage"); next != (before != nil) {
				t.Errorf("back from %v: another page follows: %v", before, next)
			}
			edges, _ := r.at("session", "messages", "edges").([]any)
			for i := range edges {
				n := len(edges) - 1 - i
				got = append(got, fmt.Sprint(r.at("session", "messages", "edges", n, "node", "role"), " ", r.at("session", "messages", "edges", n, "node", "text")))
			}
			if before = r.at("session", "messages", "pageInfo", "startCursor"); r.at("session", "messages", "pageInfo", "hasPreviousPage") != true {
				break
			}
		}
		slices.Reverse(got)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("back in pages of %d: %q", first, got)
		}
	}
}

func TestEventsArePaged(t *testing.T) {
	w := newWorld(t, option{})
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started(), event.TextStarted{MessageID: "m", Role: "assistant"}, event.TextDelta{MessageID: "m", Delta: "a"})
	l.append(event.TextDelta{MessageID: "m", Delta: "b"}, event.TextFinished{MessageID: "m"})
	l.append(finished())
	const query = `query($id: ID!, $after: Int!, $first: Int!) { run(id: $id) { events(after: $after, first: $first) { through hasMore events { sequence type ... on TextDeltaEvent { delta } } } } }`
	for _, c := range []struct {
		after, first int
		want         string
	}{
		{0, 100, "[1 2 3 4 5 6] 6 false"}, {0, 2, "[1 2] 2 true"}, {2, 2, "[3 4] 4 true"}, {4, 2, "[5 6] 6 false"}, {6, 2, "[] 6 false"}, {99, 2, "[] 99 false"},
	} {
		r := w.must("alice", query, vars{"id": l.id, "after": c.after, "first": c.first})
		events, _ := r.at("run", "events", "events").([]any)
		sequences := make([]any, len(events))
		for i := range events {
			sequences[i] = r.at("run", "events", "events", i, "sequence")
		}
		if got := fmt.Sprint(sequences, r.at("run", "events", "through"), r.at("run", "events", "hasMore")); got != c.want {
			t.Errorf("after %d, first %d: %s, want %s", c.after, c.first, got, c.want)
		}
	}
}
