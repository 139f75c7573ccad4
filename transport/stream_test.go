package transport_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/transport"
)

// message is one server-sent event.
type message struct {
	id, name, data string
	hasData        bool
}

func (m message) json(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(m.data), &v); err != nil {
		t.Fatalf("%+v: %v", m, err)
	}
	return v
}

// sse is an event stream that is being read.
type sse struct {
	t      *testing.T
	resp   *http.Response
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

// open asks for an event stream.
func (w *world) open(subject, method, path string, header http.Header, body string) *sse {
	w.t.Helper()
	return w.openWith(w.http.Client(), subject, method, path, header, body)
}

func (w *world) openWith(client *http.Client, subject, method, path string, header http.Header, body string) *sse {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	req, err := http.NewRequestWithContext(ctx, method, w.http.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}}
	for name, values := range header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if subject != "" {
		req.Header.Set("Authorization", "Bearer "+w.token(subject))
	}
	resp, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &sse{t: w.t, resp: resp, lines: bufio.NewScanner(resp.Body), cancel: cancel}
	s.lines.Buffer(nil, 4<<20)
	w.t.Cleanup(s.close)
	return s
}

func (s *sse) close() {
	s.cancel()
	_ = s.resp.Body.Close()
}

// next reads a message; false at the end of the stream.
func (s *sse) next() (m message, ok bool) {
	for s.lines.Scan() {
		field, value, _ := strings.Cut(s.lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case s.lines.Text() == "" && ok:
			return m, true
		case field == "id":
			m.id, ok = value, true
		case field == "event":
			m.name, ok = value, true
		case field == "data":
			m.data, m.hasData, ok = value, true, true
		}
	}
	return message{}, false
}

// rest reads to the end.
func (s *sse) rest() (all []message) {
	for m, ok := s.next(); ok; m, ok = s.next() {
		all = append(all, m)
	}
	return all
}

// text is a run's log with that many deltas, still open.
func (l *log) text(deltas int) {
	l.append(started(), event.TextStarted{MessageID: "m", Role: "assistant"})
	for i := range deltas {
		l.append(event.TextDelta{MessageID: "m", Delta: fmt.Sprint(i)})
	}
}

func (l *log) finish() { l.append(event.TextFinished{MessageID: "m"}, finished()) }

// sequencesOf are those of the events in `next` messages of runEvents.
func sequencesOf(t *testing.T, messages []message) (sequences []int) {
	t.Helper()
	for _, m := range messages {
		if m.name != "next" {
			continue
		}
		batch := reply{Data: m.json(t)["data"].(map[string]any)}
		events, _ := batch.at("runEvents", "events").([]any)
		for i := range events {
			sequences = append(sequences, int(batch.at("runEvents", "events", i, "sequence").(float64)))
		}
	}
	return sequences
}

func upTo(first, last int) string {
	var all []int
	for i := first; i <= last; i++ {
		all = append(all, i)
	}
	return fmt.Sprint(all)
}

