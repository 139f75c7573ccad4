package ws

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// Each row of the protocol's table that closes a socket.
func TestCloses(t *testing.T) {
	w := newWorld(t, nil)
	feed := `{"id":"1","type":"subscribe","payload":{"query":"wait"}}`
	init := `{"type":"connection_init","payload":{"authorization":"Bearer alice"}}`
	for name, c := range map[string]struct {
		ready bool
		send  []string
		code  int
	}{
		"bad JSON":                {false, []string{`{"type":`}, 4400},
		"no object":               {false, []string{`[]`}, 4400},
		"not UTF-8":               {false, []string{"{\"type\":\"p\xff\"}"}, 4400},
		"too deep":                {false, []string{`{"type":"ping","payload":{"a":` + nested(20) + `}}`}, 4400},
		"unknown type":            {true, []string{`{"type":"start"}`}, 4400},
		"a server's type":         {true, []string{`{"type":"connection_ack"}`}, 4400},
		"empty id":                {true, []string{`{"id":"","type":"subscribe","payload":{"query":"wait"}}`}, 4400},
		"no id":                   {true, []string{`{"type":"complete"}`}, 4400},
		"no payload":              {true, []string{`{"id":"1","type":"subscribe"}`}, 4400},
		"no document":             {true, []string{`{"id":"1","type":"subscribe","payload":{"query":1}}`}, 4400},
		"variables of no object":  {true, []string{`{"id":"1","type":"subscribe","payload":{"query":"wait","variables":[]}}`}, 4400},
		"subscribe before init":   {false, []string{feed}, 4401},
		"second init":             {true, []string{init}, 4429},
		"refused":                 {false, []string{`{"type":"connection_init","payload":{"Authorization":"Bearer bad"}}`}, 4403},
		"no bearer":               {false, []string{`{"type":"connection_init","payload":{"Authorization":{}}}`}, 4403},
		"nobody":                  {false, []string{`{"type":"connection_init"}`}, 4403},
		"not judged":              {false, []string{`{"type":"connection_init","payload":{"Authorization":"Bearer outage"}}`}, 1013},
		"id in use":               {true, []string{feed, feed}, 4409},
		"id in use, spelt anew":   {true, []string{feed, strings.Replace(feed, `"1"`, `"\u0031"`, 1)}, 4409},
		"too long":                {true, []string{`{"type":"ping","payload":{"a":"` + strings.Repeat("x", 64<<10) + `"}}`}, 1009},
		"too long of a stranger":  {false, []string{`{"type":"ping","payload":{"a":"` + strings.Repeat("x", 2<<10) + `"}}`}, 1009},
		"much too long":           {true, []string{`{"type":"ping","payload":{"a":"` + strings.Repeat("x", 4<<20) + `"}}`}, 1009},
		"nothing more is obeyed":  {true, []string{`x`, feed, feed, init}, 4400},
		"a ping before the fault": {false, []string{`{"type":"pong"}`, `{"type":"complete","id":"7"}`, feed}, 4401},
	} {
		t.Run(name, func(t *testing.T) {
			client := w.dial(Subprotocol)
			if c.ready {
				client = w.ready("alice")
			}
			client.t = t
			for _, m := range c.send {
				if client.conn.WriteMessage(websocket.TextMessage, []byte(m)) != nil {
					break // it was closed in the middle
				}
			}
			client.wantClose(c.code)
		})
	}
	t.Run("no text", func(t *testing.T) {
		client := w.ready("alice")
		client.t = t
		if err := client.conn.WriteMessage(websocket.BinaryMessage, []byte(`{"type":"ping"}`)); err != nil {
			t.Fatal(err)
		}
		client.wantClose(4400)
	})
	t.Run("second init while the first is judged", func(t *testing.T) {
		w.mu.Lock()
		w.judging = make(chan struct{})
		w.mu.Unlock()
		client := w.dial(Subprotocol)
		client.t = t
		client.send(init, init)
		client.wantClose(4429)
		w.mu.Lock()
		close(w.judging)
		w.judging = nil
		w.mu.Unlock()
	})
}

func TestSubprotocols(t *testing.T) {
	w := newWorld(t, nil)
	w.dial().wantClose(4406)
	w.dial("graphql-ws").wantClose(4406)
	for _, offered := range [][]string{{"graphql-ws", Subprotocol}, {Subprotocol, "graphql-ws"}, {"x", Subprotocol}} {
		if c := w.dial(offered...); c.conn.Subprotocol() != Subprotocol {
			t.Errorf("of %v: %q", offered, c.conn.Subprotocol())
		}
	}
}

