package ws

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

const testDepth = 8

func TestParseMessage(t *testing.T) {
	long := strings.Repeat("i", maxID)
	for raw, want := range map[string]struct {
		kind, id, payload string
		err               error
	}{
		`{"type":"connection_init"}`:                              {kind: typeInit},
		`{"type":"connection_init","payload":null}`:               {kind: typeInit},
		` { "payload" : {"a":"}"} , "type" : "ping" } `:           {kind: typePing, payload: `{"a":"}"}`},
		`{"type":"pong","id":7}`:                                  {kind: typePong},
		`{"id":"1","type":"subscribe","payload":{"query":"{a}"}}`: {kind: typeSubscribe, id: "1", payload: `{"query":"{a}"}`},
		`{"id":"1","type":"complete","payload":[],"more":1}`:      {kind: typeComplete, id: "1"},
		`{"\u0069d":"\u0031","t\u0079pe":"compl\u0065te"}`:        {kind: typeComplete, id: "1"},
		`{"id":"` + long + `","type":"complete"}`:                 {kind: typeComplete, id: long},
		`{"id":"x` + long + `","type":"complete"}`:                {err: errID},
		`{"id":"","type":"complete"}`:                             {err: errID},
		`{"id":"","type":"subscribe","payload":{}}`:               {err: errID},
		`{"id":1,"type":"complete"}`:                              {err: errID},
		`{"id":null,"type":"complete"}`:                           {err: errID},
		`{"type":"complete"}`:                                     {err: errID},
		`{"id":"1","type":"subscribe"}`:                           {err: errPayload},
		`{"id":"1","type":"subscribe","payload":"{}"}`:            {err: errPayload},
		`{"type":"ping","payload":[]}`:                            {err: errPayload},
		`{"type":"connection_init","payload":1}`:                  {err: errPayload},
		`{}`:                                                      {err: errType},
		`{"type":1}`:                                              {err: errType},
		`{"type":null}`:                                           {err: errType},
		`{"Type":"ping"}`:                                         {err: errType},
		`{"type":"start"}`:                                        {err: errType},
		`{"type":"connection_ack"}`:                               {err: errType},
		`{"id":"1","type":"next","payload":{}}`:                   {err: errType},
		`[{"type":"ping"}]`:                                       {err: errNotJSON},
		`"ping"`:                                                  {err: errNotJSON},
		`{"type":"ping"}{"type":"ping"}`:                          {err: errNotJSON},
		`{"type":"ping"`:                                          {err: errNotJSON},
		`{"type":"ping",}`:                                        {err: errNotJSON},
		``:                                                        {err: errNotJSON},
		` `:                                                       {err: errNotJSON},
		"{\"type\":\"ping\xff\"}":                                 {err: errNotUTF8},
		`{"type":"ping","payload":{"a":` + nested(testDepth-2) + `}}`: {kind: typePing, payload: `{"a":` + nested(testDepth-2) + `}`},
		`{"type":"ping","payload":{"a":` + nested(testDepth-1) + `}}`: {err: errDepth},
	} {
		m, err := parseMessage([]byte(raw), testDepth)
		if err != want.err || m.kind != want.kind || m.id != want.id || string(m.payload) != want.payload { //nolint:errorlint // plain errors
			t.Errorf("%s: got %q %q %q, %v, want %+v", raw, m.kind, m.id, m.payload, err, want)
		}
	}
}

func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

func TestParseRequest(t *testing.T) {
	for raw, want := range map[string]struct {
		request
		err error
	}{
		`{"query":"{a}"}`: {request: request{query: "{a}"}},
		`{"query":"","operationName":null,"variables":null,"extensions":null,"other":[]}`:                    {},
		`{"operationName":"A","query":"{a}","variables":{"n":12345678901234567890},"extensions":{"e":true}}`: {request: request{"{a}", "A", map[string]any{"n": json.Number("12345678901234567890")}, map[string]any{"e": true}}},
		`{}`:                                {err: errDocument},
		`{"query":null}`:                    {err: errDocument},
		`{"query":1}`:                       {err: errDocument},
		`{"Query":"{a}"}`:                   {err: errDocument},
		`{"query":"{a}","operationName":1}`: {err: errOperation},
		`{"query":"{a}","variables":[]}`:    {err: errVariables},
		`{"query":"{a}","variables":"{}"}`:  {err: errVariables},
		`{"query":"{a}","extensions":0}`:    {err: errExtensions},
	} {
		r, err := parseRequest([]byte(raw))
		if err != want.err || err == nil && !reflect.DeepEqual(r, want.request) { //nolint:errorlint // plain errors
			t.Errorf("%s: got %+v, %v, want %+v", raw, r, err, want)
		}
	}
}