// A client that is cut off anywhere comes back with the id of its last message, by POST and by GET, and has each event
// once.
func TestLastEventIDGoesOn(t *testing.T) {
	w := newWorld(t, option{})
	l := w.log("alice", w.agent("alice", "helper"))
	l.text(20)
	query := `subscription { runEvents(runId: "` + l.id + `", after: 1) { through events { sequence } } }`
	var got []message
	for round := 0; ; round++ {
		header := http.Header{}
		if len(got) > 0 {
			header.Set("Last-Event-ID", got[len(got)-1].id)
		}
		var s *sse
		if round%2 == 0 {
			s = w.open("alice", http.MethodPost, "/graphql", header, document(query))
		} else {
			s = w.open("alice", http.MethodGet, "/graphql?query="+url.QueryEscape(query), header, "")
		}
		m, ok := s.next()
		if !ok || m.name != "next" || !strings.HasSuffix(m.id, mark) {
			t.Fatalf("round %d: %+v, %v", round, m, ok)
		}
		got = append(got, m)
		s.close()
		if round == 3 {
			break
		}
		l.append(event.TextDelta{MessageID: "m", Delta: "more"})
	}
	l.finish()
	s := w.open("alice", http.MethodPost, "/graphql", http.Header{"Last-Event-ID": {got[len(got)-1].id}}, document(query))
	rest := s.rest()
	got = append(got, rest...)
	if sequences := fmt.Sprint(sequencesOf(t, got)); sequences != upTo(2, 27) {
		t.Errorf("got %s", sequences)
	}
	if last := rest[len(rest)-1]; last.name != "complete" || !last.hasData || last.data != "" {
		t.Errorf("ends with %+v", last)
	}
	// Behind the end there is nothing more.
	s = w.open("alice", http.MethodPost, "/graphql", http.Header{"Last-Event-ID": {rest[len(rest)-2].id}}, document(query))
	if rest = s.rest(); len(rest) != 1 || rest[0].name != "complete" {
		t.Errorf("behind the end: %+v", rest)
	}
}

func TestBadLastEventID(t *testing.T) {
	w := newWorld(t, option{})
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started())
	of := func(query string, id ...string) (*sse, []message) {
		s := w.open("alice", http.MethodPost, "/graphql", http.Header{"Last-Event-ID": id}, document(query))
		return s, s.rest()
	}
	for name, id := range map[string][]string{"a space": {"1 2"}, "long": {strings.Repeat("1", 300)}, "two": {"1", "2"}} {
		s := w.raw("alice", http.MethodPost, "/graphql", http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}, "Last-Event-Id": id},
			document(`subscription { runEvents(runId: "`+l.id+`") { through } }`))
		if s.status != 400 || !strings.Contains(s.body, `"field":"Last-Event-ID"`) {
			t.Errorf("%s: %+v", name, s)
		}
	}
	for name, c := range map[string]struct{ query, id string }{
		"not a sequence":     {`subscription { runEvents(runId: "` + l.id + `") { through } }`, "x"},
		"below zero":         {`subscription { runEvents(runId: "` + l.id + `") { through } }`, "-1"},
		"not of a session":   {`subscription { sessionEvents(sessionId: "` + l.session + `") { through } }`, "7"},
		"without a place":    {`subscription { catalogChanged { revision } }`, "7"},
		"not a subscription": {`{ viewer { subject } }`, "7"},
		"a mark alone":       {`{ viewer { subject } }`, mark},
	} {
		_, got := of(c.query, c.id)
		if len(got) != 2 || got[0].name != "next" || !strings.Contains(got[0].data, "BAD_USER_INPUT") || got[1].name != "complete" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Queries and mutations, and what does not begin, are answered on a stream too, where the client wants one.
func TestStreamsOfOneAnswer(t *testing.T) {
	w := newWorld(t, option{})
	for query, want := range map[string]string{
		`{ viewer { subject } }`: `{"data":{"viewer":{"subject":"alice"}}}`,
		`{ viewr }`:              `BAD_USER_INPUT`,
		`mutation { cancelRun(runId: "run_1") { id } }`: `NOT_FOUND`,
	} {
		got := w.open("alice", http.MethodPost, "/graphql", nil, document(query)).rest()
		if len(got) != 2 || got[0].name != "next" || !strings.Contains(got[0].data, want) || got[0].id != "" || got[1] != (message{name: "complete", hasData: true}) {
			t.Errorf("%s: %+v", query, got)
		}
	}
	if s := w.open("", http.MethodPost, "/graphql", http.Header{"Authorization": {"Bearer x"}}, document(`{ viewer { subject } }`)); s.resp.StatusCode != 401 {
		t.Errorf("a bad token: %d", s.resp.StatusCode)
	}
}

func TestCatalogChangedBeginsWithTheCatalogAsItIs(t *testing.T) {
	w := newWorld(t, option{})
	s := w.open("alice", http.MethodGet, "/graphql?query="+url.QueryEscape(`subscription { catalogChanged { revision changedAt } }`), nil, "")
	m, ok := s.next()
	revision := w.must("alice", "{ catalogRevision }", nil).at("catalogRevision")
	if !ok || m.name != "next" || (reply{Data: m.json(t)["data"].(map[string]any)}).at("catalogChanged", "revision") != revision {
		t.Errorf("%+v", m)
	}
	w.edge.Drain()
	rest := s.rest()
	if len(rest) != 1 || rest[0].name != "next" || !strings.Contains(rest[0].data, "CAPACITY") {
		t.Errorf("a drain: %+v", rest)
	}
}

// A caller has so many streams, whatever carries them, and one more when one has ended.
func TestACallersStreamsAreBounded(t *testing.T) {
	w := newWorld(t, option{limits: transport.Limits{MaxCallerStreams: 2}})
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started())
	path := "/v1/runs/" + l.id + "/events"
	first := w.open("alice", http.MethodGet, path, nil, "")
	if _, ok := first.next(); !ok {
		t.Fatal("no stream")
	}
	second := w.open("alice", http.MethodPost, "/graphql", nil, document(`subscription { catalogChanged { revision } }`))
	if _, ok := second.next(); !ok {
		t.Fatal("no stream")
	}
	if s := w.open("alice", http.MethodGet, path, nil, ""); s.resp.StatusCode != 429 || s.resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("a third: %d %v", s.resp.StatusCode, s.resp.Header)
	}
	if s := w.open("alice", http.MethodPost, "/graphql", nil, document(`subscription { catalogChanged { revision } }`)); s.resp.StatusCode != 429 {
		t.Errorf("a third by GraphQL: %d", s.resp.StatusCode)
	}
	if s := w.open("bob", http.MethodPost, "/graphql", nil, document(`subscription { catalogChanged { revision } }`)); s.resp.StatusCode != 200 {
		t.Errorf("another caller: %d", s.resp.StatusCode)
	}
	second.close()
	w.until(func() bool { return w.open("alice", http.MethodGet, path, nil, "").resp.StatusCode == 200 })
}

