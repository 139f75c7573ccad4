package ws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/gorilla/websocket"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/internal/share"
	"github.com/harness-engine/harness-engine/resolvers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what a test waits for; nothing takes as long unless it is broken.
const patience = time.Minute

// patiently plays what has to be done within a time, with more and more of that until the machine is fast enough: then play
// returns true. Where it did what the lateness explains, it returns false.
func patiently(t *testing.T, play func(within time.Duration) bool) {
	t.Helper()
	for within := 100 * time.Millisecond; !play(within); within *= 2 {
		if within > patience/2 {
			t.Fatalf("not within %s", within)
		}
	}
}

// large is an answer of 1 MiB.
var large = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)

// world is a server whose executor and feeds are the test's. The document of an operation is a word and an argument:
//
//	feed NAME       a feed of that name
//	query NAME      answers {"data":"NAME"}
//	hold NAME       a query that waits for release(NAME)
//	count N         an ordinary subscription of N responses
//	wait            an ordinary subscription that ends with its context
//	invalid, refused, failing, panic
type world struct {
	t      *testing.T
	server *Server
	http   *httptest.Server

	mu      sync.Mutex
	feeds   map[string]*fakeFeed
	gates   map[string]chan struct{}
	streams map[authz.Caller]int
	judging chan struct{} // where set, identification waits for it
	lasts   time.Duration // of tokens

	places            *share.Places[authz.Caller]
	messages, answers *share.Stock[authz.Caller]
}

func newWorld(t *testing.T, change func(*Limits)) *world {
	t.Helper()
	return newWorldOn(t, change, nil)
}

// newWorldOn has a listener that wrap makes, where set.
func newWorldOn(t *testing.T, change func(*Limits), wrap func(net.Listener) net.Listener) *world {
	t.Helper()
	w := &world{t: t, feeds: map[string]*fakeFeed{}, gates: map[string]chan struct{}{}, streams: map[authz.Caller]int{}, lasts: time.Hour}
	limits := Limits{
		MaxMessage: 64 << 10, MaxInit: 1 << 10, MaxDepth: 16, MaxOps: 8, MaxUnknown: 1000, MaxAnswers: 64 << 20, InitTimeout: patience, WriteTimeout: patience,
		PingInterval: time.Hour, HoldFor: patience, DrainSpread: 50 * time.Millisecond, DrainTimeout: patience,
	}
	if change != nil {
		change(&limits)
	}
	w.places, w.messages, w.answers = share.NewPlaces[authz.Caller](16, 8), share.NewStock[authz.Caller](4<<20, 1<<20), share.NewStock[authz.Caller](128<<20, 64<<20)
	w.server = NewServer(Options{
		API: w, Limits: limits, Identify: w.identify, Take: w.take, Execute: w.places, Messages: w.messages, Answers: w.answers,
		Refuse: func(rw http.ResponseWriter, status int, p *problem.Error) { http.Error(rw, p.Message, status) },
	})
	w.http = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var known *Identity
		if subject := r.Header.Get("Subject"); subject != "" {
			known = &Identity{authz.Caller{Environment: "test", Subject: subject}, time.Now().Add(time.Hour)}
		}
		w.server.Serve(rw, r, w, known)
	}))
	if wrap != nil {
		w.http.Listener = wrap(w.http.Listener)
	}
	w.http.Start()
	t.Cleanup(func() {
		w.server.Drain()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.server.Wait(ctx); err != nil {
			t.Errorf("sockets are left: %v", err)
		}
		w.http.Close()
		w.until("something is still held", func() bool {
			places, _ := w.places.Taken()
			messages, _ := w.messages.Held()
			answers, _ := w.answers.Held()
			return places == 0 && messages == 0 && answers == 0
		})
		w.mu.Lock()
		defer w.mu.Unlock()
		for who, n := range w.streams {
			if n != 0 {
				t.Errorf("%v still has %d places", who, n)
			}
		}
		for name, f := range w.feeds {
			if f.opened > 0 && !f.closed {
				t.Errorf("feed %s was not closed", name)
			}
		}
	})
	return w
}

// executing says how many operations are executed at once, and of one caller. No socket is there yet.
func (w *world) executing(most, each int) {
	w.places = share.NewPlaces[authz.Caller](most, each)
	w.server.o.Execute = w.places
}

