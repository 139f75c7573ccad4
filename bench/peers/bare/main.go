// Command bare is the least that fan-out can cost in Go with gorilla/websocket: each event is encoded and framed once,
// and one goroutine writes the same bytes to every socket of the run, one system call each. It knows no GraphQL, no
// authorization, no slow readers and no second subscription on a socket; what it writes is what a client of
// graphql-transport-ws expects to read.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/harness-engine/harness-engine/bench/peers/play"
)

// hub knows the sockets of each run.
type hub struct {
	mu   sync.Mutex
	runs map[string]map[*websocket.Conn]struct{}
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
	h := &hub{runs: map[string]map[*websocket.Conn]struct{}{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /play", play.Handler(h.publish))
	mux.HandleFunc("/graphql", h.serve)
	play.Announce(l.Addr().String())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	if err := server.Serve(l); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

// message is what a client sends.
type message struct {
	Type    string `json:"type"`
	Payload struct {
		Variables struct {
			Run string `json:"run"`
		} `json:"variables"`
	} `json:"payload"`
}

var upgrader = websocket.Upgrader{
	Subprotocols: []string{"graphql-transport-ws"}, CheckOrigin: func(*http.Request) bool { return true },
	ReadBufferSize: 512, WriteBufferSize: 512,
}

func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	c, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	run := ""
	defer func() { h.leave(run, c) }()
	for {
		var m message
		if err := c.ReadJSON(&m); err != nil {
			return
		}
		switch m.Type {
		case "connection_init":
			if err := c.WriteMessage(websocket.TextMessage, []byte(`{"type":"connection_ack"}`)); err != nil {
				return
			}
		case "subscribe":
			run = m.Payload.Variables.Run
			h.enter(run, c)
		}
	}
}

func (h *hub) enter(run string, c *websocket.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs[run] == nil {
		h.runs[run] = map[*websocket.Conn]struct{}{}
	}
	h.runs[run][c] = struct{}{}
}

func (h *hub) leave(run string, c *websocket.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.runs[run], c); len(h.runs[run]) == 0 {
		delete(h.runs, run)
	}
}

// publish writes the event to each socket of its run.
func (h *hub) publish(e play.Event) {
	prepared, err := websocket.NewPreparedMessage(websocket.TextMessage, frame(e))
	if err != nil {
		panic(err) // the frame is a mistake of this program
	}
	h.mu.Lock()
	conns := make([]*websocket.Conn, 0, len(h.runs[e.RunID]))
	for c := range h.runs[e.RunID] {
		conns = append(conns, c)
	}
	h.mu.Unlock()
	for _, c := range conns {
		if c.WritePreparedMessage(prepared) != nil {
			_ = c.Close() // its reader forgets it
		}
	}
}

// frame is what GraphQL would make of the benchmark's selection.
func frame(e play.Event) []byte {
	quote := func(s string) string { b, _ := json.Marshal(s); return string(b) } // strings always encode
	special := ""
	switch e.Type {
	case play.TextStarted:
		special = `,"messageId":` + quote(e.MessageID) + `,"role":` + quote(e.Role)
	case play.TextDelta:
		special = `,"messageId":` + quote(e.MessageID) + `,"delta":` + quote(e.Delta)
	case play.TextFinished:
		special = `,"messageId":` + quote(e.MessageID)
	}
	return fmt.Appendf(nil, `{"id":"1","type":"next","payload":{"data":{"runEvents":{"through":%d,"caughtUp":true,"events":[`+
		`{"__typename":%q,"runId":%q,"sequence":%d,"time":%q,"type":%q,"namespace":[]%s}]}}}}`,
		e.Sequence, e.Typename(), e.RunID, e.Sequence, e.Stamp(), e.Type, special)
}