// The log for clients without GraphQL: one message an event, whole and in order, from any place, to the terminal.
func TestRunEventsOverPlainHTTP(t *testing.T) {
	w := newWorld(t, option{})
	l := w.log("alice", w.agent("alice", "helper"))
	l.text(5)
	path := "/v1/runs/" + l.id + "/events"
	s := w.open("alice", http.MethodGet, path+"?format=canonical&after=2", nil, "")
	if s.resp.StatusCode != 200 || s.resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", s.resp.StatusCode, s.resp.Header)
	}
	var got []message
	for range 5 {
		m, _ := s.next()
		got = append(got, m)
	}
	l.finish()
	got = append(got, s.rest()...)
	for i, m := range got {
		v := m.json(t)
		if want := i + 3; m.id != fmt.Sprint(want)+mark || v["sequence"] != float64(want) || m.name != v["type"] || v["run_id"] != l.id || v["version"] != 1.0 {
			t.Errorf("message %d: %+v", i, m)
		}
	}
	if len(got) != 7 || got[6].name != "run.finished" {
		t.Errorf("%d messages: %+v", len(got), got)
	}
	// The place where a client is by now wins over the one that its URL began with.
	s = w.open("alice", http.MethodGet, path+"?after=1", http.Header{"Last-Event-ID": {"8"}}, "")
	if got := s.rest(); len(got) != 1 || got[0].id != "9"+mark {
		t.Errorf("from the last id: %+v", got)
	}
	// Nothing follows, and an EventSource must not come back.
	for _, after := range []string{"9", "10", "2147483647"} {
		if got := w.raw("alice", http.MethodGet, path+"?after="+after, nil, ""); got.status != 204 || got.body != "" {
			t.Errorf("after %s: %+v", after, got)
		}
	}
}

