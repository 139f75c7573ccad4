// Package ws is the server's side of graphql-transport-ws (graphql-ws, PROTOCOL.md) on gorilla/websocket.
//
// A socket has one goroutine, its reader. What is to be written a crew of few goroutines writes, for all sockets; whoever has to
// wait for a client or a store is that socket's own writer meanwhile.
// A subscription whose deliveries are shared (resolvers.Feed) has none: the writer polls it when it was notified. Queries,
// mutations and other subscriptions run on a goroutine of their own. Whatever goes deep - parsing, authorization, the
// store - happens on goroutines that end with it, so that an idle socket keeps a small stack.
//
// Nothing queues up for a slow reader: a feed is a cursor, and whoever produces anything else waits for room. A write
// that takes longer than Limits.WriteTimeout ends the connection, and the client comes back with its cursor.
package ws

import (
	"container/list"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/gorilla/websocket"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/internal/share"
	"github.com/harness-engine/harness-engine/resolvers"
)

// Subprotocol is the only one that is spoken.
const Subprotocol = "graphql-transport-ws"

// Close codes: those of the protocol, of RFC 6455 and of its registry.
const (
	CloseTooBig       = 1009
	CloseRestart      = 1012
	CloseTryAgain     = 1013
	CloseBadRequest   = 4400
	CloseUnauthorized = 4401
	CloseForbidden    = 4403
	CloseSubprotocol  = 4406
	CloseInitTimeout  = 4408
	CloseDuplicateID  = 4409
	CloseTooManyInits = 4429
)

// Limits of sockets. All are required.
type Limits struct {
	MaxMessage   int           // bytes of a client's message, once it is known who the client is
	MaxInit      int           // bytes of a message before
	MaxDepth     int           // nesting of a message's JSON
	MaxOps       int           // operations at once on one socket
	MaxUnknown   int           // sockets at once whose client is not known yet; one more takes the place of the oldest
	MaxAnswers   int           // bytes of answers that wait for the client of one socket, beside one answer of any size
	InitTimeout  time.Duration // for connection_init, and for the answer to it
	WriteTimeout time.Duration // for one write to a slow reader, and up to an eighth more
	PingInterval time.Duration // between pings; whoever is silent from one to the next is gone
	HoldFor      time.Duration // how long a feed waits for a permission that nobody answers
	DrainSpread  time.Duration // the most over which a drain spreads the closing of sockets
	DrainTimeout time.Duration // the most that a drain waits for operations
}

// API executes what the executor does not.
type API interface {
	// OpenFeed is resolvers.Root.OpenFeed.
	OpenFeed(ctx context.Context, op *graphql.OperationContext, after string) (resolvers.Feed, bool, error)
	// Present makes what a client sees of an error.
	Present(ctx context.Context, err error) *gqlerror.Error
	// Recover makes an error of a panic.
	Recover(ctx context.Context, p any) error
}

// Identity is who calls, and until when that is known.
type Identity struct {
	Caller  authz.Caller
	Expires time.Time
}

// Options configure a Server. All are required.
type Options struct {
	API    API
	Limits Limits
	// Execute has the places where operations are executed, Messages the bytes of clients' messages that are held, and
	// Answers those of answers that are not written yet. They are shared with whoever else has callers.
	Execute  *share.Places[authz.Caller]
	Messages *share.Stock[authz.Caller]
	Answers  *share.Stock[authz.Caller]
	// Identify finds out who bears the value of an Authorization header. A problem other than Unauthenticated means
	// that nobody could tell.
	Identify func(ctx context.Context, authorization string) (Identity, *problem.Error)
	// Take counts one more connection; the zero caller is one that is not known yet.
	Take func(authz.Caller) (release func(), p *problem.Error)
	// Refuse answers an upgrade request that gets no socket.
	Refuse func(w http.ResponseWriter, status int, p *problem.Error)
}

// Server has the sockets of one edge.
type Server struct {
	o        Options
	upgrader websocket.Upgrader
	greet    *share.Places[struct{}] // of its own: who comes does not wait for what others do
	renew    *share.Places[authz.Caller]
	crew     *crew
	messages sync.Pool // *[]byte, for messages of clients

	mu         sync.Mutex
	sockets    map[*socket]struct{}
	unknown    list.List // of *socket, those whose client is not known yet, the oldest first
	coming     int       // sockets that are being made
	peak       int       // the most sockets since memory was given back for those who left
	collecting bool      // that is about to be done
	draining   bool
	empty      chan struct{} // closed when draining and no socket is left
}

