package transport_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/transport"
)

// nested is a JSON value of that many levels.
func nested(levels int) any {
	var v any = 1
	for range levels {
		v = map[string]any{"a": v}
	}
	return v
}

// Bad input at every entry: the code, the field, and nothing written.
func TestBadInputNamesItsFieldAndWritesNothing(t *testing.T) {
	w := newWorld(t, option{})
	a := w.agent("alice", "helper")
	l := w.log("alice", a)
	l.append(started())
	long := strings.Repeat("x", 129)
	start := func(change vars) vars {
		input := vars{"agentId": a, "conversationId": "c", "message": vars{"text": "hi"}}
		for k, v := range change {
			input[k] = v
		}
		return vars{"input": input}
	}
	save := func(change vars) vars {
		d := draft("new")
		for k, v := range change {
			d[k] = v
		}
		return vars{"input": vars{"draft": d}}
	}
	for name, c := range map[string]struct {
		query string
		vars  vars
		field string
	}{
		"text missing":         {startRun, start(vars{"message": vars{}}), "input.message.text"},
		"text null":            {startRun, start(vars{"message": vars{"text": nil}}), "input.message.text"},
		"text empty":           {startRun, start(vars{"message": vars{"text": ""}}), "input.message.text"},
		"text blank":           {startRun, start(vars{"message": vars{"text": " \n\t"}}), "input.message.text"},
		"text oversized":       {startRun, start(vars{"message": vars{"text": strings.Repeat("x", 256<<10+1)}}), "input.message.text"},
		"text control":         {startRun, start(vars{"message": vars{"text": "a\u0000b"}}), "input.message.text"},
		"text not a string":    {startRun, start(vars{"message": vars{"text": vars{"a": 1}}}), "input.message.text"},
		"conversation empty":   {startRun, start(vars{"conversationId": ""}), "input.conversationId"},
		"conversation long":    {startRun, start(vars{"conversationId": long}), "input.conversationId"},
		"conversation bidi":    {startRun, start(vars{"conversationId": "a\u202eb"}), "input.conversationId"},
		"key empty":            {startRun, start(vars{"idempotencyKey": ""}), "input.idempotencyKey"},
		"key long":             {startRun, start(vars{"idempotencyKey": long}), "input.idempotencyKey"},
		"key line break":       {startRun, start(vars{"idempotencyKey": "a\nb"}), "input.idempotencyKey"},
		"policy unknown":       {startRun, start(vars{"busyPolicy": "LATER"}), "input.busyPolicy"},
		"policy lower case":    {startRun, start(vars{"busyPolicy": "reject"}), "input.busyPolicy"},
		"unknown member":       {startRun, start(vars{"overrides": vars{}}), "input.overrides"},
		"agent id long":        {startRun, start(vars{"agentId": long}), "input.agentId"},
		"agent id control":     {startRun, start(vars{"agentId": "agt_\u0007"}), "input.agentId"},
		"name missing":         {saveAgent, save(vars{"name": nil}), "input.draft.name"},
		"name empty":           {saveAgent, save(vars{"name": ""}), "input.draft.name"},
		"name long":            {saveAgent, save(vars{"name": strings.Repeat("n", 81)}), "input.draft.name"},
		"name bidi":            {saveAgent, save(vars{"name": "a\u202eb"}), "input.draft.name"},
		"name zero width":      {saveAgent, save(vars{"name": "a\u2060b"}), "input.draft.name"},
		"slug upper case":      {saveAgent, save(vars{"slug": "New"}), "input.draft.slug"},
		"slug path":            {saveAgent, save(vars{"slug": "../etc"}), "input.draft.slug"},
		"harness id":           {saveAgent, save(vars{"harness": vars{"id": "Deep Agents!"}}), "input.draft.harness.id"},
		"options deep":         {saveAgent, save(vars{"harness": vars{"id": "scripted", "options": nested(17)}}), "input.draft.harness.options"},
		"options large":        {saveAgent, save(vars{"harness": vars{"id": "scripted", "options": vars{"a": strings.Repeat("x", 33<<10)}}}), "input.draft.harness.options"},
		"options not object":   {saveAgent, save(vars{"harness": vars{"id": "scripted", "options": "text"}}), "input.draft.harness.options"},
		"system oversized":     {saveAgent, save(vars{"prompt": vars{"system": strings.Repeat("x", 200_001)}}), "input.draft.prompt.system"},
		"variable twice":       {saveAgent, save(vars{"prompt": vars{"variables": []vars{{"name": "a", "value": "1"}, {"name": "a", "value": "2"}}}}), "input.draft.prompt.variables[1].name"},
		"variable name":        {saveAgent, save(vars{"prompt": vars{"variables": []vars{{"name": "A B", "value": "1"}}}}), "input.draft.prompt.variables"},
		"model policy":         {saveAgent, save(vars{"model": vars{"policy": "MINE"}}), "input.draft.model.policy"},
		"seconds zero":         {saveAgent, save(vars{"limits": vars{"maxRunSeconds": 0}}), "input.draft.limits.maxRunSeconds"},
		"seconds many":         {saveAgent, save(vars{"limits": vars{"maxRunSeconds": 86_401}}), "input.draft.limits.maxRunSeconds"},
		"seconds 64 bits":      {saveAgent, save(vars{"limits": vars{"maxRunSeconds": 1 << 40}}), "input.draft.limits.maxRunSeconds"},
		"seconds fraction":     {saveAgent, save(vars{"limits": vars{"maxRunSeconds": 1.5}}), "input.draft.limits.maxRunSeconds"},
		"revision for new":     {saveAgent, vars{"input": vars{"draft": draft("new"), "expectedRevision": 1}}, "input.expectedRevision"},
		"revision missing":     {saveAgent, vars{"input": vars{"draft": draft("new"), "agentId": a}}, "input.expectedRevision"},
		"fingerprint":          {saveAgent, vars{"input": vars{"draft": draft("new"), "fingerprint": long}}, "input.fingerprint"},
		"catalog revision":     {saveAgent, vars{"input": vars{"draft": draft("new"), "catalogRevision": "\u200b"}}, "input.catalogRevision"},
		"draft request id":     {`query($d: BlueprintInput!, $r: String!) { validateAgent(draft: $d, requestId: $r) { valid } }`, vars{"d": draft("s"), "r": ""}, "requestId"},
		"draft name":           {`query($d: BlueprintInput!) { validateAgent(draft: $d, requestId: "r") { valid } }`, vars{"d": vars{"name": "\u0000", "slug": "s"}}, "draft.name"},
		"draft literal deep":   {`{ validateAgent(draft: {name: "n", slug: "s", harness: {options: ` + strings.Repeat("{a:", 17) + "1" + strings.Repeat("}", 17) + `}}, requestId: "r") { valid } }`, nil, "draft.harness.options"},
		"first zero":           {`{ runs(first: 0) { edges { cursor } } }`, nil, "first"},
		"last zero":            {`query($id: ID!) { session(id: $id) { messages(last: 0) { edges { cursor } } } }`, vars{"id": l.session}, "last"},
		"last with after":      {`query($id: ID!) { session(id: $id) { messages(last: 1, after: "x") { edges { cursor } } } }`, vars{"id": l.session}, "after"},
		"before alone":         {`query($id: ID!) { session(id: $id) { messages(before: "x") { edges { cursor } } } }`, vars{"id": l.session}, "before"},
		"before of no list":    {`query($id: ID!) { session(id: $id) { messages(last: 1, before: "x") { edges { cursor } } } }`, vars{"id": l.session}, "before"},
		"first many":           {`{ agents(first: 101) { edges { cursor } } }`, nil, "first"},
		"cursor":               {`{ sessions(after: "no") { edges { cursor } } }`, nil, "after"},
		"filter":               {`query($f: RunFilter) { runs(filter: $f) { edges { cursor } } }`, vars{"f": vars{"sessionId": long}}, "filter.sessionId"},
		"filter status":        {`query($f: RunFilter) { runs(filter: $f) { edges { cursor } } }`, vars{"f": vars{"status": "ADMITTING"}}, "f.status"},
		"events after":         {`query($id: ID!) { run(id: $id) { events(after: -1) { through } } }`, vars{"id": l.id}, "after"},
		"events first":         {`query($id: ID!) { run(id: $id) { events(first: 257) { through } } }`, vars{"id": l.id}, "first"},
		"run id long":          {`query($id: ID!) { run(id: $id) { id } }`, vars{"id": long}, "id"},
		"cancel id":            {`mutation($id: ID!) { cancelRun(runId: $id) { id } }`, vars{"id": long}, "runId"},
		"clear id":             {`mutation($id: ID!) { clearSession(sessionId: $id) { id } }`, vars{"id": "ses_\u202e"}, "sessionId"},
		"harness name":         {`query($id: ID!) { harness(id: $id) { id } }`, vars{"id": long}, "id"},
		"variable missing":     {`query($id: ID!) { run(id: $id) { id } }`, nil, "id"},
		"variable of its kind": {`query($id: ID!) { run(id: $id) { id } }`, vars{"id": true}, "id"},
	} {
		w.spy.take()
		r := w.ask("alice", c.query, c.vars)
		if r.code() != "BAD_USER_INPUT" || r.field() != c.field {
			t.Errorf("%s: code %q, field %q: %+v %v", name, r.code(), r.field(), r.Errors, r.Data)
		}
		if changed := writes(w.spy.take()); len(changed) > 0 {
			t.Errorf("%s: wrote %v", name, changed)
		}
		if len(r.Errors) > 0 && len(r.Errors[0].Message) > 600 {
			t.Errorf("%s: a message of %d bytes", name, len(r.Errors[0].Message))
		}
	}
}

