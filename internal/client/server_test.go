package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// act is what a test's server does on one subscription.
type act struct {
	through int64  // sends the events up to this sequence
	overlap int64  // and so many before the cursor again, as no server should
	skip    bool   // leaves one out, as no server should
	end     string // then: "complete", "cut", or "error CODE"; nothing keeps the connection open
}

// server is a scripted engine: it speaks graphql-transport-ws and plays an act for each subscription.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	acts   []act
	afters []int64 // cursor of each subscription
	tokens []string
	accept func(token string) bool
}

func newServer(t testing.TB, acts ...act) *server {
	s := &server{acts: acts, accept: func(string) bool { return true }}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *server) client(t testing.TB, renew func() Target) *Client {
	o := Options{Target: Target{URL: s.URL, Token: "first"}}
	if renew != nil {
		o.Renew = renewal(renew)
	}
	c := New(o)
	t.Cleanup(c.Close)
	return c
}

// terminalAt is the sequence of the run's terminal.
const terminalAt = 40

func eventJSON(sequence int64) string {
	kind := TextDelta
	if sequence == terminalAt {
		kind = RunFinished
	}
	return fmt.Sprintf(`{"runId":"run_x","sequence":%d,"type":%q,"namespace":[],"time":"2026-05-04T12:30:00.000Z","delta":"%d "}`, sequence, kind, sequence)
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{Subprotocols: []string{subprotocol}, CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	var m message
	var auth struct{ Authorization string }
	if conn.ReadJSON(&m) != nil || json.Unmarshal(m.Payload, &auth) != nil {
		return
	}
	s.mu.Lock()
	s.tokens = append(s.tokens, auth.Authorization)
	s.mu.Unlock()
	if !s.accept(auth.Authorization) {
		_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(closeForbidden, "no"))
		return
	}
	_ = conn.WriteJSON(message{Type: msgAck})
	var sub struct {
		Variables struct {
			After int64 `json:"after"`
		} `json:"variables"`
	}
	if conn.ReadJSON(&m) != nil || json.Unmarshal(m.Payload, &sub) != nil {
		return
	}
	s.play(conn, m.ID, s.next(sub.Variables.After), sub.Variables.After)
}

func (s *server) next(after int64) act {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.afters = append(s.afters, after)
	if len(s.acts) == 0 {
		return act{through: terminalAt, end: "complete"}
	}
	a := s.acts[0]
	s.acts = s.acts[1:]
	return a
}

func (s *server) play(conn *websocket.Conn, id string, a act, after int64) {
	for n := max(after-a.overlap, 0) + 1; n <= a.through; n++ {
		if a.skip && n == after+2 {
			continue
		}
		_ = conn.WriteJSON(message{ID: id, Type: msgNext, Payload: json.RawMessage(fmt.Sprintf(
			`{"data":{"runEvents":{"through":%d,"caughtUp":true,"events":[%s]}}}`, n, eventJSON(n)))})
	}
	switch {
	case a.end == "complete":
		_ = conn.WriteJSON(message{ID: id, Type: msgComplete})
	case a.end == "cut":
		return
	case len(a.end) > len("error "):
		_ = conn.WriteJSON(message{ID: id, Type: msgError, Payload: json.RawMessage(
			fmt.Sprintf(`[{"message":"refused","extensions":{"code":%q}}]`, a.end[len("error "):]))})
	}
	for { // until the client leaves
		if _, _, err := conn.ReadMessage(); err != nil {
			return
		}
	}
}