func TestRunEventsOverPlainHTTPAreRefused(t *testing.T) {
	w := newWorld(t, option{})
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started())
	path := "/v1/runs/" + l.id + "/events"
	w.spy.take()
	for name, c := range map[string]struct {
		subject, method, path string
		header                http.Header
		status                int
		code, field           string
	}{
		"a stranger":        {"bob", "GET", path, nil, 404, "NOT_FOUND", ""},
		"no such run":       {"alice", "GET", "/v1/runs/run_none/events", nil, 404, "NOT_FOUND", ""},
		"not an id":         {"alice", "GET", "/v1/runs/" + strings.Repeat("x", 200) + "/events", nil, 400, "BAD_USER_INPUT", "runId"},
		"nobody":            {"", "GET", path, http.Header{"X-Requested-With": {"x"}}, 401, "UNAUTHENTICATED", ""},
		"a foreign page":    {"", "GET", path, nil, 400, "BAD_USER_INPUT", ""},
		"a bad token":       {"", "GET", path, http.Header{"Authorization": {"Bearer x"}}, 401, "UNAUTHENTICATED", ""},
		"another format":    {"alice", "GET", path + "?format=agui", nil, 400, "BAD_USER_INPUT", "format"},
		"a bad place":       {"alice", "GET", path + "?after=x", nil, 400, "BAD_USER_INPUT", "after"},
		"a bad id":          {"alice", "GET", path, http.Header{"Last-Event-Id": {"x"}}, 400, "BAD_USER_INPUT", "Last-Event-ID"},
		"POST":              {"alice", "POST", path, nil, 405, "BAD_USER_INPUT", ""},
		"not as a stream":   {"alice", "GET", path, http.Header{"Accept": {"application/json"}}, 406, "BAD_USER_INPUT", ""},
		"of another origin": {"alice", "GET", path, http.Header{"Origin": {"https://evil.example"}}, 403, "FORBIDDEN", ""},
	} {
		got := w.raw(c.subject, c.method, c.path, c.header, "")
		var doc map[string]any
		if err := json.Unmarshal([]byte(got.body), &doc); err != nil {
			t.Errorf("%s: %d %s", name, got.status, got.body)
			continue
		}
		field, _ := doc["field"].(string)
		if got.status != c.status || doc["code"] != c.code || field != c.field || got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	if ops := w.spy.take(); len(ops) > 0 {
		t.Errorf("the store was asked %v", ops)
	}
}

// A place that the log has not reached waits for it; the engine's end says so and leaves the rest to the next.
func TestRunEventsOverPlainHTTPWait(t *testing.T) {
	w := newWorld(t, option{limits: transport.Limits{PingInterval: 50 * time.Millisecond}})
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started())
	s := w.open("alice", http.MethodGet, "/v1/runs/"+l.id+"/events?after=2", nil, "")
	for beats := 0; beats < 3 && s.lines.Scan(); {
		if s.lines.Text() == ":" {
			beats++
		}
	}
	l.append(event.TextStarted{MessageID: "m", Role: "assistant"}, event.TextDelta{MessageID: "m", Delta: "a"})
	if m, ok := s.next(); !ok || m.id != "3"+mark {
		t.Errorf("%+v", m)
	}
	w.edge.Drain()
	rest := s.rest()
	if len(rest) != 1 || rest[0].name != "problem" || rest[0].id != "" || rest[0].json(t)["code"] != "CAPACITY" {
		t.Errorf("a drain: %+v", rest)
	}
}

// Whoever loses the permission learns it on the stream.
func TestRunEventsOverPlainHTTPEndWithThePermission(t *testing.T) {
	w := newWorld(t, option{maxAge: shortAge})
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started())
	s := w.open("alice", http.MethodGet, "/v1/runs/"+l.id+"/events", nil, "")
	if m, ok := s.next(); !ok || m.id != "1"+mark {
		t.Fatalf("%+v", m)
	}
	l.disown()
	rest := s.rest()
	if len(rest) != 1 || rest[0].name != "problem" || rest[0].json(t)["code"] != "FORBIDDEN" {
		t.Errorf("%+v", rest)
	}
}

