// Command gorilla starts a run and follows it over graphql-transport-ws with gorilla/websocket. ENGINE, TOKEN, AGENT and
// TEXT say what.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

var engine, token = os.Getenv("ENGINE"), os.Getenv("TOKEN")

const (
	startRun = `mutation ($in: StartRunInput!) {
	  startRun(input: $in) { ... on StartRunSuccess { run { id logEpoch } } ... on Problem { message } }
	}`
	runEvents = `subscription ($runId: ID!, $logEpoch: ID, $after: Int!) {
	  runEvents(runId: $runId, logEpoch: $logEpoch, after: $after) {
	    through events { sequence type ... on TextDeltaEvent { delta } }
	  }
	}`
)

type operation struct {
	Query     string         `json:"query"`
	Variables map[string]any `json:"variables"`
}

// run is a run with the history that its cursors count.
type run struct {
	ID       string
	LogEpoch string
}

type message struct {
	ID      string `json:"id,omitempty"`
	Type    string `json:"type"`
	Payload any    `json:"payload,omitempty"`
}

// errFinal: the engine refuses, and would refuse again.
var errFinal = errors.New("refused")

// start starts a run.
func start(agent, text string) (r run, err error) {
	in := map[string]any{"agentId": agent, "message": map[string]any{"text": text}}
	body, err := json.Marshal(operation{startRun, map[string]any{"in": in}})
	if err != nil {
		return r, err
	}
	req, err := http.NewRequest(http.MethodPost, engine+"/graphql", bytes.NewReader(body))
	if err != nil {
		return r, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, err
	}
	defer res.Body.Close()
	var answer struct {
		Data struct {
			StartRun struct {
				Run     run
				Message string
			}
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return r, err
	}
	if answer.Data.StartRun.Run.ID == "" {
		return r, fmt.Errorf("%w: %s", errFinal, answer.Data.StartRun.Message)
	}
	return answer.Data.StartRun.Run, nil
}

// follow reads the events behind the cursor on one connection and moves the cursor. It returns nil when the run is
// complete.
func follow(r run, after *int64) error {
	dialer := websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}, HandshakeTimeout: 10 * time.Second}
	conn, res, err := dialer.Dial(strings.Replace(engine, "http", "ws", 1)+"/graphql", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	defer func() { _ = conn.Close() }()

	// The engine pings: who hears nothing for so long has lost the connection.
	alive := func() { _ = conn.SetReadDeadline(time.Now().Add(30 * time.Second)) }
	conn.SetPingHandler(func(data string) error {
		alive()
		return conn.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(10*time.Second))
	})
	hello := message{Type: "connection_init", Payload: map[string]string{"Authorization": "Bearer " + token}}
	if err := conn.WriteJSON(hello); err != nil {
		return err
	}
	for {
		alive()
		var in struct {
			Type    string
			Payload json.RawMessage
		}
		if err := conn.ReadJSON(&in); err != nil {
			if websocket.IsCloseError(err, 4400, 4401, 4403, 4406, 4409, 4429) {
				return fmt.Errorf("%w: %w", errFinal, err)
			}
			return err
		}
		switch in.Type {
		case "connection_ack":
			ask := operation{runEvents, map[string]any{"runId": r.ID, "logEpoch": r.LogEpoch, "after": *after}}
			if err := conn.WriteJSON(message{ID: "1", Type: "subscribe", Payload: ask}); err != nil {
				return err
			}
		case "ping":
			if err := conn.WriteJSON(message{Type: "pong"}); err != nil {
				return err
			}
		case "next":
			var result struct {
				Data struct {
					RunEvents struct {
						Through int64
						Events  []json.RawMessage
					}
				}
			}
			if err := json.Unmarshal(in.Payload, &result); err != nil {
				return err
			}
			for _, e := range result.Data.RunEvents.Events {
				fmt.Printf("%s\n", e)
			}
			*after = max(*after, result.Data.RunEvents.Through)
		case "error":
			return refusal(in.Payload)
		case "complete":
			return nil
		}
	}
}

// refusal is a final error, but for what the engine says with "later".
func refusal(payload json.RawMessage) error {
	var errs []struct{ Extensions struct{ Code string } }
	if err := json.Unmarshal(payload, &errs); err == nil && len(errs) > 0 {
		switch errs[0].Extensions.Code {
		case "CAPACITY", "AUTHORIZATION_UNAVAILABLE":
			return errors.New(string(payload))
		}
	}
	return fmt.Errorf("%w: %s", errFinal, payload)
}

func main() {
	r, err := start(os.Getenv("AGENT"), os.Getenv("TEXT"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("run", r.ID)
	var after int64
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		from := after
		err := follow(r, &after)
		if err == nil {
			break
		}
		if errors.Is(err, errFinal) {
			log.Fatal(err)
		}
		if after > from {
			wait = 100 * time.Millisecond
		}
		time.Sleep(wait/2 + rand.N(wait)) // many clients do not come back in step
	}
	fmt.Println("complete")
}