func TestParseInit(t *testing.T) {
	for raw, want := range map[string]struct {
		authorization string
		given         bool
	}{
		`{}`:                                {},
		`{"Authorization":null,"other":1}`:  {},
		`{"AUTHORIZATION":"Bearer x"}`:      {},
		`{"Authorization":"Bearer x"}`:      {"Bearer x", true},
		`{"authorization":"Bearer \u0078"}`: {"Bearer x", true},
		`{"authorization":""}`:              {"", true},
		`{"authorization":{"Bearer":"x"}}`:  {"", true},
	} {
		authorization, given := parseInit([]byte(raw))
		if authorization != want.authorization || given != want.given {
			t.Errorf("%s: got %q %v, want %+v", raw, authorization, given, want)
		}
	}
	if _, given := parseInit(nil); given {
		t.Error("without a payload")
	}
}

// FuzzMessage compares what is read of a frame with what encoding/json reads of it.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		`{"type":"connection_init","payload":{"Authorization":"Bearer x"}}`, `{"id":"1","type":"subscribe","payload":{"query":"{a}","variables":{"a":[1,"}"]}}}`,
		`{"id":"\u0031\"","type":"complete"}`, `{"type":"ping","payload":{"a":[[[]]]}}`, ` {"type" : "pong" , "x":-1e5,"y":tr`, `{"type":"ping","type":"pong"}`,
		`{"":"","type":"ping"}`, "{\"type\":\"ping\",\"\\\\\":\"\\\\\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := parseMessage(raw, testDepth)
		var plain map[string]json.RawMessage
		valid := json.Unmarshal(raw, &plain) == nil && plain != nil
		if err != nil {
			if !reflect.DeepEqual(m, message{}) {
				t.Fatalf("%q beside %v", m, err)
			}
			return
		}
		var kind string
		switch {
		case !valid:
			t.Fatalf("%q was taken for a message", raw)
		case json.Unmarshal(plain["type"], &kind) != nil || kind != m.kind:
			t.Fatalf("type %q of %q", m.kind, raw)
		}
		if m.kind == typeSubscribe || m.kind == typeComplete {
			var id, sent string
			if json.Unmarshal(plain["id"], &id) != nil || id != m.id || id == "" || json.Unmarshal(m.rawID, &sent) != nil || sent != id || len(id) > 3*maxID {
				t.Fatalf("id %q (%q) of %q", m.id, m.rawID, raw)
			}
		}
		if m.payload == nil {
			return
		}
		var ours, theirs any
		if json.Unmarshal(m.payload, &ours) != nil || json.Unmarshal(plain["payload"], &theirs) != nil || !reflect.DeepEqual(ours, theirs) {
			t.Fatalf("payload %q of %q", m.payload, raw)
		}
		if m.kind == typeSubscribe {
			checkRequest(t, m.payload)
		}
	})
}

// FuzzSubscribe compares what is read of an operation with what encoding/json reads of it.
func FuzzSubscribe(f *testing.F) {
	for _, seed := range []string{
		`{"query":"{a}"}`, `{"query":"{a}","operationName":"A","variables":{"n":1.50,"s":"\ud800"},"extensions":{}}`, `{"variables":null,"query":"\"}"}`,
		`{"query":"{a}","operationName":null,"operationName":"B"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if checkJSON(raw, testDepth) == nil {
			checkRequest(t, raw)
		}
	})
}

func checkRequest(t *testing.T, raw []byte) {
	t.Helper()
	r, err := parseRequest(raw)
	if err != nil {
		return
	}
	var plain map[string]json.RawMessage
	if err := json.Unmarshal(raw, &plain); err != nil {
		t.Fatal(err)
	}
	var query string
	var operation *string
	if json.Unmarshal(plain["query"], &query) != nil || query != r.query {
		t.Fatalf("query %q of %q", r.query, raw)
	}
	if given, ok := plain["operationName"]; ok && (json.Unmarshal(given, &operation) != nil || operation != nil && *operation != r.operation) {
		t.Fatalf("operationName %q of %q", r.operation, raw)
	}
	for name, ours := range map[string]map[string]any{"variables": r.variables, "extensions": r.extensions} {
		var theirs map[string]any
		if given, ok := plain[name]; ok && decodeObject(given, &theirs, errPayload) != nil || !reflect.DeepEqual(ours, theirs) {
			t.Fatalf("%s %v of %q", name, ours, raw)
		}
	}
}

// FuzzInit reads the authorization of any payload.
func FuzzInit(f *testing.F) {
	for _, seed := range []string{`{"Authorization":"Bearer x"}`, `{"authorization":null}`, `{"authorization":{},"Authorization":""}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if checkJSON(raw, testDepth) != nil {
			return
		}
		authorization, given := parseInit(raw)
		var plain map[string]any
		if err := json.Unmarshal(raw, &plain); err != nil {
			t.Fatal(err)
		}
		want := plain["Authorization"]
		if want == nil {
			want = plain["authorization"]
		}
		text, _ := want.(string)
		if given != (want != nil) || authorization != text {
			t.Fatalf("%q %v of %q", authorization, given, raw)
		}
	})
}