// expire takes the run's events up to a sequence, as retention does.
func (l *log) expire(through, last int64) {
	l.w.t.Helper()
	r, err := l.w.spy.Store.Run(l.w.ctx, l.id)
	if err == nil {
		r.Rev++
		r.Status, r.LastSequence, r.ExpiredThrough = run.StatusFinished, last, through
		err = l.w.spy.Store.UpdateRun(l.w.ctx, r)
	}
	if err != nil {
		l.w.t.Fatal(err)
	}
}

// What has expired is an error that says where to go on and what became of the run; what is left is read as ever.
func TestExpiredCursors(t *testing.T) {
	w := newWorld(t, option{})
	l := w.log("alice", w.agent("alice", "helper"))
	l.text(5)
	l.finish()
	l.expire(4, 9)
	path := "/v1/runs/" + l.id + "/events"
	got := w.raw("alice", http.MethodGet, path+"?after=3", nil, "")
	var doc map[string]any
	if err := json.Unmarshal([]byte(got.body), &doc); err != nil {
		t.Fatalf("%+v", got)
	}
	if got.status != 410 || doc["code"] != "CURSOR_EXPIRED" || doc["firstAvailable"] != 5.0 || doc["runStatus"] != "FINISHED" || doc["lastSequence"] != 9.0 || doc["status"] != 410.0 {
		t.Errorf("by plain HTTP: %+v", got)
	}
	if got := w.open("alice", http.MethodGet, path+"?after=4", nil, "").rest(); len(got) != 5 || got[0].id != "5"+mark {
		t.Errorf("what is left: %+v", got)
	}
	if got := w.raw("bob", http.MethodGet, path, nil, ""); got.status != 404 {
		t.Errorf("a stranger: %+v", got)
	}
	// What was read of another history is not awaited.
	other := http.Header{"Last-Event-Id": {"9.00000000"}}
	if got := w.raw("alice", http.MethodGet, path, other, ""); got.status != 410 || !strings.Contains(got.body, "CURSOR_EXPIRED") {
		t.Errorf("of another history: %+v", got)
	}
	query := document(`subscription { runEvents(runId: "` + l.id + `", after: 4) { through } }`)
	if got := w.open("alice", http.MethodPost, "/graphql", other, query).rest(); len(got) != 2 || !strings.Contains(got[0].data, "CURSOR_EXPIRED") {
		t.Errorf("of another history, by GraphQL: %+v", got)
	}
	ask := func(after int) []message {
		return w.open("alice", http.MethodPost, "/graphql", nil, document(fmt.Sprintf(`subscription { runEvents(runId: %q, after: %d) { events { sequence } } }`, l.id, after))).rest()
	}
	messages := ask(0)
	if len(messages) != 2 || messages[0].name != "next" || messages[0].id != "" || messages[1].name != "complete" {
		t.Fatalf("by GraphQL: %+v", messages)
	}
	var answer reply
	if err := json.Unmarshal([]byte(messages[0].data), &answer); err != nil {
		t.Fatal(err)
	}
	if e := answer.Errors; len(e) != 1 || answer.code() != "CURSOR_EXPIRED" || e[0].Extensions["firstAvailable"] != 5.0 || e[0].Extensions["status"] != "FINISHED" {
		t.Errorf("by GraphQL: %s", messages[0].data)
	}
	if got := fmt.Sprint(sequencesOf(t, ask(4))); got != upTo(5, 9) {
		t.Errorf("what is left, by GraphQL: %s", got)
	}
}