func TestInitTimeout(t *testing.T) {
	patiently(t, func(within time.Duration) bool {
		w := newWorld(t, func(l *Limits) { l.InitTimeout = within })
		c := w.dial(Subprotocol)
		_ = c.conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"ping"}`))
		if got, err := c.next(); got != `{"type":"pong"}` {
			if !websocket.IsCloseError(err, CloseInitTimeout) {
				t.Fatalf("got %s (%v)", got, err)
			}
			return false
		}
		c.wantClose(4408)
		return true
	})
}

// The token of the upgrade request is as good as one in connection_init, and that one is preferred.
func TestUpgradeToken(t *testing.T) {
	w := newWorld(t, nil)
	for payload, code := range map[string]int{`{}`: 0, `{"Authorization":"Bearer bad"}`: 4403} {
		dialer := websocket.Dialer{Subprotocols: []string{Subprotocol}}
		conn, _, err := dialer.Dial("ws"+strings.TrimPrefix(w.http.URL, "http"), http.Header{"Subject": {"alice"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		c := &client{t, conn}
		c.send(`{"type":"connection_init","payload":` + payload + `}`)
		if code != 0 {
			c.wantClose(code)
			continue
		}
		c.want(`{"type":"connection_ack"}`)
	}
}

func TestTokenExpires(t *testing.T) {
	patiently(t, func(within time.Duration) bool {
		w := newWorld(t, nil)
		w.lasts = within
		w.feed("a").put(`{"data":1}`)
		c := w.dial(Subprotocol)
		c.send(`{"type":"connection_init","payload":{"Authorization":"Bearer alice"}}`)
		inTime := func(want string) bool {
			got, err := c.next()
			if got != want && !websocket.IsCloseError(err, CloseForbidden) {
				t.Fatalf("got %s (%v), want %s", got, err, want)
			}
			return got == want
		}
		if !inTime(`{"type":"connection_ack"}`) {
			return false
		}
		_ = c.conn.WriteMessage(websocket.TextMessage, []byte(`{"id":"1","type":"subscribe","payload":{"query":"feed a"}}`))
		if !inTime(`{"id":"1","type":"next","payload":{"data":1}}`) {
			return false
		}
		c.wantClose(4403)
		return true
	})
}

func TestCallersPlaces(t *testing.T) {
	w := newWorld(t, nil)
	first := w.ready("crowd")
	second := w.dial(Subprotocol)
	second.send(`{"type":"connection_init","payload":{"Authorization":"Bearer crowd"}}`)
	second.wantClose(1013)
	_ = first.conn.Close()
	w.until("the place is not free again", func() bool { return w.server.Count() == 0 })
	w.ready("crowd")
}

func TestPings(t *testing.T) {
	w := newWorld(t, nil)
	c := w.ready("alice")
	c.send(`{"type":"ping","payload":{"n": 1}}`)
	c.want(`{"type":"pong","payload":{"n": 1}}`)
	pong := ""
	c.conn.SetPongHandler(func(data string) error { pong = data; return nil })
	if err := c.conn.WriteControl(websocket.PingMessage, []byte("hello"), time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	c.send(`{"type":"ping"}`)
	c.want(`{"type":"pong"}`)
	if pong != "hello" {
		t.Errorf("pong %q", pong)
	}
	patiently(t, func(within time.Duration) bool {
		w := newWorld(t, func(l *Limits) { l.PingInterval = within })
		c := w.ready("alice")
		for range 3 { // as long as it answers it may stay
			if got, err := c.next(); got != `{"type":"ping"}` {
				if err == nil {
					t.Fatalf("got %s", got)
				}
				return false
			}
			_ = c.conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"pong"}`))
		}
		if got, err := c.next(); got != `{"type":"ping"}` {
			if err == nil {
				t.Fatalf("got %s", got)
			}
			return false
		}
		c.wantEnd() // it does not answer
		return true
	})
}

