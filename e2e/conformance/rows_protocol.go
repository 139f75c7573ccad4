package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// What the engine is configured to do, by docs/api.md.
const (
	initTimeout  = 10 * time.Second
	pingInterval = 12 * time.Second
	writeTimeout = 10 * time.Second
	operations   = 100 // at once on one socket
	maxMessage   = 1 << 20
)

// protocolRows are the rows that disturb nobody else.
func protocolRows() []row {
	return []row{
		{"no connection_init in time (10 s)", "close 4408", probeSilence},
		{"a message that is no JSON", "close 4400", afterInit(`{"type":`, 4400)},
		{"a message of an unknown type", "close 4400", afterInit(`{"type":"start","id":"1"}`, 4400)},
		{"a message without a type", "close 4400", afterInit(`{"id":"1"}`, 4400)},
		{"subscribe with an empty id", "close 4400", afterInit(`{"id":"","type":"subscribe","payload":{"query":"{ __typename }"}}`, 4400)},
		{"subscribe without a query", "close 4400", afterInit(`{"id":"1","type":"subscribe","payload":{}}`, 4400)},
		{"a binary message", "close 4400", probeBinary},
		{"subscribe before connection_init", "close 4401", beforeInit(`{"id":"1","type":"subscribe","payload":{"query":"{ __typename }"}}`, 4401)},
		{"a second connection_init", "close 4429", afterInit(`{"type":"connection_init"}`, 4429)},
		{"connection_init with a bad token", "close 4403", beforeInit(`{"type":"connection_init","payload":{"Authorization":"Bearer no"}}`, 4403)},
		{"connection_init of nobody", "close 4403", beforeInit(`{"type":"connection_init"}`, 4403)},
		{"no subprotocol", "close 4406", offering(4406)},
		{"an unknown subprotocol", "close 4406", offering(4406, "mqtt")},
		{"only the legacy subprotocol", "close 4406", offering(4406, "graphql-ws")},
		{"several subprotocols", "the modern one", probeSeveral},
		{"an id that is in use", "close 4409", probeTaken},
		{"an id that was in use", "a second answer", probeFreed},
		{"a document that does not validate", "error, and never also complete", probeInvalid},
		{"a query and a mutation", "next, then complete", probeAnswers},
		{"a ping with a payload", "a pong with it", probePing},
		{"complete by the client", "silence, and the id is free", probeComplete},
		{"a client that says nothing", "a ping every 12 s", probePinged},
		{"a client that answers no ping", "the connection is closed", probeDead},
		{"a token that expires on an open socket", "close 4403", probeExpiry},
		{"a message over 1 MiB", "close 1009", probeLarge},
		{"more than 100 operations on one socket", "error RATE_LIMITED", probeCrowd},
		{"an origin that is not allowed", "status 403", probeOrigin},
		{"a reader that takes nothing", "closed after 10 s; nothing lost", probeStalled},
	}
}

func probeSilence(ctx context.Context, s *stage) (string, error) {
	began := time.Now()
	w, err := open(ctx, s, nil, protocol)
	if err != nil {
		return "", err
	}
	pace := s.engine.Pace(ctx)
	seen, err := w.closes(4408, initTimeout+patience, true)
	took := time.Since(began)
	late := pace.Within("it is closed", took, initTimeout+time.Second)
	if err == nil && took < initTimeout-time.Second {
		err = fmt.Errorf("after %s already", took.Round(time.Millisecond))
	}
	if err == nil {
		err = late
	}
	return fmt.Sprintf("%s (after %s)", seen, took.Round(100*time.Millisecond)), err
}

// afterInit sends a text on a connection that is ready, beforeInit on one that is not.
func afterInit(text string, code int) func(context.Context, *stage) (string, error) {
	return func(ctx context.Context, s *stage) (string, error) {
		w, err := initiated(ctx, s, nil)
		if err != nil {
			return "", err
		}
		if err := w.say(text); err != nil {
			return "", err
		}
		return w.closes(code, patience, true)
	}
}

func beforeInit(text string, code int) func(context.Context, *stage) (string, error) {
	return func(ctx context.Context, s *stage) (string, error) {
		w, err := open(ctx, s, nil, protocol)
		if err != nil {
			return "", err
		}
		if err := w.say(text); err != nil {
			return "", err
		}
		return w.closes(code, patience, true)
	}
}

