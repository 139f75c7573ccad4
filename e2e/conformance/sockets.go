package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// protocol is the subprotocol that is spoken.
const protocol = "graphql-transport-ws"

// patience bounds the wait for what comes at once: a slow machine takes its time, and what is missing never comes.
const patience = 90 * time.Second

// row is one row of the table: a situation, what the engine must answer, and how it is brought about. The probe returns
// what was seen, and an error where that is not what must be.
type row struct {
	situation, want string
	probe           func(ctx context.Context, s *stage) (string, error)
}

// trySockets brings about every row of the table. The first ones disturb nobody and go beside each other; the last ones
// change the stage, one after the other, and the very last takes the engine away.
func trySockets(ctx context.Context, s *stage) error {
	beside, behind := protocolRows(), stageRows()
	seen := make([]string, len(beside)+len(behind))
	failed := make([]bool, len(seen))
	try := func(i int, r row) {
		got, err := r.probe(ctx, s)
		if err != nil {
			failed[i] = true
			got = fmt.Sprintf("FAILED: %s %s", got, err)
		}
		seen[i] = got
	}
	var all sync.WaitGroup
	for i, r := range beside {
		all.Go(func() { try(i, r) })
	}
	all.Wait()
	for i, r := range behind {
		try(len(beside)+i, r)
	}
	wrong := 0
	fmt.Printf("  %-44s %-34s %s\n", "situation", "must", "seen")
	for i, r := range append(beside, behind...) {
		if failed[i] {
			wrong++
		}
		fmt.Printf("  %-44s %-34s %s\n", r.situation, r.want, seen[i])
	}
	fmt.Printf("  graphql-transport-ws: %d of %d rows as they must be\n", len(seen)-wrong, len(seen))
	if wrong > 0 {
		return fmt.Errorf("%d rows of graphql-transport-ws are not as they must be", wrong)
	}
	return nil
}

// frame is a message of the protocol.
type frame struct {
	ID      string          `json:"id,omitempty"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// wire is one raw WebSocket.
type wire struct{ *websocket.Conn }

// open makes a WebSocket that offers the subprotocols.
func open(ctx context.Context, s *stage, header http.Header, protocols ...string) (wire, error) {
	d := websocket.Dialer{
		Subprotocols: protocols, HandshakeTimeout: patience,
		NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if tcp, ok := conn.(*net.TCPConn); ok && header.Get(smallWindow) != "" {
				_ = tcp.SetReadBuffer(16 << 10)
			}
			return conn, err
		},
	}
	conn, res, err := d.DialContext(ctx, strings.Replace(s.engine.URL(), "http", "ws", 1)+"/graphql", header)
	if res != nil {
		defer res.Body.Close()
	}
	switch {
	case err == nil:
		return wire{conn}, nil
	case res != nil:
		return wire{}, fmt.Errorf("status %d: %w", res.StatusCode, err)
	default:
		return wire{}, err
	}
}

// smallWindow marks the upgrade request of a client that takes little at a time.
const smallWindow = "X-Small-Window"

// initiated makes a WebSocket of the development subject, or of the token's where there is one, ready for operations.
func initiated(ctx context.Context, s *stage, header http.Header, token ...string) (wire, error) {
	w, err := open(ctx, s, header, protocol)
	if err != nil {
		return w, err
	}
	who := s.client.Target().Token
	if len(token) > 0 {
		who = token[0]
	}
	if err := w.say(`{"type":"connection_init","payload":{"Authorization":"Bearer ` + who + `"}}`); err != nil {
		return w, err
	}
	f, err := w.hear(patience)
	if err == nil && f.Type != "connection_ack" {
		err = fmt.Errorf("got %s, want connection_ack", f.Type)
	}
	return w, err
}

// end closes the connection as it is.
func (w wire) end() { _ = w.Close() }

func (w wire) say(text string) error { return w.WriteMessage(websocket.TextMessage, []byte(text)) }

// subscribe asks for an operation.
func (w wire) subscribe(id, query string) error {
	q, err := json.Marshal(query)
	if err != nil {
		return err
	}
	return w.say(fmt.Sprintf(`{"id":%q,"type":"subscribe","payload":{"query":%s}}`, id, q))
}

// hear reads the next message that is no ping, and answers those: the engine takes who does not for dead.
func (w wire) hear(within time.Duration) (frame, error) {
	if err := w.SetReadDeadline(time.Now().Add(within)); err != nil {
		return frame{}, err
	}
	for {
		var f frame
		if err := w.ReadJSON(&f); err != nil || f.Type != "ping" {
			return f, err
		}
		if err := w.say(`{"type":"pong"}`); err != nil {
			return f, err
		}
	}
}

// closes reads until the engine closes, and says whether it is with the code; messages on the way are an error where
// none may come.
func (w wire) closes(code int, within time.Duration, quiet bool) (string, error) {
	defer w.end()
	for {
		f, err := w.hear(within)
		var closed *websocket.CloseError
		switch {
		case errors.As(err, &closed):
			seen := fmt.Sprintf("%d %s", closed.Code, closed.Text)
			if closed.Code != code {
				return seen, fmt.Errorf("(want %d)", code)
			}
			return seen, nil
		case err != nil:
			return "", err
		case quiet:
			return f.Type, fmt.Errorf("(want the close code %d and nothing else)", code)
		}
	}
}

// hanging starts a run that says something and then hangs until it is cancelled.
func (s *stage) hanging(ctx context.Context) (enginetest.Run, error) {
	return s.play(ctx, enginetest.Say("One."), enginetest.Hang())
}

// play starts a run of a script.
func (s *stage) play(ctx context.Context, steps ...enginetest.Step) (enginetest.Run, error) {
	agent, err := s.client.NewAgent(ctx, fmt.Sprintf("player-%d", time.Now().UnixNano()), scripted)
	if err != nil {
		return enginetest.Run{}, err
	}
	return s.client.Start(ctx, enginetest.StartInput{AgentID: agent.ID, Message: enginetest.Input{Text: enginetest.Script(steps...)}})
}

// cancel ends a run that hangs; what is left of it ends with the engine.
func (s *stage) cancel(ctx context.Context, run string) { _, _ = s.client.Cancel(ctx, run) }

// events is the subscription of a run's events.
func events(run string, after int64) string {
	return fmt.Sprintf(`subscription { runEvents(runId: %q, after: %d) { through events { sequence type ... on TextDeltaEvent { delta } } } }`, run, after)
}
