package transport_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/transport"
)

const sessionEpochs = `subscription { sessionChanged { epoch } }`

// touch changes the run's session, which is of an epoch of its own then, and tells of it.
func (l *log) touch(change func(subject *string)) (epoch int64) {
	l.w.t.Helper()
	b, err := l.w.spy.Store.Session(l.w.ctx, l.session)
	if err != nil {
		l.w.t.Fatal(err)
	}
	b.Rev++
	b.Epoch++
	if change != nil {
		change(&b.Key.Subject)
	}
	if err := l.w.spy.Store.UpdateSession(l.w.ctx, b); err != nil {
		l.w.t.Fatal(err)
	}
	l.w.changes.Publish(b)
	return b.Epoch
}

// A state that waits behind a client which does not read is not written when the permission has gone meanwhile, over
// either transport: it is asked for again when it is its turn.
func TestAStateDoesNotWaitBehindItsPermission(t *testing.T) {
	const maxAge = shortAge
	for name, watch := range map[string]func(w *world) (client net.Addr, next func() []byte){
		"WebSocket": func(w *world) (net.Addr, func() []byte) {
			c := w.connect(w.token("alice"))
			c.send(frame{ID: "c", Type: "subscribe", Payload: raw(vars{"query": sessionEpochs})})
			return c.conn.LocalAddr(), func() []byte {
				var f frame
				_ = c.conn.ReadJSON(&f) // the connection ends with the test
				return f.Payload
			}
		},
		"server-sent events": func(w *world) (net.Addr, func() []byte) {
			var client net.Addr
			dialer := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				if err == nil {
					client = conn.LocalAddr()
				}
				return conn, err
			}}
			w.t.Cleanup(dialer.CloseIdleConnections)
			s := w.openWith(&http.Client{Transport: dialer}, "alice", http.MethodPost, "/graphql", nil, document(sessionEpochs))
			return client, func() []byte {
				m, _ := s.next()
				return []byte(m.data)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, option{maxAge: maxAge, limits: transport.Limits{WriteTimeout: time.Minute}})
			a := w.agent("alice", "helper")
			lost, kept := w.log("alice", a), w.log("alice", a)
			client, next := watch(w)
			epochs := make(chan int64)
			go func() {
				for {
					var p struct {
						Data struct{ SessionChanged struct{ Epoch int64 } }
					}
					raw := next()
					_ = json.Unmarshal(raw, &p)
					select {
					case epochs <- p.Data.SessionChanged.Epoch:
						if p.Data.SessionChanged.Epoch == 0 { // the end of the stream
							return
						}
					case <-w.ctx.Done():
						return
					}
				}
			}()
			// Nothing says when a subscription stands: it does when it tells of something.
			for stands := false; !stands; {
				lost.touch(nil)
				select {
				case <-epochs:
					stands = true
				case <-time.After(100 * time.Millisecond):
				}
			}
			w.gate.close(client)
			shown := lost.touch(nil) // is on its way: nobody can take it back
			w.until(w.gate.stops)
			hidden := lost.touch(nil)
			<-time.After(maxAge) // whatever was going to wait does
			lost.touch(func(subject *string) { *subject = "bob" })
			<-time.After(2 * maxAge) // no permission lasts as long
			w.gate.open()
			b, err := w.spy.Store.Session(w.ctx, kept.session)
			if err != nil {
				t.Fatal(err)
			}
			b.Rev, b.Epoch = b.Rev+1, 1_000_000
			if err := w.spy.Store.UpdateSession(w.ctx, b); err != nil {
				t.Fatal(err)
			}
			w.changes.Publish(b)
			for e := range epochs {
				if e == b.Epoch {
					break
				}
				if e == 0 || e > shown {
					t.Fatalf("told of epoch %d; %d was on its way, and %d was not to be shown", e, shown, hidden)
				}
			}
			w.cancel()
		})
	}
}