func probeBinary(ctx context.Context, s *stage) (string, error) {
	w, err := initiated(ctx, s, nil)
	if err != nil {
		return "", err
	}
	if err := w.WriteMessage(websocket.BinaryMessage, []byte(`{"type":"ping"}`)); err != nil {
		return "", err
	}
	return w.closes(4400, patience, true)
}

// offering makes a connection that offers only these subprotocols.
func offering(code int, protocols ...string) func(context.Context, *stage) (string, error) {
	return func(ctx context.Context, s *stage) (string, error) {
		w, err := open(ctx, s, nil, protocols...)
		if err != nil {
			return "", err
		}
		return w.closes(code, patience, true)
	}
}

func probeSeveral(ctx context.Context, s *stage) (string, error) {
	w, err := open(ctx, s, nil, "graphql-ws", protocol)
	if err != nil {
		return "", err
	}
	defer w.end()
	if w.Subprotocol() != protocol {
		return w.Subprotocol(), errors.New("was chosen")
	}
	return w.Subprotocol(), nil
}

func probeTaken(ctx context.Context, s *stage) (string, error) {
	run, err := s.hanging(ctx)
	if err != nil {
		return "", err
	}
	defer s.cancel(ctx, run.ID)
	w, err := initiated(ctx, s, nil)
	if err != nil {
		return "", err
	}
	for range 2 {
		if err := w.subscribe("same", events(run.ID, 0)); err != nil {
			return "", err
		}
	}
	return w.closes(4409, patience, false)
}

func probeFreed(ctx context.Context, s *stage) (string, error) {
	w, err := initiated(ctx, s, nil)
	if err != nil {
		return "", err
	}
	defer w.end()
	for range 2 {
		if err := w.subscribe("same", "{ viewer { subject } }"); err != nil {
			return "", err
		}
		if err := w.expect("next", "complete"); err != nil {
			return "", err
		}
	}
	return "next, complete, next, complete", nil
}

// expect reads messages of these types and no others.
func (w wire) expect(types ...string) error {
	for _, want := range types {
		f, err := w.hear(patience)
		if err != nil {
			return fmt.Errorf("instead of %s: %w", want, err)
		}
		if f.Type != want {
			return fmt.Errorf("got %s %s, want %s", f.Type, f.Payload, want)
		}
	}
	return nil
}

// echo asks for a pong, which comes behind whatever else the engine had to say.
func (w wire) echo() error {
	if err := w.say(`{"type":"ping"}`); err != nil {
		return err
	}
	return w.expect("pong")
}

func probeInvalid(ctx context.Context, s *stage) (string, error) {
	w, err := initiated(ctx, s, nil)
	if err != nil {
		return "", err
	}
	defer w.end()
	for _, query := range []string{"{ nothingOfTheKind }", "{ viewer {", "subscription { runEvents { through } }", "query A { viewer { subject } } query B { viewer { subject } }"} {
		if err := w.subscribe("1", query); err != nil {
			return "", err
		}
		if err := w.expect("error"); err != nil {
			return query, err
		}
		// Two answers, of another operation: by then a complete would have come.
		if err := w.subscribe("2", "{ viewer { subject } }"); err != nil {
			return "", err
		}
		if err := w.expect("next", "complete"); err != nil {
			return query, err
		}
		if err := w.echo(); err != nil {
			return query, err
		}
	}
	return "error only, four times", nil
}

func probeAnswers(ctx context.Context, s *stage) (string, error) {
	w, err := initiated(ctx, s, nil)
	if err != nil {
		return "", err
	}
	defer w.end()
	for _, query := range []string{
		"{ harnesses { id } }",
		fmt.Sprintf(`mutation { saveAgent(input: {draft: {name: "Wire", slug: "wire-%d"}}) { __typename } }`, time.Now().UnixNano()),
	} {
		if err := w.subscribe("1", query); err != nil {
			return "", err
		}
		if err := w.expect("next", "complete"); err != nil {
			return query, err
		}
	}
	return "next, complete, each", w.echo()
}

func probePing(ctx context.Context, s *stage) (string, error) {
	w, err := initiated(ctx, s, nil)
	if err != nil {
		return "", err
	}
	defer w.end()
	if err := w.say(`{"type":"ping","payload":{"at":1}}`); err != nil {
		return "", err
	}
	f, err := w.hear(patience)
	if err != nil {
		return "", err
	}
	seen := fmt.Sprintf("%s %s", f.Type, f.Payload)
	if seen != `pong {"at":1}` {
		return seen, errors.New("(want the payload back)")
	}
	return seen, nil
}

