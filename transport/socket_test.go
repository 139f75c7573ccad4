package transport_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/transport"
)

// frame is a message of graphql-transport-ws.
type frame struct {
	ID      string          `json:"id,omitempty"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// client is a WebSocket client of the protocol, as small as can be.
type client struct {
	w    *world
	conn *websocket.Conn
}

func (w *world) dial(header http.Header) (*client, *http.Response, error) {
	w.t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}, HandshakeTimeout: patience}
	conn, resp, err := dialer.DialContext(w.ctx, "ws"+strings.TrimPrefix(w.http.URL, "http")+"/graphql", header)
	if err != nil {
		return nil, resp, err
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return &client{w: w, conn: conn}, resp, nil
}

// connect dials and authenticates by connection_init.
func (w *world) connect(token string) *client {
	w.t.Helper()
	c, _, err := w.dial(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	c.send(frame{Type: "connection_init", Payload: raw(vars{"Authorization": "Bearer " + token})})
	if f := c.next(); f.Type != "connection_ack" {
		w.t.Fatalf("not acknowledged: %+v", f)
	}
	return c
}

func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func (c *client) send(f frame) {
	c.w.t.Helper()
	if err := c.conn.WriteJSON(f); err != nil {
		c.w.t.Fatal(err)
	}
}

// next is the next frame that is not a ping, which it answers.
func (c *client) next() frame {
	c.w.t.Helper()
	for {
		var f frame
		_ = c.conn.SetReadDeadline(time.Now().Add(patience))
		if err := c.conn.ReadJSON(&f); err != nil {
			c.w.t.Fatalf("read: %v", err)
		}
		if f.Type != "ping" {
			return f
		}
		c.send(frame{Type: "pong"})
	}
}

// closed reads on to the end and returns the close code. No operation is ended before: a client that is cut off comes
// back, one that is told of an error does not.
func (c *client) closed() int {
	c.w.t.Helper()
	for {
		var f frame
		_ = c.conn.SetReadDeadline(time.Now().Add(patience))
		err := c.conn.ReadJSON(&f)
		if closing, ok := err.(*websocket.CloseError); ok { //nolint:errorlint // gorilla gives it bare
			return closing.Code
		}
		if err != nil {
			c.w.t.Fatalf("ended without a close frame: %v", err)
		}
		if f.Type == "error" || f.Type == "complete" {
			c.w.t.Errorf("before the end came %s %s", f.Type, f.Payload)
		}
	}
}

const runEvents = `subscription($id: ID!, $after: Int!) { runEvents(runId: $id, after: $after) { through caughtUp events {
	__typename sequence type runId time ... on TextDeltaEvent { messageId delta } ... on RunCancelledEvent { reason } ... on RunErrorEvent { error { code category } } } } }`

// stream is one subscription of runEvents.
type stream struct {
	*client
	id string
}

func (c *client) subscribe(id, runID string, after int64) *stream {
	c.w.t.Helper()
	c.send(frame{ID: id, Type: "subscribe", Payload: raw(vars{"query": runEvents, "variables": vars{"id": runID, "after": after}})})
	return &stream{client: c, id: id}
}

func (w *world) subscribe(subject, runID string, after int64) *stream {
	w.t.Helper()
	return w.connect(w.token(subject)).subscribe("s", runID, after)
}

// shown is one event as a client sees it.
type shown map[string]any

func (s shown) event(key string) any { return s[key] }

// batch is the next batch; nil after complete.
func (s *stream) batch() []shown {
	s.w.t.Helper()
	f := s.next()
	switch f.Type {
	case "complete":
		return nil
	case "next":
		var p struct {
			Data struct {
				RunEvents struct {
					Events  []shown
					Through float64
				}
			}
			Errors []any
		}
		if err := json.Unmarshal(f.Payload, &p); err != nil || len(p.Errors) > 0 {
			s.w.t.Fatalf("next: %s", f.Payload)
		}
		es := p.Data.RunEvents.Events
		if len(es) > 0 && es[len(es)-1]["sequence"] != p.Data.RunEvents.Through {
			s.w.t.Errorf("through %v after %v", p.Data.RunEvents.Through, es[len(es)-1])
		}
		return append([]shown{}, es...)
	}
	s.w.t.Fatalf("frame %+v %s", f, f.Payload)
	return nil
}

// all reads to complete.
func (s *stream) all() (all []shown) {
	s.w.t.Helper()
	for {
		b := s.batch()
		if b == nil {
			return all
		}
		all = append(all, b...)
	}
}

// toTheEnd reads to complete and returns the last event.
func (s *stream) toTheEnd() shown {
	s.w.t.Helper()
	all := s.all()
	if len(all) == 0 {
		s.w.t.Fatal("no events")
	}
	return all[len(all)-1]
}

// shortAge is a permission's in tests that wait for its end. Within it a check has to be answered, by a slow machine, too.
const shortAge = 2 * time.Second

// until waits for something that other goroutines bring about.
func (w *world) until(done func() bool) {
	w.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatal("it never came about")
		}
	}
}

// Replay and live are one: whoever is there from the start, whoever comes in the middle with a cursor, and whoever
// comes when all is over see the same events, each once.
func TestSubscribersSeeTheSame(t *testing.T) {
	w := newWorld(t, option{})
	l := w.log("alice", w.agent("alice", "helper"))
	early := w.subscribe("alice", l.id, 0)
	l.append(started(), event.TextStarted{MessageID: "m", Role: "assistant"})
	first := early.batch()
	for i := range 50 {
		l.append(event.TextDelta{MessageID: "m", Delta: fmt.Sprintf("%d ", i)})
	}
	middle := w.subscribe("alice", l.id, 20)
	l.append(event.TextFinished{MessageID: "m"}, finished())
	whole := append(first, early.all()...)
	rest := middle.all()
	late := w.subscribe("alice", l.id, 0).all()
	if len(whole) != 54 || whole[0]["sequence"] != 1.0 || whole[53]["type"] != "run.finished" {
		t.Fatalf("%d events, last %v", len(whole), whole[len(whole)-1])
	}
	for i, e := range whole {
		if e["sequence"] != float64(i+1) {
			t.Fatalf("event %d has sequence %v", i+1, e["sequence"])
		}
	}
	if string(raw(whole)) != string(raw(late)) {
		t.Error("the late subscriber saw something else")
	}
	if string(raw(whole[20:])) != string(raw(rest)) {
		t.Error("the one with a cursor saw something else")
	}
	if past := w.subscribe("alice", l.id, 54).all(); len(past) != 0 {
		t.Errorf("past the end: %v", past)
	}
}

// A refused subscription ends with one error frame, and no complete.
func TestASubscriptionIsRefusedWithAnError(t *testing.T) {
	w := newWorld(t, option{})
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started())
	for name, c := range map[string]struct {
		subject, run string
		after        int64
		code         string
	}{
		"stranger": {"bob", l.id, 0, "NOT_FOUND"}, "missing": {"alice", "run_none", 0, "NOT_FOUND"}, "negative": {"alice", l.id, -1, "BAD_USER_INPUT"},
	} {
		s := w.subscribe(c.subject, c.run, c.after)
		f := s.next()
		if f.Type != "error" || !strings.Contains(string(f.Payload), c.code) {
			t.Errorf("%s: %s %s", name, f.Type, f.Payload)
		}
		// The connection is good for another operation, and nothing came between.
		s.send(frame{ID: "q", Type: "subscribe", Payload: raw(vars{"query": "{ viewer { subject } }"})})
		if f := s.next(); f.ID != "q" || f.Type != "next" {
			t.Errorf("%s: then %+v", name, f)
		}
	}
}

// A permission that ends ends the stream, also while nothing happens.
func TestRevocationEndsAnIdleStream(t *testing.T) {
	w := newWorld(t, option{maxAge: shortAge})
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started())
	s := w.subscribe("alice", l.id, 0)
	s.batch()
	l.disown() // the document says who owns the session; without it nobody does
	if f := s.next(); f.Type != "error" || !strings.Contains(string(f.Payload), "FORBIDDEN") {
		t.Errorf("got %s %s", f.Type, f.Payload)
	}
}

// An authorization server that is gone means no: an idle stream ends, and queries get no data.
func TestAnOutageEndsAStream(t *testing.T) {
	o := option{maxAge: shortAge}
	o.api.HoldFor = time.Second
	w := newWorld(t, o)
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started())
	s := w.subscribe("alice", l.id, 0)
	s.batch()
	if err := w.server.Close(w.ctx); err != nil {
		t.Fatal(err)
	}
	if f := s.next(); f.Type != "error" || !strings.Contains(string(f.Payload), "AUTHORIZATION_UNAVAILABLE") {
		t.Errorf("got %s %s", f.Type, f.Payload)
	}
	if r := w.ask("alice", `query($id: ID!) { run(id: $id) { id } }`, vars{"id": l.id}); r.code() != "AUTHORIZATION_UNAVAILABLE" || r.at("run") != nil {
		t.Errorf("a query: %+v", r)
	}
}

func TestHowSocketsEnd(t *testing.T) {
	impatient := newWorld(t, option{limits: transport.Limits{InitTimeout: 200 * time.Millisecond}})
	w := newWorld(t, option{limits: transport.Limits{InitTimeout: patience, MaxBodyBytes: 4096, MaxSocketOps: 2}})
	open := func(w *world, first ...frame) *client {
		c, _, err := w.dial(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range first {
			c.send(f)
		}
		return c
	}
	if code := open(impatient).closed(); code != 4408 {
		t.Errorf("no init: %d", code)
	}
	if code := open(w, frame{Type: "connection_init"}).closed(); code != 4403 {
		t.Errorf("no token: %d", code)
	}
	if code := open(w, frame{Type: "connection_init", Payload: raw(vars{"Authorization": "Bearer x"})}).closed(); code != 4403 {
		t.Errorf("bad token: %d", code)
	}
	large := w.connect(w.token("alice"))
	large.send(frame{ID: "1", Type: "subscribe", Payload: raw(vars{"query": strings.Repeat("x", 5000)})})
	if code := large.closed(); code != 1009 {
		t.Errorf("too large: %d", code)
	}
	for life := 2 * time.Second; ; life *= 2 { // until it is long enough for this machine to connect
		short, err := w.dev.MintDev("alice", life)
		if err != nil {
			t.Fatal(err)
		}
		c := open(w, frame{Type: "connection_init", Payload: raw(vars{"Authorization": "Bearer " + short})})
		var f frame
		acked := c.conn.ReadJSON(&f) == nil && f.Type == "connection_ack"
		if code := c.closed(); acked && code != 4403 {
			t.Errorf("expired: %d", code)
		}
		if acked {
			break
		}
	}

	// The token of the upgrade request is as good as one in connection_init.
	c, _, err := w.dial(http.Header{"Authorization": {"Bearer " + w.token("alice")}})
	if err != nil {
		t.Fatal(err)
	}
	c.send(frame{Type: "connection_init"})
	if f := c.next(); f.Type != "connection_ack" {
		t.Errorf("by header: %+v", f)
	}
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started())
	for i, want := range []string{"next", "next", "error"} {
		if i == 2 {
			want = "RATE_LIMITED"
		}
		if f := c.subscribe(fmt.Sprint(i), l.id, 0).next(); f.Type != want && !strings.Contains(string(f.Payload), want) {
			t.Errorf("operation %d: %s %s", i+1, f.Type, f.Payload)
		}
	}
	w.edge.Drain()
	if code := c.closed(); code != 1012 {
		t.Errorf("drain: %d", code)
	}
	if r := w.ask("alice", `{ viewer { subject } }`, nil); r.status != http.StatusServiceUnavailable || r.code() != "CAPACITY" {
		t.Errorf("while draining: %+v", r)
	}
}

func TestUpgradesAreRefused(t *testing.T) {
	w := newWorld(t, option{limits: transport.Limits{MaxSockets: 1}})
	if _, resp, err := w.dial(http.Header{"Origin": {"https://evil.example"}}); err == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("foreign origin: %v", err)
	}
	if _, resp, err := w.dial(http.Header{"Authorization": {"Bearer nonsense"}}); err == nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("bad token: %v", err)
	}
	w.connect(w.token("alice"))
	if _, resp, err := w.dial(nil); err == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one too many: %v", err)
	}
}

// sent reads what comes until the operation is complete or the connection ends: a busy machine may cut off whoever reads, too.
func (c *client) sent() (events []shown, complete bool) {
	c.w.t.Helper()
	defer c.conn.Close()
	for {
		var f struct {
			Type    string
			Payload struct {
				Data struct{ RunEvents struct{ Events []shown } }
			}
		}
		_ = c.conn.SetReadDeadline(time.Now().Add(patience))
		if err := c.conn.ReadJSON(&f); err != nil {
			return events, false
		}
		if f.Type == "complete" {
			return events, true
		}
		events = append(events, f.Payload.Data.RunEvents.Events...)
	}
}

// A reader that stops is cut off, and comes back with its cursor: nothing is lost, and nobody else waits for it.
func TestAStalledReaderComesBack(t *testing.T) {
	const events = 500
	w := newWorld(t, option{limits: transport.Limits{WriteTimeout: 300 * time.Millisecond}})
	l := w.log("alice", w.agent("alice", "helper"))
	dialer := websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}, NetDial: func(network, addr string) (net.Conn, error) {
		conn, err := net.Dial(network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(256 << 10)
		}
		return conn, err
	}}
	conn, _, err := dialer.DialContext(w.ctx, "ws"+strings.TrimPrefix(w.http.URL, "http")+"/graphql", http.Header{"Authorization": {"Bearer " + w.token("alice")}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stalled := &client{w: w, conn: conn}
	stalled.send(frame{Type: "connection_init"})
	if f := stalled.next(); f.Type != "connection_ack" {
		t.Fatalf("not acknowledged: %+v", f)
	}
	stalled.subscribe("s", l.id, 0)
	l.append(started(), event.TextStarted{MessageID: "m", Role: "assistant"})
	some := make([]event.Data, events/10)
	for i := range some {
		some[i] = event.TextDelta{MessageID: "m", Delta: strings.Repeat("x", 16<<10)}
	}
	for range 10 {
		l.append(some...)
	}
	l.append(event.TextFinished{MessageID: "m"}, finished())
	take := func(through float64, batch []shown) float64 {
		for _, e := range batch {
			if e["sequence"] != through+1 {
				t.Fatalf("event %v behind %v", e["sequence"], through)
			}
			through++
		}
		return through
	}
	rest := func(through float64) { // comes back until it has all
		for complete := false; !complete; {
			var batch []shown
			batch, complete = w.subscribe("alice", l.id, int64(through)).sent()
			through = take(through, batch)
		}
		if through != events+4 {
			t.Errorf("%v events", through)
		}
	}
	rest(0)
	w.until(func() bool { return w.edge.Sockets() == 0 }) // nobody reads: the engine lets go
	batch, complete := stalled.sent()
	if complete {
		t.Fatal("it was not cut off")
	}
	through := take(0, batch)
	if through == 0 || through == events+4 {
		t.Fatalf("it had got %v events, so this shows nothing", through)
	}
	rest(through)
}

// Operations on one socket do not disturb each other: two feeds, an ordinary subscription, and queries between them.
func TestOperationsOnOneSocket(t *testing.T) {
	w := newWorld(t, option{})
	agent := w.agent("alice", "helper")
	first, second := w.log("alice", agent), w.log("alice", agent)
	c := w.connect(w.token("alice"))
	c.subscribe("a", first.id, 0)
	c.subscribe("b", second.id, 0)
	c.send(frame{ID: "c", Type: "subscribe", Payload: raw(vars{"query": "subscription { sessionChanged { id } }"})})
	for i := range 20 {
		for id, l := range map[string]*log{"a": first, "b": second} {
			if i == 0 {
				l.append(started(), event.TextStarted{MessageID: "m", Role: "assistant"})
			} else {
				l.append(event.TextDelta{MessageID: "m", Delta: "x"})
			}
			if f := c.next(); f.ID != id || f.Type != "next" {
				t.Fatalf("%d: %s got %+v %s", i, id, f, f.Payload)
			}
		}
		c.send(frame{ID: "q", Type: "subscribe", Payload: raw(vars{"query": "{ viewer { subject } }"})})
		for _, want := range []string{"next", "complete"} {
			if f := c.next(); f.ID != "q" || f.Type != want {
				t.Fatalf("%d: %+v", i, f)
			}
		}
	}
	c.send(frame{ID: "a", Type: "complete"})
	c.send(frame{ID: "q", Type: "subscribe", Payload: raw(vars{"query": "{ viewer { subject } }"})})
	c.next()
	c.next()
	first.append(event.TextFinished{MessageID: "m"}, finished())
	second.append(event.TextFinished{MessageID: "m"}, finished())
	for _, want := range []string{"next", "complete"} {
		if f := c.next(); f.ID != "b" || f.Type != want {
			t.Fatalf("at the end: %+v", f)
		}
	}
}
