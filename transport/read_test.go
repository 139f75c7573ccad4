package transport_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/resolvers"
)

// A short document may ask for many pages of long texts: what it reads is bounded, and who asks for less has it.
func TestWhatAnOperationReadsIsBounded(t *testing.T) {
	w := newWorld(t, option{api: resolvers.Limits{MaxRead: 200 << 10}})
	l := w.log("alice", w.agent("alice", "helper"))
	l.append(started(), event.TextStarted{MessageID: "m", Role: "assistant"})
	for range 8 {
		l.append(event.TextDelta{MessageID: "m", Delta: strings.Repeat("x", 32<<10)})
	}
	const page = `events(first: 4) { events { ... on TextDeltaEvent { delta } } }`
	ask := func(pages int) reply {
		var q strings.Builder
		for i := range pages {
			fmt.Fprintf(&q, " r%d: run(id: %q) { %s }", i, l.id, page)
		}
		return w.ask("alice", "{"+q.String()+"}", nil)
	}
	if r := ask(1); len(r.Errors) > 0 {
		t.Errorf("one page: %+v", r.Errors)
	}
	if r := ask(20); r.code() != "TOO_COMPLEX" || len(r.Errors) < 10 {
		t.Errorf("many pages: %d errors, %s", len(r.Errors), r.code())
	}
	c := w.connect(w.token("alice"))
	c.send(frame{ID: "1", Type: "subscribe", Payload: raw(vars{"query": `{ a: run(id: "` + l.id + `") { ` + page + ` } }`})})
	if f := c.next(); f.Type != "next" || strings.Contains(string(f.Payload), "errors") {
		t.Errorf("on a socket: %.200s", f.Payload)
	}
}