func TestOperations(t *testing.T) {
	w := newWorld(t, nil)
	c := w.ready("alice")
	for document, want := range map[string][]string{
		"query a": {`{"id":"1","type":"next","payload":{"data":"a"}}`, `{"id":"1","type":"complete"}`},
		"count 2": {`{"id":"1","type":"next","payload":{"data":1}}`, `{"id":"1","type":"next","payload":{"data":2}}`, `{"id":"1","type":"complete"}`},
		"invalid": {`{"id":"1","type":"error","payload":[{"message":"invalid"}]}`},
		"refused": {`{"id":"1","type":"error","payload":[{"message":"refused","extensions":{"code":"NOT_FOUND"}}]}`},
		"failing": {`{"id":"1","type":"next","payload":{"data":1}}`, `{"id":"1","type":"error","payload":[{"message":"it failed"}]}`},
		"panic":   {`{"id":"1","type":"error","payload":[{"message":"internal error"}]}`},
	} {
		c.subscribe("1", document) // the id is free at the end of the one before
		c.want(want...)
	}
	c.send(`{"type":"ping"}`) // and nothing came behind
	c.want(`{"type":"pong"}`)
}

// An id as it was sent comes back as it was sent.
func TestIDs(t *testing.T) {
	w := newWorld(t, nil)
	c := w.ready("alice")
	c.send(`{"id":"\u00e9\n\"<","type":"subscribe","payload":{"query":"query a"}}`)
	c.want(`{"id":"\u00e9\n\"<","type":"next","payload":{"data":"a"}}`, `{"id":"\u00e9\n\"<","type":"complete"}`)
}

func TestAClientCompletes(t *testing.T) {
	w := newWorld(t, nil)
	c := w.ready("alice")
	for _, document := range []string{"wait", "feed a", "hold x"} {
		c.subscribe("1", document)
		c.send(`{"id":"1","type":"complete"}`)
		c.subscribe("1", "query b") // the id is free at once
		c.want(`{"id":"1","type":"next","payload":{"data":"b"}}`, `{"id":"1","type":"complete"}`)
	}
	w.until("an operation is left", func() bool {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		for k := range w.server.sockets {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.working == 0 && k.finite == 0 && len(k.ops) == 0
		}
		return false
	})
}

func TestOperationsAtOnce(t *testing.T) {
	w := newWorld(t, func(l *Limits) { l.MaxOps = 2 })
	c := w.ready("alice")
	c.subscribe("1", "hold x")
	c.subscribe("2", "feed a")
	c.subscribe("3", "query c")
	c.want(`{"id":"3","type":"error","payload":[{"message":"a connection carries at most 2 operations at once","extensions":{"code":"RATE_LIMITED"}}]}`)
	w.release("x")
	c.want(`{"id":"1","type":"next","payload":{"data":"x"}}`, `{"id":"1","type":"complete"}`)
}

// More operations than may be executed at once wait for each other.
func TestExecutedAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.executing(1, 1)
	c := w.ready("alice")
	c.subscribe("1", "hold x")
	c.subscribe("2", "query c")
	c.send(`{"type":"ping"}`)
	c.want(`{"type":"pong"}`)
	w.release("x")
	c.want(`{"id":"1","type":"next","payload":{"data":"x"}}`, `{"id":"1","type":"complete"}`)
	c.want(`{"id":"2","type":"next","payload":{"data":"c"}}`, `{"id":"2","type":"complete"}`)
}

func TestFeeds(t *testing.T) {
	w := newWorld(t, nil)
	c := w.ready("alice")
	a := w.feed("a")
	a.put(`{"data":1}`, `{"data":2}`)
	c.subscribe("1", "feed a")
	c.want(`{"id":"1","type":"next","payload":{"data":1}}`, `{"id":"1","type":"next","payload":{"data":2}}`)
	a.put(`{"data":3}`)
	c.want(`{"id":"1","type":"next","payload":{"data":3}}`)
	large := `{"data":"` + strings.Repeat("x", 3*sharedBytes) + `"}`
	a.put(`{"data":4}`, large, `{"data":5}`, large)
	c.want(`{"id":"1","type":"next","payload":{"data":4}}`, `{"id":"1","type":"next","payload":`+large+`}`,
		`{"id":"1","type":"next","payload":{"data":5}}`, `{"id":"1","type":"next","payload":`+large+`}`)
	a.finish(io.EOF)
	c.want(`{"id":"1","type":"complete"}`)
	b := w.feed("b")
	c.subscribe("1", "feed b")
	b.finish(&gqlerror.Error{Message: "FORBIDDEN"})
	c.want(`{"id":"1","type":"error","payload":[{"message":"FORBIDDEN"}]}`)
	w.feed("c").put("panic")
	c.subscribe("1", "feed c")
	c.want(`{"id":"1","type":"error","payload":[{"message":"internal error"}]}`)
}