func (w *world) identify(ctx context.Context, authorization string) (Identity, *problem.Error) {
	w.mu.Lock()
	judging, lasts := w.judging, w.lasts
	w.mu.Unlock()
	if judging != nil {
		select {
		case <-judging:
		case <-ctx.Done():
			return Identity{}, problem.New(problem.AuthorizationUnavailable, "nobody answered")
		}
	}
	subject, ok := strings.CutPrefix(authorization, "Bearer ")
	switch {
	case subject == "outage":
		return Identity{}, problem.New(problem.AuthorizationUnavailable, "try again")
	case !ok || subject == "bad":
		return Identity{}, problem.New(problem.Unauthenticated, "the token is not valid")
	}
	return Identity{authz.Caller{Environment: "test", Subject: subject}, time.Now().Add(lasts)}, nil
}

func (w *world) take(who authz.Caller) (func(), *problem.Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if who.Subject == "crowd" && w.streams[who] == 1 {
		return nil, problem.New(problem.RateLimited, "too many streams")
	}
	w.streams[who]++
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.streams[who]--
	}), nil
}

// feed is the feed of that name, to be filled before or after it is opened.
func (w *world) feed(name string) *fakeFeed {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.feeds[name] == nil {
		w.feeds[name] = &fakeFeed{w: w, until: time.Now().Add(time.Hour)}
	}
	return w.feeds[name]
}

func (w *world) gate(name string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gates[name] == nil {
		w.gates[name] = make(chan struct{})
	}
	return w.gates[name]
}

func (w *world) release(name string) { close(w.gate(name)) }

// CreateOperationContext implements graphql.GraphExecutor.
func (w *world) CreateOperationContext(_ context.Context, p *graphql.RawParams) (*graphql.OperationContext, gqlerror.List) {
	word, argument, _ := strings.Cut(p.Query, " ")
	op := &graphql.OperationContext{RawQuery: word, OperationName: argument, Operation: &ast.OperationDefinition{Operation: ast.Query}}
	switch word {
	case "invalid":
		return op, gqlerror.List{{Message: "invalid"}}
	case "feed", "count", "wait", "refused", "failing":
		op.Operation.Operation = ast.Subscription
	}
	return op, nil
}

// DispatchError implements graphql.GraphExecutor.
func (w *world) DispatchError(_ context.Context, list gqlerror.List) *graphql.Response {
	return &graphql.Response{Errors: list}
}

// DispatchOperation implements graphql.GraphExecutor.
func (w *world) DispatchOperation(ctx context.Context, op *graphql.OperationContext) (graphql.ResponseHandler, context.Context) {
	data := func(v any) *graphql.Response {
		raw, _ := json.Marshal(v)
		return &graphql.Response{Data: raw}
	}
	n := 0
	return func(ctx context.Context) *graphql.Response {
		switch op.RawQuery {
		case "query":
			return data(op.OperationName)
		case "large":
			return &graphql.Response{Data: large}
		case "hold":
			select {
			case <-w.gate(op.OperationName):
				return data(op.OperationName)
			case <-ctx.Done():
				return &graphql.Response{Data: []byte("null"), Errors: gqlerror.List{{Message: "cut off"}}}
			}
		case "count":
			if n++; fmt.Sprint(n-1) == op.OperationName {
				return nil
			}
			return data(n)
		case "wait":
			<-ctx.Done()
			return nil
		case "failing":
			if n++; n == 2 {
				return &graphql.Response{Errors: gqlerror.List{{Message: "it failed"}}}
			}
			return data(n)
		}
		panic("no such operation")
	}, ctx
}

// OpenFeed implements API.
func (w *world) OpenFeed(ctx context.Context, op *graphql.OperationContext, _ string) (resolvers.Feed, bool, error) {
	if _, ok := authz.CallerFrom(ctx); !ok {
		w.t.Error("an operation without a caller")
	}
	switch op.RawQuery {
	case "refused":
		return nil, false, gqlerror.List{{Message: "refused", Extensions: map[string]any{"code": "NOT_FOUND"}}}
	case "feed":
		f := w.feed(op.OperationName)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.opened++
		return f, true, nil
	}
	return nil, false, nil
}

// Present implements API.
func (w *world) Present(_ context.Context, err error) *gqlerror.Error {
	p, ok := problem.As(err)
	if !ok {
		return &gqlerror.Error{Message: "internal error"}
	}
	return &gqlerror.Error{Message: p.Message, Extensions: map[string]any{"code": string(p.Code)}}
}

// Recover implements API.
func (w *world) Recover(_ context.Context, p any) error { return fmt.Errorf("panic: %v", p) }

