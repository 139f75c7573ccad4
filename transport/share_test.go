package transport_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/transport"
)

// One caller whose operations hang, over either transport, leaves places to others; one more of its own waits.
func TestACallerLeavesPlacesToOthers(t *testing.T) {
	w := newWorld(t, option{limits: transport.Limits{MaxExecuting: 3, MaxCallerActive: 2}})
	l := w.log("alice", w.agent("alice", "helper"))
	hangs, gate := make(chan struct{}, 10), make(chan struct{})
	w.spy.mu.Lock()
	w.spy.stop = func(op string) {
		if op == "Run" {
			hangs <- struct{}{}
			<-gate
		}
	}
	w.spy.mu.Unlock()
	query := fmt.Sprintf(`{ run(id: %q) { id } }`, l.id)
	var asked sync.WaitGroup
	c := w.connect(w.token("alice"))
	c.send(frame{ID: "1", Type: "subscribe", Payload: raw(vars{"query": query})})
	<-hangs
	for range 3 {
		asked.Go(func() {
			if r := w.ask("alice", query, nil); len(r.Errors) > 0 {
				t.Errorf("at last: %+v", r.Errors)
			}
		})
	}
	<-hangs
	if r := w.ask("bob", `{ viewer { subject } }`, nil); r.at("viewer", "subject") != "bob" {
		t.Errorf("bob is told %+v", r)
	}
	select {
	case <-hangs:
		t.Error("alice has more places than her share")
	default:
	}
	close(gate)
	asked.Wait()
	if f := c.next(); f.Type != "next" {
		t.Errorf("at last: %+v", f)
	}
}

// oneConnection is a client that has one connection, and its address.
func (w *world) oneConnection() (client *http.Client, addr func() net.Addr) {
	w.t.Helper()
	var mu sync.Mutex
	var local net.Addr
	dialer := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			local = conn.LocalAddr()
		}
		return conn, err
	}}
	w.t.Cleanup(dialer.CloseIdleConnections)
	return &http.Client{Transport: dialer}, func() net.Addr {
		mu.Lock()
		defer mu.Unlock()
		return local
	}
}

func (w *world) request(subject, body string) *http.Request {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.ctx, http.MethodPost, w.http.URL+"/graphql", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if subject != "" {
		req.Header.Set("Authorization", "Bearer "+w.token(subject))
	}
	return req
}

// Answers that wait for clients which do not read are bounded, of a caller and of all.
func TestUnreadAnswersAreBounded(t *testing.T) {
	var long strings.Builder // 12,000 bytes of an answer; a short one is written by net/http later
	for i := range 400 {
		fmt.Fprintf(&long, " v%03d: viewer { subject }", i)
	}
	viewer := "{" + long.String() + "}"
	w := newWorld(t, option{limits: transport.Limits{MaxUnread: 30_000, MaxCallerUnread: 20_000}})
	slow, addr := w.oneConnection()
	do := func() int {
		resp, err := slow.Do(w.request("alice", document(viewer)))
		if err != nil {
			t.Error(err)
			return 0
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	if status := do(); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	w.gate.close(addr())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if status := do(); status != http.StatusOK {
			t.Errorf("at last: status %d", status)
		}
	})
	w.until(w.gate.stops)
	if r := w.ask("alice", viewer, nil); r.status != http.StatusServiceUnavailable || r.code() != "TIMEOUT" {
		t.Errorf("one more: %+v", r)
	}
	if r := w.ask("bob", viewer, nil); r.at("v399", "subject") != "bob" {
		t.Errorf("bob is told %+v", r)
	}
	w.gate.open()
	waiting.Wait()
	if r := w.ask("alice", viewer, nil); r.at("v399", "subject") != "alice" {
		t.Errorf("alice is told %+v", r)
	}
}

// halfOpen sends a request whose body does not come, all but so many bytes of it.
func (w *world) halfOpen(subject string, sent int) net.Conn {
	w.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(w.ctx, "tcp", w.http.Listener.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	header := "POST /graphql HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n"
	if subject != "" {
		header += "Authorization: Bearer " + w.token(subject) + "\r\n"
	}
	if _, err := io.WriteString(conn, header+"\r\n"+strings.Repeat(" ", sent)); err != nil {
		w.t.Fatal(err)
	}
	return conn
}

// statusOf reads the beginning of an answer.
func statusOf(t *testing.T, conn net.Conn) int {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// Bodies that do not come to an end take no more than a caller's share: of requests, and of bytes. Nobody has little.
func TestHalfOpenBodiesAreBounded(t *testing.T) {
	w := newWorld(t, option{limits: transport.Limits{MaxCallerRequests: 2, MaxHeld: 1 << 20, MaxCallerHeld: 300 << 10}})
	if status := statusOf(t, w.halfOpen("", 64<<10)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a long body of nobody: %d", status)
	}
	w.halfOpen("alice", 200<<10)
	w.until(func() bool { return w.edge.Held() > 150<<10 })
	if status := statusOf(t, w.halfOpen("alice", 300<<10)); status != http.StatusServiceUnavailable {
		t.Errorf("too many bytes: %d", status)
	}
	second := w.halfOpen("alice", 10)
	w.until(func() bool { return w.edge.Requests() == 2 })
	if r := w.ask("alice", `{ viewer { subject } }`, nil); r.status != http.StatusTooManyRequests || r.code() != "RATE_LIMITED" {
		t.Errorf("too many requests: %+v", r)
	}
	if r := w.ask("bob", `{ viewer { subject } }`, nil); r.at("viewer", "subject") != "bob" {
		t.Errorf("bob is told %+v", r)
	}
	_ = second.Close()
	w.until(func() bool { return w.edge.Requests() == 1 })
	if r := w.ask("alice", `{ viewer { subject } }`, nil); r.at("viewer", "subject") != "alice" {
		t.Errorf("alice is told %+v", r)
	}
}

// Connections on which nothing is asked give way to new ones; those on which something is in work do not.
func TestIdleConnectionsGiveWay(t *testing.T) {
	w := newWorld(t, option{limits: transport.Limits{MaxConnections: 4}})
	s := w.open("alice", http.MethodPost, "/graphql", nil, document(`subscription { catalogChanged { revision } }`))
	if _, ok := s.next(); !ok {
		t.Fatal("no stream")
	}
	var idle []net.Conn
	for i := range 10 {
		conn, err := (&net.Dialer{}).DialContext(w.ctx, "tcp", w.http.Listener.Addr().String())
		if err == nil && i%2 == 0 {
			_, err = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nX-Slow: ") // a header that does not end
		}
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		idle = append(idle, conn)
	}
	if r := w.ask("bob", `{ viewer { subject } }`, nil); r.at("viewer", "subject") != "bob" {
		t.Errorf("bob is told %+v", r)
	}
	_ = idle[0].SetReadDeadline(time.Now().Add(time.Minute))
	var timeout net.Error
	if _, err := idle[0].Read(make([]byte, 1)); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("the oldest one is still open: %v", err)
	}
	w.until(func() bool { return w.edge.Connections() <= 4 }) // one that was closed is counted until its goroutine ends
	s.cancel()
}
