package ws

import (
	"fmt"
	"strings"
	"testing"
)

// The messages that a socket's operations hold are bounded together: one that goes beyond is refused, and there is room
// again when others have ended, or follow a feed, which holds nothing of its message.
func TestMessagesOfASocketAreBounded(t *testing.T) {
	w := newWorld(t, func(l *Limits) { l.MaxOps = 100 })
	c := w.ready("alice")
	long := func(id, document string) {
		c.send(fmt.Sprintf(`{"id":%q,"type":"subscribe","payload":{"query":%q,"extensions":{"x":%q}}}`, id, document, strings.Repeat("x", 60<<10)))
	}
	for i := range 4 {
		long(fmt.Sprint("wait", i), "wait")
	}
	long("5", "query a")
	if got, err := c.next(); err != nil || !strings.HasPrefix(got, `{"id":"5","type":"error"`) || !strings.Contains(got, "RATE_LIMITED") {
		t.Fatalf("got %.200s (%v)", got, err)
	}
	c.subscribe("6", "query short")
	c.want(`{"id":"6","type":"next","payload":{"data":"short"}}`, `{"id":"6","type":"complete"}`)
	c.send(`{"id":"wait0","type":"complete"}`)
	for i := range 20 {
		name := fmt.Sprint("feed", i)
		w.feed(name).put(`{"data":1}`)
		for { // the operation is let go a moment after its end
			long(name, "feed "+name)
			got, err := c.next()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(got, "RATE_LIMITED") {
				continue
			}
			if want := `{"id":"` + name + `","type":"next","payload":{"data":1}}`; got != want {
				t.Fatalf("got %.200s", got)
			}
			break
		}
	}
}

// Who comes is greeted, however long the operations of others take.
func TestGreetingsDoNotWaitForOperations(t *testing.T) {
	w := newWorld(t, func(l *Limits) { l.MaxExecuting = 1 })
	busy := w.ready("busy")
	busy.subscribe("1", "hold x")
	busy.send(`{"type":"ping"}`)
	busy.want(`{"type":"pong"}`)
	w.ready("alice")
	w.release("x")
	busy.want(`{"id":"1","type":"next","payload":{"data":"x"}}`, `{"id":"1","type":"complete"}`)
}
