package acp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/worker"
)

// TestWordsOfTheHarness: what the harness itself says is shown where the turn goes on or ends well, and only read where
// it fails.
func TestWordsOfTheHarness(t *testing.T) {
	say := func(id, text string) string {
		return `{"sessionUpdate":"agent_message_chunk","messageId":"` + id + `","content":{"type":"text","text":"` + text + `"}}`
	}
	for name, tc := range map[string]struct {
		updates []string
		end     func(p *program, m message)
		text    string
		code    string // of the failure
		stop    string
	}{
		"ends well":        {[]string{say("m", "a"), say("own-1", "note")}, func(p *program, m message) { p.result(m.ID, `{"stopReason":"refusal"}`) }, "anote", "", "refusal"},
		"goes on":          {[]string{say("own-1", "note"), say("m", "b")}, func(p *program, m message) { p.fail(m.ID, -32603, "boom", `null`) }, "noteb", "harness_failed", ""},
		"a call follows":   {[]string{say("own-1", "note"), `{"sessionUpdate":"tool_call","toolCallId":"a","title":"t","status":"completed"}`}, func(p *program, m message) { p.fail(m.ID, -32603, "boom", `null`) }, "note", "harness_failed", ""},
		"usage in between": {[]string{say("own-1", "secret 418"), `{"sessionUpdate":"usage_update","used":1,"size":2}`}, func(p *program, m message) { p.fail(m.ID, -32603, "boom", `null`) }, "", "teapot", ""},
		"fails":            {[]string{say("m", "a"), say("own-1", "secret"), say("own-1", " 418")}, func(p *program, m message) { p.fail(m.ID, -32603, "boom", `null`) }, "a", "teapot", ""},
		"not a failure":    {[]string{say("m", "a"), say("own-1", "enough")}, func(p *program, m message) { p.fail(m.ID, -32603, "boom", `null`) }, "a", "", "max_turn_requests"},
		"the process dies": {[]string{say("own-1", "secret")}, func(p *program, m message) { panicked(p) }, "", "harness_exited", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := fakeProfile()
			p.Synthetic = func(id string) bool { return strings.HasPrefix(id, "own-") }
			p.Errors = []ErrorClass{
				{Match: func(m string, _ json.RawMessage) bool { return strings.Contains(m, "418") }, As: worker.Failure{Category: event.CategoryInternal, Code: "teapot", Message: "Tea."}},
				{Match: func(m string, _ json.RawMessage) bool { return strings.Contains(m, "enough") }, Stop: "max_turn_requests"},
			}
			d, _ := opened(t, p, func(_ int, p *program) {
				p.serve(func(p *program, m message) {
					for _, u := range tc.updates {
						p.update(u)
					}
					tc.end(p, m)
				})
			})
			r := play(t, d, newRecorder(), turnOf("hi"))
			failed, _ := r.terminal(t).(event.RunError)
			ended, _ := r.terminal(t).(event.RunFinished)
			if r.text() != tc.text || failed.Code != tc.code || ended.StopReason != tc.stop {
				t.Errorf("text %q, failure %q, stop reason %q", r.text(), failed.Code, ended.StopReason)
			}
			for _, s := range r.shapes() {
				if strings.Contains(s, "secret") {
					t.Errorf("shown: %s", s)
				}
			}
		})
	}
}