func probeComplete(ctx context.Context, s *stage) (string, error) {
	run, err := s.hanging(ctx)
	if err != nil {
		return "", err
	}
	defer s.cancel(ctx, run.ID)
	w, err := initiated(ctx, s, nil)
	if err != nil {
		return "", err
	}
	defer w.end()
	if err := w.subscribe("1", events(run.ID, 0)); err != nil {
		return "", err
	}
	if err := w.expect("next"); err != nil {
		return "", err
	}
	if err := w.say(`{"id":"1","type":"complete"}`); err != nil {
		return "", err
	}
	// What was on its way may still come; then the id is free, and only its new owner's answer comes.
	for {
		if err := w.say(`{"type":"ping"}`); err != nil {
			return "", err
		}
		f, err := w.hear(patience)
		if err != nil {
			return "", err
		}
		if f.Type == "pong" {
			break
		}
		if f.Type != "next" {
			return f.Type, errors.New("(want silence)")
		}
	}
	if err := w.subscribe("1", "{ viewer { subject } }"); err != nil {
		return "", err
	}
	return "silent, free", w.expect("next", "complete")
}

func probePinged(ctx context.Context, s *stage) (string, error) {
	w, err := initiated(ctx, s, nil)
	if err != nil {
		return "", err
	}
	defer w.end()
	began, pings := time.Now(), []time.Duration{}
	pong := func(kind string) error {
		pings = append(pings, time.Since(began))
		if kind == "ping" {
			return w.say(`{"type":"pong"}`)
		}
		return nil
	}
	w.SetPingHandler(func(data string) error {
		_ = pong("")
		return w.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(time.Second))
	})
	_ = w.SetReadDeadline(began.Add(2*pingInterval + patience))
	for len(pings) < 2 {
		var f frame
		if err := w.ReadJSON(&f); err != nil {
			if len(pings) >= 2 {
				break // only frames of the WebSocket itself came
			}
			return fmt.Sprintf("pings after %v", pings), err
		}
		if f.Type == "ping" {
			if err := pong(f.Type); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("after %s and %s", pings[0].Round(100*time.Millisecond), pings[1].Round(100*time.Millisecond)), nil
}

func probeDead(ctx context.Context, s *stage) (string, error) {
	w, err := initiated(ctx, s, nil)
	if err != nil {
		return "", err
	}
	defer w.end()
	w.SetPingHandler(func(string) error { return nil })
	began := time.Now()
	_ = w.SetReadDeadline(began.Add(3*pingInterval + patience))
	for {
		var f frame
		if err := w.ReadJSON(&f); err != nil {
			took := time.Since(began).Round(100 * time.Millisecond)
			var late interface{ Timeout() bool }
			if errors.As(err, &late) && late.Timeout() {
				return "", fmt.Errorf("still open after %s", took)
			}
			return fmt.Sprintf("closed after %s", took), nil
		}
	}
}

func probeExpiry(ctx context.Context, s *stage) (string, error) {
	const life = 20 * time.Second // by then the socket is open
	token, err := s.engine.Command(ctx, []string{"token", "--subject", "brief", "--life", life.String()}).Output()
	if err != nil {
		return "", err
	}
	w, err := initiated(ctx, s, nil, strings.TrimSpace(string(token)))
	if err != nil {
		return "", err
	}
	return w.closes(4403, life+patience, true)
}

func probeLarge(ctx context.Context, s *stage) (string, error) {
	w, err := initiated(ctx, s, nil)
	if err != nil {
		return "", err
	}
	// The engine may close before it has all of it.
	_ = w.say(`{"type":"ping","payload":{"a":"` + strings.Repeat("a", maxMessage) + `"}}`)
	return w.closes(websocket.CloseMessageTooBig, patience, true)
}

func probeCrowd(ctx context.Context, s *stage) (string, error) {
	run, err := s.hanging(ctx)
	if err != nil {
		return "", err
	}
	defer s.cancel(ctx, run.ID)
	w, err := initiated(ctx, s, nil)
	if err != nil {
		return "", err
	}
	defer w.end()
	for i := range operations + 1 {
		if err := w.subscribe(fmt.Sprint(i), events(run.ID, 0)); err != nil {
			return "", err
		}
	}
	for {
		f, err := w.hear(patience)
		switch {
		case err != nil:
			return "", err
		case f.Type == "error" && strings.Contains(string(f.Payload), `"RATE_LIMITED"`):
			return "error RATE_LIMITED", nil
		case f.Type != "next":
			return fmt.Sprintf("%s %s", f.Type, f.Payload), errors.New("(want an error)")
		case strings.Contains(string(f.Payload), `"errors"`):
			return "next with errors", errors.New("(want the message error)")
		}
	}
}

func probeOrigin(ctx context.Context, s *stage) (string, error) {
	w, err := open(ctx, s, http.Header{"Origin": {"https://elsewhere.example"}}, protocol)
	if err == nil {
		w.end()
		return "", errors.New("the socket was opened")
	}
	if !strings.Contains(err.Error(), "status 403") {
		return "", err
	}
	return "status 403", nil
}

// probeStalled subscribes to a log that fits into no buffer and reads nothing until the engine gives up; then it comes
// back with its cursor.
func probeStalled(ctx context.Context, s *stage) (string, error) {
	long := enginetest.Step{"text": map[string]any{"value": strings.Repeat("0123456789abcde ", 1000), "chunk": 16000}}
	run, err := s.play(ctx, enginetest.Step{"repeat": map[string]any{"times": 1500, "steps": []enginetest.Step{long}}})
	if err != nil {
		return "", err
	}
	if _, err := s.client.Follow(ctx, run.ID, 0); err != nil { // to its end
		return "", err
	}
	w, err := initiated(ctx, s, http.Header{smallWindow: {"yes"}})
	if err != nil {
		return "", err
	}
	defer w.end()
	began := time.Now()
	if err := w.subscribe("1", events(run.ID, 0)); err != nil {
		return "", err
	}
	through, got, err := w.taken(1)
	if err != nil {
		return "", err
	}
	// A write to a connection that the other side has closed fails: that is how who does not read notices.
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		if err := w.WriteControl(websocket.PongMessage, nil, time.Now().Add(time.Second)); err != nil {
			break
		}
		if time.Since(began) > writeTimeout+patience {
			return "", errors.New("still open")
		}
	}
	took := time.Since(began)
	if took < writeTimeout/2 {
		return "", fmt.Errorf("closed after %s already", took)
	}
	if last, more, err := w.taken(0); err != nil {
		return "", err
	} else if len(more) > 0 {
		through, got = last, append(got, more...)
	}
	rest, err := s.client.Follow(ctx, run.ID, through)
	if err != nil {
		return "", err
	}
	log, err := s.client.Log(ctx, run.ID, 0)
	if err != nil {
		return "", err
	}
	if len(got)+len(rest) != len(log) {
		return "", fmt.Errorf("%d events before and %d behind, the log has %d", len(got), len(rest), len(log))
	}
	for i, sequence := range got {
		if sequence != int64(i)+1 {
			return "", fmt.Errorf("event %d has sequence %d", i+1, sequence)
		}
	}
	for i, e := range rest {
		if e.Sequence != through+int64(i)+1 {
			return "", fmt.Errorf("event %d behind the cut has sequence %d", i+1, e.Sequence)
		}
	}
	return fmt.Sprintf("after %s; %d + %d = %d events", took.Round(100*time.Millisecond), len(got), len(rest), len(log)), nil
}

// taken reads so many results, or with 0 whatever a connection that is gone still holds: the cursor behind them and the
// sequences in them.
func (w wire) taken(results int) (through int64, sequences []int64, err error) {
	for n := 0; results == 0 || n < results; n++ {
		f, err := w.hear(patience)
		if err != nil && results == 0 {
			return through, sequences, nil // here it was cut
		}
		if err != nil || f.Type != "next" {
			return through, sequences, fmt.Errorf("got %s %s: %w", f.Type, f.Payload, err)
		}
		var result struct {
			Data struct {
				RunEvents struct {
					Through int64
					Events  []struct{ Sequence int64 }
				}
			}
		}
		if err := json.Unmarshal(f.Payload, &result); err != nil {
			return through, sequences, err
		}
		through = result.Data.RunEvents.Through
		for _, e := range result.Data.RunEvents.Events {
			sequences = append(sequences, e.Sequence)
		}
	}
	return through, sequences, nil
}
