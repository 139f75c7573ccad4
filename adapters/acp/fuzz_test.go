package acp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
)

// recordedSession is the session id of a recording, which is not that of the driver under test.
var recordedSession = regexp.MustCompile(`"sessionId":"[^"]*"`)

// outputs are what an agent might write during a turn: what the real one wrote, and what none should.
func outputs(t testing.TB) [][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.ndjson"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	var out [][]byte
	for _, file := range files {
		var b bytes.Buffer
		for _, l := range readRecording(t, file) {
			if l.From == "agent" {
				b.Write(l.Message)
				b.WriteByte('\n')
			}
		}
		out = append(out, recordedSession.ReplaceAll(b.Bytes(), []byte(`"sessionId":"`+fakeSession+`"`)))
	}
	for _, line := range []string{
		``, `{`, "\x00\xff\n", `[]`, `{"jsonrpc":"2.0"}`, `{"id":3}`, `{"id":3,"result":null}`, `{"id":3,"error":{}}`, `{"id":3,"error":{"code":"x"}}`,
		`{"id":"3","result":{"stopReason":"end_turn"}}`, `{"id":1e2,"result":{}}`, `{"id":99999999999999999999,"result":{}}`,
		`{"id":3,"result":{"stopReason":"end_turn","usage":{"inputTokens":-1}}}`, `{"id":3,"result":{"stopReason":"end_turn","usage":{"inputTokens":1.5}}}`,
		`{"id":3,"error":{"code":-32603,"message":"m","data":{"category":"throttled","code":"x","retryAfterMs":-5}}}`,
		`{"id":3,"error":{"code":-32603,"message":"\u0000","data":{"category":"timeout","code":"a_b","retryable":true}}}`,
		`{"id":7,"method":"session/request_permission","params":{"toolCall":{"toolCallId":"t","rawInput":{"a":1}},"options":[]}}`,
		`{"method":"session/update","params":{"sessionId":"native-1","update":{"sessionUpdate":"tool_call","toolCallId":"t","rawInput":[[[]]]}}}`,
		`{"method":"session/update","params":{"sessionId":"native-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\ud800\u0085"}}}}`,
		`{"method":"session/update","params":{"sessionId":"native-1","update":{"sessionUpdate":"plan","entries":null,"_meta":{"harness-engine":{"namespace":[{}]}}}}}`,
		`{"id":3,"result":{"stopReason":"end_turn","_meta":{"harness-engine/interrupt":{"kind":"form_input","prompt":"p","fields":[{"name":"n","kind":"choice","choices":["a"]}]}}}}`,
		`{"method":"session/update","params":{"sessionId":"native-1","update":{"sessionUpdate":"tool_call","toolCallId":"t","rawInput":{"a":1}}}}` + "\n" +
			`{"id":3,"result":{"stopReason":"end_turn","_meta":{"harness-engine/interrupt":{"kind":"tool_approval","calls":[{"toolCallId":"t","name":"n","arguments":{"a":1},"allowed":["approve"],"schema":{}}]}}}}`,
		`{"id":7,"method":"session/request_permission","params":{"toolCall":{"toolCallId":"t","rawInput":{"a":1}},"options":[{"optionId":"y","kind":"allow_once"}]}}` + "\n" +
			`{"id":3,"result":{"stopReason":"end_turn"}}`,
		`{"id":8,"method":"elicitation/create","params":{"sessionId":"native-1","mode":"form","message":"m","requestedSchema":{"properties":{"a":{"type":"string"}}}}}` + "\n" +
			`{"id":3,"result":{"stopReason":"end_turn"}}`,
		`{"method":"_harness-engine/usage","params":{"sessionId":"native-1","usage":{"outputTokens":9223372036854775807}}}`,
	} {
		out = append(out, []byte(line+"\n"))
	}
	return out
}

// FuzzDriverOutput gives the driver arbitrary bytes as what the agent writes during a turn. Whatever they are, the
// driver must not panic, and must yield a sequence that the engine's validator accepts and that ends with one
// terminal. It reads in one goroutine, so that the fuzzer sees the same coverage each time.
func FuzzDriverOutput(f *testing.F) {
	for _, output := range outputs(f) {
		f.Add(output)
	}
	const promptID = 3
	f.Fuzz(func(t *testing.T, output []byte) {
		p := Own(asking())
		d := newDriver(p)
		d.env.Log = quiet
		a := &agent{profile: d.profile, log: quiet, sessionID: fakeSession}
		a.conn = newConn(a, quiet)
		answer := make(chan message, 1)
		a.conn.next = promptID
		a.conn.waiting[promptID] = answer

		r := newRecorder()
		run := newTurn(d.profile, "run_1", r)
		a.begin(run)
		a.conn.end(a.conn.readLines(bytes.NewReader(output)))
		how, err := a.result(t.Context(), run, answer)
		if asked, failed := a.park(run, answer); err == nil && how.interrupt == nil && failed == nil && asked != nil {
			how = outcome{interrupt: asked} // as if the agent had been quiet before it answered
		}
		a.release()
		if err := d.end(t.Context(), run, how, err); err != nil {
			t.Fatalf("the validator refused an event: %v", err)
		}
		checkTerminal(t, r)
	})
}

func checkTerminal(t *testing.T, r *recorder) {
	t.Helper()
	if e, ok := r.terminal(t).(event.RunError); ok && (e.Category == "" || e.Code == "" || e.Message == "") {
		t.Errorf("terminal %+v", e)
	}
}

// TestDriverOutput gives the same outputs to whole drivers.
func TestDriverOutput(t *testing.T) {
	for _, output := range outputs(t) {
		d, _ := opened(t, Own(fakeProfile()), func(_ int, p *program) {
			p.serve(func(p *program, m message) {
				p.raw(string(output))
				p.raw(fmt.Sprintf("\n"+`{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"end_turn"}}`+"\n", m.ID))
			})
		})
		r := newRecorder()
		if err := d.Turn(t.Context(), turnOf("hi"), r); err != nil {
			t.Fatalf("%s: %v", output, err)
		}
		checkTerminal(t, r)
	}
}

// FuzzArguments: whatever an input is, the arguments that come of it are an object that events hold.
func FuzzArguments(f *testing.F) {
	for _, raw := range []string{`{}`, `{"a":1}`, `[1,2]`, `"x"`, `{"a":{"a":1e400}}`, `{"a":1,"a":2}`, "{\"\xff\":\"\\ud800\"}", `{"a":-0}`, ` {} `} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		args, ok := arguments(json.RawMessage(raw))
		if !ok {
			return
		}
		v := event.NewValidator(event.Bounds{})
		for _, d := range []event.Data{event.RunStarted{Harness: "x"}, event.ToolStarted{ToolCallID: "t", Name: "n", Arguments: args}} {
			if _, err := v.Accept(event.Event{Data: d}); err != nil {
				t.Fatalf("%s became %s: %v", raw, args, err)
			}
		}
	})
}