// fakeFeed delivers what a test puts.
type fakeFeed struct {
	w *world

	mu      sync.Mutex
	items   []string
	source  func() string // where set, gives without end
	end     error
	notify  func()
	empty   bool // a Poll found nothing, or the last item
	opened  int
	closed  bool
	until   time.Time
	renew   func(ctx context.Context) (time.Time, error) // nil: an hour more
	renewed int
}

func (f *fakeFeed) put(items ...string) {
	f.mu.Lock()
	f.items = append(f.items, items...)
	f.wake()
	f.mu.Unlock()
}

func (f *fakeFeed) finish(err error) {
	f.mu.Lock()
	f.end = err
	f.wake()
	f.mu.Unlock()
}

// wake notifies; mu is held, as the hub holds its own.
func (f *fakeFeed) wake() {
	if f.empty && f.notify != nil {
		f.empty = false
		f.notify()
	}
}

// Poll implements resolvers.Feed.
func (f *fakeFeed) Poll(ctx context.Context) (resolvers.Item, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		f.w.t.Error("polled after it was closed")
	case ctx.Err() != nil:
		return resolvers.Item{}, false, ctx.Err()
	case len(f.items) > 0:
		item := f.items[0]
		f.items = f.items[1:]
		if item == "panic" {
			panic(item)
		}
		f.empty = len(f.items) == 0 && f.source == nil && f.end == nil
		return resolvers.Item{Payload: []byte(item), Waiting: f.empty}, true, nil
	case f.source != nil:
		return resolvers.Item{Payload: []byte(f.source())}, true, nil
	case f.end != nil:
		return resolvers.Item{}, false, f.end
	}
	f.empty = true
	return resolvers.Item{}, false, nil
}

// Notify implements resolvers.Feed.
func (f *fakeFeed) Notify(notify func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notify = notify
}

// Until implements resolvers.Feed.
func (f *fakeFeed) Until() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.until
}

// Renew implements resolvers.Feed.
func (f *fakeFeed) Renew(ctx context.Context) error {
	f.mu.Lock()
	renew := f.renew
	f.renewed++
	f.mu.Unlock()
	until, err := time.Now().Add(time.Hour), error(nil)
	if renew != nil {
		until, err = renew(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.until = until
	}
	return err
}

// Close implements resolvers.Feed.
func (f *fakeFeed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// client is a WebSocket client that knows nothing of the protocol.
type client struct {
	t    *testing.T
	conn *websocket.Conn
}

func (w *world) dial(protocols ...string) *client {
	w.t.Helper()
	dialer := websocket.Dialer{Subprotocols: protocols, HandshakeTimeout: patience}
	conn, _, err := dialer.Dial("ws"+strings.TrimPrefix(w.http.URL, "http"), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return &client{w.t, conn}
}

// ready dials and is acknowledged.
func (w *world) ready(subject string) *client {
	w.t.Helper()
	c := w.dial(Subprotocol)
	c.send(`{"type":"connection_init","payload":{"Authorization":"Bearer ` + subject + `"}}`)
	c.want(`{"type":"connection_ack"}`)
	return c
}

func (c *client) send(messages ...string) {
	c.t.Helper()
	for _, m := range messages {
		if err := c.conn.WriteMessage(websocket.TextMessage, []byte(m)); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *client) subscribe(id, document string) {
	c.t.Helper()
	c.send(fmt.Sprintf(`{"id":%q,"type":"subscribe","payload":{"query":%q}}`, id, document))
}

func (c *client) next() (string, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	_, raw, err := c.conn.ReadMessage()
	return string(raw), err
}

func (c *client) want(messages ...string) {
	c.t.Helper()
	for _, want := range messages {
		if got, err := c.next(); err != nil || got != want {
			c.t.Fatalf("got %.300s (%v), want %s", got, err, want)
		}
	}
}

// wantClose reads one close frame, and nothing before it.
func (c *client) wantClose(code int) {
	c.t.Helper()
	got, err := c.next()
	var closed *websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != code {
		c.t.Fatalf("got %.300s (%v), want close %d", got, err, code)
	}
}

// wantEnd reads on to a close frame or the end of the connection.
func (c *client) wantEnd() {
	c.t.Helper()
	for {
		if _, err := c.next(); err != nil {
			var timeout interface{ Timeout() bool }
			if errors.As(err, &timeout) && timeout.Timeout() {
				c.t.Fatal("the connection did not end")
			}
			return
		}
	}
}

// until waits for something that other goroutines bring about.
func (w *world) until(what string, done func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !done(); <-tick.C {
		if time.Now().After(end) {
			w.t.Fatal(what)
		}
	}
}