// A reader that stalls is cut off, and has lost nothing when it comes back with the last id that it got whole.
func TestAStalledStreamComesBack(t *testing.T) {
	w := newWorld(t, option{limits: transport.Limits{WriteTimeout: 300 * time.Millisecond}})
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started(), event.TextStarted{MessageID: "m", Role: "assistant"})
	const deltas = 30 << 4 // 7.5 MiB: more than the kernel holds for a connection whose client has little room
	narrow := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if c, ok := conn.(*net.TCPConn); ok {
			err = errors.Join(err, c.SetReadBuffer(64<<10))
		}
		return conn, err
	}}}
	t.Cleanup(narrow.CloseIdleConnections)
	for range deltas / 16 {
		batch := make([]event.Data, 16)
		for i := range batch {
			batch[i] = event.TextDelta{MessageID: "m", Delta: strings.Repeat("x", 16<<10)}
		}
		l.append(batch...)
	}
	l.finish()
	query := document(`subscription { runEvents(runId: "` + l.id + `") { events { sequence ... on TextDeltaEvent { delta } } } }`)
	for name, open := range map[string]func(http.Header) *sse{
		"GraphQL": func(h http.Header) *sse { return w.openWith(narrow, "alice", http.MethodPost, "/graphql", h, query) },
		"plain": func(h http.Header) *sse {
			return w.openWith(narrow, "alice", http.MethodGet, "/v1/runs/"+l.id+"/events", h, "")
		},
	} {
		s := open(nil)
		w.until(func() bool { return w.edge.Streams() == 0 }) // nobody reads: the engine lets go
		got := s.rest()
		over := func() bool {
			return len(got) > 0 && (got[len(got)-1].name == "complete" || got[len(got)-1].name == "run.finished")
		}
		if len(got) == 0 || over() {
			t.Errorf("%s: the stalled reader got %d messages to the end", name, len(got))
			continue
		}
		for !over() { // a busy machine may stall it again
			got = append(got, open(http.Header{"Last-Event-ID": {got[len(got)-1].id}}).rest()...)
		}
		var sequences []int
		if name == "GraphQL" {
			sequences = sequencesOf(t, got)
		} else {
			for _, m := range got {
				sequences = append(sequences, int(m.json(t)["sequence"].(float64)))
			}
		}
		if fmt.Sprint(sequences) != upTo(1, deltas+4) {
			t.Errorf("%s: got %v", name, sequences)
		}
	}
}

// A conversation is resumed by the last id as a run is.
func TestLastEventIDGoesOnWithAConversation(t *testing.T) {
	w := newWorld(t, option{})
	l := w.log("alice", w.agent("alice", "helper"))
	b, err := w.spy.Store.Session(w.ctx, l.session)
	if err == nil { // it has admitted the run
		b.Rev++
		b.NextOrd = 2
		err = w.spy.Store.UpdateSession(w.ctx, b)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.text(3)
	query := document(`subscription { sessionEvents(sessionId: "` + l.session + `") { runId events { sequence } } }`)
	s := w.open("alice", http.MethodPost, "/graphql", nil, query)
	m, ok := s.next()
	if !ok || m.id == "" || len(m.id) > 200 || !strings.Contains(m.data, `"sequence":1}`) {
		t.Fatalf("%+v", m)
	}
	s.close()
	l.append(event.TextDelta{MessageID: "m", Delta: "more"})
	got := []message{m}
	for !strings.Contains(got[len(got)-1].data, `"sequence":6}`) {
		s := w.open("alice", http.MethodPost, "/graphql", http.Header{"Last-Event-ID": {got[len(got)-1].id}}, query)
		m, ok := s.next()
		if !ok || m.name != "next" || m.id == "" {
			t.Fatalf("%+v", m)
		}
		got = append(got, m)
		s.close()
	}
	var sequences []int
	for _, m := range got {
		batch := reply{Data: m.json(t)["data"].(map[string]any)}
		events, _ := batch.at("sessionEvents", "events").([]any)
		for i := range events {
			sequences = append(sequences, int(batch.at("sessionEvents", "events", i, "sequence").(float64)))
		}
	}
	if fmt.Sprint(sequences) != upTo(1, 6) {
		t.Errorf("got %v", sequences)
	}
}