// Sizes of a socket's buffers.
const (
	readBuffer  = 512      // longer messages are read past it
	maxPooled   = 64 << 10 // a longer buffer is not kept for others
	maxGreeting = 256      // tokens that are judged at once
	maxRenewing = 256      // permissions that are asked for at once
	maxRenewals = 64       // of them one caller's
)

// NewServer returns a server without sockets.
func NewServer(o Options) *Server {
	s := &Server{o: o, sockets: map[*socket]struct{}{}, empty: make(chan struct{})}
	s.greet, s.renew = share.NewPlaces[struct{}](maxGreeting, maxGreeting), share.NewPlaces[authz.Caller](maxRenewing, maxRenewals)
	s.crew = newCrew()
	s.messages.New = func() any { b := make([]byte, 0, 1024); return &b }
	s.upgrader = websocket.Upgrader{
		HandshakeTimeout: o.Limits.InitTimeout,
		Subprotocols:     []string{Subprotocol},
		ReadBufferSize:   readBuffer,
		WriteBufferPool:  &sync.Pool{},                             // this package writes frames itself
		CheckOrigin:      func(*http.Request) bool { return true }, // the edge has checked it
		Error: func(w http.ResponseWriter, _ *http.Request, status int, _ error) {
			w.Header().Set("Sec-WebSocket-Version", "13")
			o.Refuse(w, status, problem.New(problem.BadUserInput, "the request is not a WebSocket handshake (RFC 6455, version 13)"))
		},
	}
	return s
}

// Serve makes a socket of an upgrade request that has been admitted, and returns at once; known, where not nil, is who
// the request itself says that calls. What the request held is let go.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, exec graphql.GraphExecutor, known *Identity) {
	if !s.begin() {
		s.o.Refuse(w, http.StatusServiceUnavailable, problem.New(problem.Capacity, reasonRestart).With("retryAfter", 1))
		return
	}
	release, p := s.o.Take(authz.Caller{})
	if p != nil {
		s.begun(nil)
		s.o.Refuse(w, http.StatusServiceUnavailable, p)
		return
	}
	conn, err := s.upgrader.Upgrade(w, r, nil)
	if err != nil {
		release()
		s.begun(nil)
		return
	}
	k := newSocket(s, conn, exec, known, release)
	draining := s.begun(k)
	go k.read()
	s.makeRoom()
	switch {
	case conn.Subprotocol() != Subprotocol:
		k.fail(CloseSubprotocol, "Subprotocol not acceptable")
	case draining: // meanwhile
		k.fail(CloseRestart, reasonRestart)
	}
}

// begin announces a socket; false: there may be none any more.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.coming++
	return true
}

// begun has the socket that was announced; nil: there is none.
func (s *Server) begun(k *socket) (draining bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coming--
	if k != nil {
		s.sockets[k] = struct{}{}
		k.stranger = s.unknown.PushBack(k)
		s.peak = max(s.peak, len(s.sockets))
	}
	s.checkEmpty()
	return s.draining
}

// Count is the number of open sockets.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sockets)
}

// forget drops a socket that has ended, with all that it had to do.
func (s *Server) forget(k *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sockets, k)
	s.met(k)
	s.leaving()
	s.checkEmpty()
}

// known says that it is known who the socket's client is.
func (s *Server) known(k *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.met(k)
}

// met takes the socket from those whose client is not known. mu is held.
func (s *Server) met(k *socket) {
	if k.stranger != nil {
		s.unknown.Remove(k.stranger)
		k.stranger = nil
	}
}

// makeRoom closes the socket that has been silent about its client for longest, where there are too many: who opens many
// and says nothing keeps nobody out.
func (s *Server) makeRoom() {
	s.mu.Lock()
	var oldest *socket
	if s.unknown.Len() > s.o.Limits.MaxUnknown {
		oldest, _ = s.unknown.Front().Value.(*socket)
		s.met(oldest)
	}
	s.mu.Unlock()
	if oldest != nil {
		oldest.fail(CloseInitTimeout, "Connection initialisation timeout")
	}
}

// checkEmpty says when the last socket of a drain is gone. mu is held.
func (s *Server) checkEmpty() {
	if !s.draining || len(s.sockets) > 0 || s.coming > 0 {
		return
	}
	select {
	case <-s.empty:
	default:
		close(s.empty)
	}
}