// Requests that never become operations, and operations that never run.
func TestMalformedRequests(t *testing.T) {
	w := newWorld(t, option{limits: transport.Limits{MaxBodyBytes: 4096}})
	secret := "canary-7c1f"
	operation := func(query string) string {
		b, err := json.Marshal(vars{"query": query})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for name, c := range map[string]struct {
		body   string
		status int
		code   string
		field  string
	}{
		"empty":             {"", 400, "BAD_USER_INPUT", ""},
		"not JSON":          {"{" + secret, 400, "BAD_USER_INPUT", ""},
		"trailing":          {operation("{ viewer { subject } }") + secret, 400, "BAD_USER_INPUT", ""},
		"array":             {"[" + operation("{ viewer { subject } }") + "]", 400, "BAD_USER_INPUT", ""},
		"null":              {"null", 400, "BAD_USER_INPUT", ""},
		"no query":          {`{"variables":{}}`, 400, "BAD_USER_INPUT", "query"},
		"query a number":    {`{"query":1}`, 400, "BAD_USER_INPUT", "query"},
		"variables a list":  {`{"query":"{a}","variables":[]}`, 400, "BAD_USER_INPUT", "variables"},
		"operation a list":  {`{"query":"{a}","operationName":[]}`, 400, "BAD_USER_INPUT", "operationName"},
		"invalid UTF-8":     {"{\"query\":\"{a}\xff\"}", 400, "BAD_USER_INPUT", ""},
		"oversized":         {operation(strings.Repeat(" ", 5000)), 413, "BAD_USER_INPUT", ""},
		"deep":              {`{"query":"{a}","variables":` + strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70) + "}", 400, "BAD_USER_INPUT", ""},
		"syntax":            {operation("{ viewer { subject "), 200, "BAD_USER_INPUT", ""},
		"unknown field":     {operation("{ viewr }"), 200, "BAD_USER_INPUT", ""},
		"no such operation": {`{"query":"query A { viewer { subject } }","operationName":"B"}`, 200, "BAD_USER_INPUT", ""},
		"introspection":     {operation("{ __schema { types { name } } }"), 200, "FORBIDDEN", ""},
		"hidden":            {operation("{ ...f } fragment f on Query { __type(name: \"Run\") { name } }"), 200, "FORBIDDEN", ""},
		"subscription":      {operation("subscription { runEvents(runId: \"run_1\") { through } }"), 200, "BAD_USER_INPUT", ""},
		"deep selection":    {operation("{ runs { edges { node " + strings.Repeat("{ session { activeRun ", 9) + "{ id }" + strings.Repeat(" } }", 9) + " } } }"), 200, "TOO_COMPLEX", ""},
		"dear":              {operation("{ sessions(first: 100) { edges { node { messages(first: 100) { edges { node { text } } } } } } }"), 200, "TOO_COMPLEX", ""},
	} {
		r := w.send(http.MethodPost, "/graphql", http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + w.token("alice")}}, c.body)
		if r.status != c.status || r.code() != c.code || r.field() != c.field {
			t.Errorf("%s: %d %q %q %+v", name, r.status, r.code(), r.field(), r.Errors)
		}
		if strings.Contains(string(raw(r.Errors)), secret) || strings.Contains(string(raw(r.Errors)), "Did you mean") {
			t.Errorf("%s: tells %s", name, raw(r.Errors))
		}
	}
	if len(w.spy.take()) > 0 {
		t.Error("the store was asked")
	}
	if r := w.ask("ada", "{ __schema { queryType { name } } }", nil); r.at("__schema", "queryType", "name") != "Query" {
		t.Errorf("an operator's introspection: %+v", r)
	}
	if r := w.ask("", "{ __schema { queryType { name } } }", nil); r.code() != "UNAUTHENTICATED" {
		t.Errorf("nobody's introspection: %+v", r)
	}
}

// Documents that grow when they are spread out are refused, not spread out.
func TestFragmentBombs(t *testing.T) {
	w := newWorld(t, option{})
	var bomb strings.Builder
	name := func(i int) string { return "f" + strings.Repeat("x", i) + "z" }
	bomb.WriteString("{ ..." + name(0) + " }")
	for i := range 30 {
		bomb.WriteString(" fragment " + name(i) + " on Query { ..." + name(i+1) + " ..." + name(i+1) + " }")
	}
	bomb.WriteString(" fragment " + name(30) + " on Query { catalogRevision }")
	tokens := "{" + strings.Repeat(" catalogRevision", 5000) + "}"
	for what, query := range map[string]string{"doubling": bomb.String(), "tokens": tokens} {
		r := w.ask("alice", query, nil)
		if code := r.code(); (code != "TOO_COMPLEX" && code != "BAD_USER_INPUT") || r.Data != nil {
			t.Errorf("%s: %+v", what, r)
		}
	}
}
