package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/handler/transport"
	"github.com/gorilla/websocket"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/resolvers"
)

// subprotocol is the only one that is spoken (graphql-ws, PROTOCOL.md).
const subprotocol = "graphql-transport-ws"

// Close codes of the protocol, and 1012 of RFC 6455's registry.
const (
	closeForbidden   = 4403
	closeInitTimeout = 4408
	closeRestart     = 1012
)

// webSocket is the stock transport on connections of this package.
func (s *Server) webSocket() graphql.Transport {
	limit := s.limits.MaxBodyBytes
	return sockets{server: s, Websocket: transport.Websocket{
		Implementation:   upgrader{s},
		InitFunc:         s.initSocket,
		InitTimeout:      s.limits.InitTimeout,
		PingPongInterval: s.limits.PingInterval,
		PayloadReadLimit: &limit,
	}}
}

// sockets counts WebSockets, and closes each behind the stock transport, which leaves some of them open.
type sockets struct {
	transport.Websocket
	server *Server
}

// Do implements graphql.Transport.
func (t sockets) Do(w http.ResponseWriter, r *http.Request, exec graphql.GraphExecutor) {
	s := t.server
	if !offers(r, subprotocol) {
		refuse(w, http.StatusBadRequest, problem.New(problem.BadUserInput, "Sec-WebSocket-Protocol must offer %s", subprotocol))
		return
	}
	if s.sockets.Add(1) > int64(s.limits.MaxSockets) {
		s.sockets.Add(-1)
		refuse(w, http.StatusServiceUnavailable, problem.New(problem.Capacity, "too many connections").With("retryAfter", 5))
		return
	}
	defer s.sockets.Add(-1)

	// The request's context ends with the server, and with the token that the upgrade request bore.
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })()
	k := &socket{}
	defer k.close()
	t.Websocket.Do(w, r.WithContext(context.WithValue(ctx, socketKey{}, k)), exec)
}

func offers(r *http.Request, protocol string) bool {
	for _, header := range r.Header.Values("Sec-Websocket-Protocol") {
		if slices.ContainsFunc(strings.Split(header, ","), func(p string) bool { return strings.TrimSpace(p) == protocol }) {
			return true
		}
	}
	return false
}

// initSocket authenticates a connection: by the token in connection_init, else by the one of the upgrade request.
// Whoever has neither gets no connection.
func (s *Server) initSocket(ctx context.Context, init transport.InitPayload) (context.Context, *transport.InitPayload, error) {
	k, _ := ctx.Value(socketKey{}).(*socket)
	refused := func(p *problem.Error) (context.Context, *transport.InitPayload, error) {
		return transport.AppendCloseReason(transport.WithWebsocketCloseCode(ctx, closeForbidden), p.Message), nil, p
	}
	if header := init.Authorization(); header != "" {
		identified, cancel, p := s.identify(ctx, header)
		if p != nil {
			return refused(p)
		}
		ctx = identified
		k.onClose(cancel)
	}
	if _, ok := authz.CallerFrom(ctx); !ok {
		return refused(problem.New(problem.Unauthenticated, "authentication required"))
	}
	k.authenticated(ctx)
	return resolvers.WithStream(ctx, resolvers.StreamFrames), nil, nil
}

type socketKey struct{}

// socket is what this package knows of one WebSocket beside the stock transport.
type socket struct {
	operations atomic.Int64

	mu      sync.Mutex
	ctx     context.Context // of the authenticated connection; nil before
	conn    *websocket.Conn
	closers []func()
}

func (k *socket) onClose(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closers = append(k.closers, f)
}

func (k *socket) authenticated(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ctx = ctx
}

func (k *socket) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.closers {
		f()
	}
	if k.conn != nil {
		_ = k.conn.Close()
	}
}

// closing puts the protocol's code in the place of the stock transport's where the connection's context says why it
// ends.
func (k *socket) closing(code int, reason string) (int, string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx == nil {
		if code == transport.WebsocketCloseProtocolError && strings.Contains(reason, "timeout") {
			return closeInitTimeout, "Connection initialisation timeout"
		}
		return code, reason
	}
	switch cause := context.Cause(k.ctx); {
	case errors.Is(cause, errDraining):
		return closeRestart, errDraining.Message
	case errors.Is(cause, errExpired):
		return closeForbidden, errExpired.Message
	}
	return code, reason
}

// upgrader makes connections for the stock transport.
type upgrader struct{ server *Server }

// Accept implements transport.WebsocketImplementation. The origin has been checked by admit.
func (u upgrader) Accept(w http.ResponseWriter, r *http.Request, o transport.WebsocketAcceptOptions) (transport.WebsocketConn, error) {
	up := websocket.Upgrader{
		HandshakeTimeout: 10 * time.Second,
		Subprotocols:     []string{subprotocol},
		CheckOrigin:      func(*http.Request) bool { return true },
		Error:            func(http.ResponseWriter, *http.Request, int, error) {}, // the stock transport answers
	}
	conn, err := up.Upgrade(w, r, o.ResponseHeader)
	if err != nil {
		return nil, err
	}
	k, _ := r.Context().Value(socketKey{}).(*socket)
	k.mu.Lock()
	k.conn = conn
	k.mu.Unlock()
	return &connection{Conn: conn, socket: k, writeTimeout: u.server.limits.WriteTimeout}, nil
}

// connection is a gorilla connection whose writes are bounded: a reader that is too slow is cut off, and comes back
// with its cursor. The stock transport writes under a lock.
type connection struct {
	*websocket.Conn
	socket       *socket
	writeTimeout time.Duration
}

// NextReader implements transport.WebsocketConn.
func (c *connection) NextReader() (int, io.Reader, error) {
	kind, r, err := c.Conn.NextReader()
	if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway, websocket.CloseNoStatusReceived) {
		err = transport.ErrWebsocketClosed
	}
	return kind, r, err
}

// WriteJSON implements transport.WebsocketConn.
func (c *connection) WriteJSON(v any) error {
	if err := c.SetWriteDeadline(time.Now().Add(c.writeTimeout)); err != nil {
		return err
	}
	if err := c.Conn.WriteJSON(v); err != nil {
		_ = c.Close() // ends the read loop, which ends the operations
		return err
	}
	return nil
}

// WriteClose implements transport.WebsocketConn.
func (c *connection) WriteClose(code int, reason string) error {
	code, reason = c.socket.closing(code, reason)
	return c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(c.writeTimeout))
}

// socketOperations is the extension that bounds the operations at once on one WebSocket.
type socketOperations struct{ most int }

var _ interface {
	graphql.HandlerExtension
	graphql.OperationInterceptor
} = socketOperations{}

// ExtensionName implements graphql.HandlerExtension.
func (socketOperations) ExtensionName() string { return "SocketOperations" }

// Validate implements graphql.HandlerExtension.
func (socketOperations) Validate(graphql.ExecutableSchema) error { return nil }

// InterceptOperation implements graphql.OperationInterceptor.
func (o socketOperations) InterceptOperation(ctx context.Context, next graphql.OperationHandler) graphql.ResponseHandler {
	k, ok := ctx.Value(socketKey{}).(*socket)
	if !ok {
		return next(ctx)
	}
	if k.operations.Add(1) > int64(o.most) {
		k.operations.Add(-1)
		p := problem.New(problem.RateLimited, "a connection carries at most %d operations at once", o.most)
		return graphql.OneShot(&graphql.Response{Errors: gqlerror.List{wire(p)}})
	}
	// The transport cancels an operation's context when it is over, however it ended.
	context.AfterFunc(ctx, func() { k.operations.Add(-1) })
	return next(ctx)
}
