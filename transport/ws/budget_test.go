package ws

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/internal/share"
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
	w := newWorld(t, nil)
	w.executing(1, 1)
	busy := w.ready("busy")
	busy.subscribe("1", "hold x")
	busy.send(`{"type":"ping"}`)
	busy.want(`{"type":"pong"}`)
	w.ready("alice")
	w.release("x")
	busy.want(`{"id":"1","type":"next","payload":{"data":"x"}}`, `{"id":"1","type":"complete"}`)
}

// A caller whose operations hang leaves room for those of others, however many they are.
func TestACallerDoesNotTakeAllPlaces(t *testing.T) {
	w := newWorld(t, nil)
	w.executing(4, 3)
	for range 2 {
		greedy := w.ready("greedy")
		for i := range 8 {
			greedy.subscribe(fmt.Sprint(i), "hold x")
		}
		greedy.send(`{"type":"ping"}`)
		greedy.want(`{"type":"pong"}`)
	}
	c := w.ready("alice")
	c.subscribe("1", "query a")
	c.want(`{"id":"1","type":"next","payload":{"data":"a"}}`, `{"id":"1","type":"complete"}`)
	w.release("x")
}

// Answers that nobody reads are bounded: of a socket, which is closed then, and of all of a caller. One that is read has
// answers of any size, one after the other.
func TestUnreadAnswersAreBounded(t *testing.T) {
	w := newWorld(t, func(l *Limits) { l.MaxOps, l.MaxAnswers = 50, 8<<20 })
	reading := w.ready("reading")
	for i := range 20 {
		reading.subscribe(fmt.Sprint(i), "large") // 1 MiB
		if got, err := reading.next(); err != nil || len(got) < 1<<20 {
			t.Fatalf("got %.100s (%v)", got, err)
		}
		reading.want(fmt.Sprintf(`{"id":"%d","type":"complete"}`, i))
	}
	silent := w.ready("silent")
	for i := range 50 {
		silent.subscribe(fmt.Sprint(i), "large")
	}
	w.until("the socket is not closed", func() bool {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		for k := range w.server.sockets {
			k.mu.Lock()
			closing := k.code == CloseTryAgain && k.reason == reasonUnread
			k.mu.Unlock()
			if closing {
				return true
			}
		}
		return len(w.server.sockets) == 1 // it is over
	})
	silent.wantEnd()

	// Many sockets of one caller have a bound together.
	w = newWorld(t, func(l *Limits) { l.MaxOps = 50 })
	w.answers = share.NewStock[authz.Caller](128<<20, 16<<20)
	w.server.o.Answers = w.answers
	for range 4 {
		silent := w.ready("silent")
		for i := range 12 { // of which some are in the buffers of the connection
			silent.subscribe(fmt.Sprint(i), "large")
		}
	}
	w.until("none of the sockets is closed", func() bool { return w.server.Count() < 4 })
	if held, _ := w.answers.Held(); held > 16<<20 {
		t.Errorf("%d bytes wait", held)
	}
	c := w.ready("alice")
	c.subscribe("1", "large")
	if got, err := c.next(); err != nil || len(got) < 1<<20 {
		t.Fatalf("got %.100s (%v)", got, err)
	}
}

// What comes in is bounded over all sockets of a caller, while it comes and while it is held.
func TestMessagesOfACallerAreBounded(t *testing.T) {
	w := newWorld(t, func(l *Limits) { l.MaxMessage = 1 << 20 })
	w.messages = share.NewStock[authz.Caller](4<<20, 1<<20)
	w.server.o.Messages = w.messages
	half := func(subject string) *client { // has sent half of a long message
		c := w.ready(subject)
		out, err := c.conn.NextWriter(websocket.TextMessage)
		if err == nil {
			_, err = out.Write([]byte(`{"type":"ping","payload":{"x":"` + strings.Repeat("x", 700<<10)))
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := half("alice")
	w.until("the message is not counted", func() bool { held, _ := w.messages.Held(); return held > 512<<10 })
	half("alice").wantClose(CloseTryAgain)
	c := w.ready("bob")
	c.send(`{"type":"ping","payload":{"x":"` + strings.Repeat("x", 700<<10) + `"}}`)
	if got, err := c.next(); err != nil || !strings.HasPrefix(got, `{"type":"pong"`) {
		t.Fatalf("got %.100s (%v)", got, err)
	}
	_ = first.conn.Close()
}

// Who opens sockets and does not say who they are keeps nobody out: the oldest makes room.
func TestStrangersMakeRoom(t *testing.T) {
	w := newWorld(t, func(l *Limits) { l.MaxUnknown = 3 })
	known := w.ready("alice")
	var strangers []*client
	for range 8 {
		strangers = append(strangers, w.dial(Subprotocol))
	}
	for _, c := range strangers[:5] {
		c.wantClose(CloseInitTimeout)
	}
	w.ready("bob") // in the place of one more
	strangers[5].wantClose(CloseInitTimeout)
	known.send(`{"type":"ping"}`)
	known.want(`{"type":"pong"}`)
	strangers[7].send(`{"type":"connection_init","payload":{"Authorization":"Bearer carol"}}`)
	strangers[7].want(`{"type":"connection_ack"}`)
}

// What a ping carries is repeated as far as it is short: the answer waits for a client that may not read.
func TestLongPings(t *testing.T) {
	w := newWorld(t, func(l *Limits) { l.MaxMessage = 1 << 20 })
	c := w.ready("alice")
	c.send(`{"type":"ping","payload":{"x":1}}`, `{"type":"ping","payload":{"x":"`+strings.Repeat("x", maxPong)+`"}}`)
	c.want(`{"type":"pong","payload":{"x":1}}`, `{"type":"pong"}`)
	c.send(`{"type":"ping","payload":{"x":[` + strings.Repeat("1,", maxValues) + `1]}}`)
	c.wantClose(CloseBadRequest)
}
