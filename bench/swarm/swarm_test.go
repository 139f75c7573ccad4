package swarm

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// server speaks the protocol up to the subscription, then hands the socket over.
func server(t *testing.T, then func(c *websocket.Conn)) string {
	up := websocket.Upgrader{Subprotocols: []string{"graphql-transport-ws"}, WriteBufferSize: 256}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		for {
			var m struct {
				Type    string
				Payload map[string]any
			}
			if err := c.ReadJSON(&m); err != nil {
				return
			}
			switch m.Type {
			case "connection_init":
				if m.Payload["Authorization"] != "Bearer secret" {
					t.Errorf("init with %v", m.Payload)
				}
				_ = c.WriteMessage(websocket.TextMessage, []byte(`{"type":"connection_ack"}`))
			case "subscribe":
				then(c)
			}
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func next(first, last int, kind string) string {
	var events []string
	for i := first; i <= last; i++ {
		events = append(events, fmt.Sprintf(`{"__typename":"X","runId":"r","sequence":%d,"time":"%s","type":"%s","namespace":[]}`,
			i, time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), kind))
	}
	return `{"id":"1","type":"next","payload":{"data":{"runEvents":{"through":1,"caughtUp":true,"events":[` + strings.Join(events, ",") + `]}}}}`
}

func options(addr string) Options {
	return Options{Addr: addr, Token: "secret", Query: Query, Sockets: 7, Variables: func(i int) []string { return []string{fmt.Sprintf(`{"run":"r%d"}`, i)} }}
}

func TestSwarmCounts(t *testing.T) {
	addr := server(t, func(c *websocket.Conn) {
		_ = c.WriteMessage(websocket.TextMessage, []byte(`{"type":"ping"}`))
		_ = c.WriteMessage(websocket.TextMessage, []byte(next(1, 2, "text.delta")))
		_ = c.WriteMessage(websocket.TextMessage, []byte(next(3, 40, "text.delta"))) // longer than the write buffer: comes in fragments
		_ = c.WriteMessage(websocket.TextMessage, []byte(next(41, 41, "text.finished")))
		_ = c.WriteMessage(websocket.TextMessage, []byte(next(42, 42, "run.finished")))
		_ = c.WriteMessage(websocket.TextMessage, []byte(`{"id":"1","type":"complete"}`))
	})
	s, err := Open(t.Context(), options(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := s.Wait(ctx, func(c Count) bool { return c.Completed == 7 && c.Ended == 7 })
	if err != nil || c.Events != 7*42 || c.Messages != 7 || c.Frames != 7*4 || c.Gone != 0 {
		t.Fatalf("got %+v, %v", c, err)
	}
}

func TestSwarmSeesWhatIsWrong(t *testing.T) {
	for want, then := range map[string]func(*websocket.Conn){
		"event 5 came behind event 3": func(c *websocket.Conn) {
			_ = c.WriteMessage(websocket.TextMessage, []byte(next(2, 3, "text.delta")))
			_ = c.WriteMessage(websocket.TextMessage, []byte(next(5, 5, "text.delta")))
		},
		"event 3 came behind event 3": func(c *websocket.Conn) {
			_ = c.WriteMessage(websocket.TextMessage, []byte(next(2, 3, "text.delta")))
			_ = c.WriteMessage(websocket.TextMessage, []byte(next(3, 3, "text.delta")))
		},
		"the server closed a socket": func(c *websocket.Conn) { _ = c.Close() },
		"an operation failed": func(c *websocket.Conn) {
			_ = c.WriteMessage(websocket.TextMessage, []byte(`{"id":"1","type":"error","payload":[{"message":"no"}]}`))
		},
	} {
		s, err := Open(t.Context(), options(server(t, then)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err = s.Wait(ctx, func(Count) bool { return false })
		cancel()
		s.Close()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestLatencies(t *testing.T) {
	at := time.Date(2026, 1, 2, 0, 0, 0, 5e6, time.UTC)
	for stamp, want := range map[string]time.Duration{
		"2026-01-02T00:00:00.001Z": 4 * time.Millisecond,
		"2026-01-01T23:59:59.995Z": 10 * time.Millisecond,
	} {
		ms, ok := sinceMidnight([]byte(stamp))
		if got := between(ms, at); !ok || got != want {
			t.Errorf("%s: %s %v, want %s", stamp, got, ok, want)
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x81\x05hello"), 2)
	f.Add([]byte("\x81\x7e\x00\x80"+strings.Repeat(`"sequence":1,"time":"`, 6)), 3)
	f.Add([]byte{0x81, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 1)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		fr, size, err := parseFrame(b)
		if size > len(b) || (err != nil && size != 0) || len(fr.payload) > size {
			t.Fatalf("%d of %d bytes, %v", size, len(b), err)
		}
		if size > 0 && cut > 0 && cut < size {
			if _, short, err := parseFrame(b[:cut]); short != 0 || err != nil {
				t.Fatalf("a part of %d bytes is a frame of %d, %v", cut, short, err)
			}
		}
		_, _ = (&conn{}).scan(b, &tally{sampling: true}) // must not panic
	})
}

func TestClientFrames(t *testing.T) {
	for _, n := range []int{0, 125, 126, 65535, 65536} {
		b := appendFrame(nil, opText, bytes.Repeat([]byte("x"), n))
		b[1] &^= 0x80 // as a server would send it: without the mask
		head := len(b) - n - 4
		f, size, err := parseFrame(append(b[:head:head], b[head+4:]...))
		if err != nil || size != head+n || len(f.payload) != n || !f.final {
			t.Errorf("%d bytes: %d of %d, %v", n, len(f.payload), size, err)
		}
	}
}
