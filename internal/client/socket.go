package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	subprotocol  = "graphql-transport-ws"
	dialTimeout  = 15 * time.Second
	writeTimeout = 10 * time.Second
	silence      = 45 * time.Second // of a connection that is taken for dead; the server pings each 10 s
	maxFrame     = 16 << 20
	socketAhead  = 4096 // messages of an operation read ahead of its reader
)

// closeForbidden is the close code of a socket whose token was not accepted (graphql-transport-ws).
const closeForbidden = 4403

// Types of graphql-transport-ws messages.
const (
	msgInit      = "connection_init"
	msgAck       = "connection_ack"
	msgPing      = "ping"
	msgPong      = "pong"
	msgSubscribe = "subscribe"
	msgNext      = "next"
	msgError     = "error"
	msgComplete  = "complete"
)

type message struct {
	ID      string          `json:"id,omitempty"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// Socket is one graphql-transport-ws connection, ready for operations.
type Socket struct {
	conn *websocket.Conn

	write sync.Mutex
	mu    sync.Mutex
	last  int
	ops   map[string]*Operation

	leave   sync.Once
	leaving chan struct{} // closed when the client gives the connection up
	done    chan struct{} // closed when nothing more will be read
	err     error         // valid after done: why
}

// Operation is one operation on a socket.
type Operation struct {
	id     string
	socket *Socket
	in     chan arrival
}

// arrival is one message with the moment of its arrival.
type arrival struct {
	message
	at time.Time
}

// Dial opens a socket and waits for the acknowledgement of its init, which carries the client's token.
func (c *Client) Dial(ctx context.Context) (*Socket, error) {
	conn, err := c.DialRaw(ctx)
	if err != nil {
		return nil, err
	}
	auth := json.RawMessage(`{}`)
	if token := c.Target().Token; token != "" {
		auth, _ = json.Marshal(map[string]string{"Authorization": "Bearer " + token}) // strings always encode
	}
	s := &Socket{conn: conn, ops: map[string]*Operation{}, leaving: make(chan struct{}), done: make(chan struct{})}
	impatient := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = s.greet(auth)
	if !impatient() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	go s.read()
	return s, nil
}

// greet says who calls and waits for the acknowledgement.
func (s *Socket) greet(auth json.RawMessage) error {
	if err := s.send(message{Type: msgInit, Payload: auth}); err != nil {
		return err
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(dialTimeout))
	var ack message
	for ack.Type != msgAck {
		err := s.conn.ReadJSON(&ack)
		if websocket.IsCloseError(err, closeForbidden) {
			return Errors{{Message: "the token was not accepted", Extensions: ErrorExtensions{Code: CodeUnauthenticated}}}
		}
		if err != nil {
			return fmt.Errorf("failed to initialise the socket: %w: %w", ErrCut, err)
		}
	}
	return nil
}

// DialRaw opens a WebSocket with the right subprotocol and says nothing on it.
func (c *Client) DialRaw(ctx context.Context) (*websocket.Conn, error) {
	dialer := websocket.Dialer{Subprotocols: []string{subprotocol}, HandshakeTimeout: dialTimeout, NetDialContext: (&net.Dialer{}).DialContext}
	conn, res, err := dialer.DialContext(ctx, "ws"+strings.TrimPrefix(c.Target().URL, "http")+"/graphql", http.Header{})
	if err != nil {
		status := 0
		if res != nil {
			status = res.StatusCode
			res.Body.Close()
		}
		return nil, fmt.Errorf("failed to open a socket (status %d): %w: %w", status, ErrCut, err)
	}
	res.Body.Close()
	conn.SetReadLimit(maxFrame)
	return conn, nil
}

func (s *Socket) send(m message) error {
	s.write.Lock()
	defer s.write.Unlock()
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err := s.conn.WriteJSON(m); err != nil {
		return fmt.Errorf("failed to send %s: %w: %w", m.Type, ErrCut, err)
	}
	return nil
}

// read hands messages to their operations until the connection ends.
func (s *Socket) read() {
	for {
		var m message
		_ = s.conn.SetReadDeadline(time.Now().Add(silence))
		if err := s.conn.ReadJSON(&m); err != nil {
			s.err = fmt.Errorf("%w: %w", ErrCut, err)
			close(s.done)
			return
		}
		at := time.Now()
		if m.Type == msgPing {
			_ = s.send(message{Type: msgPong}) // a dead connection shows at the next read
			continue
		}
		s.mu.Lock()
		op := s.ops[m.ID]
		s.mu.Unlock()
		if op == nil {
			continue
		}
		select {
		case op.in <- arrival{m, at}:
		case <-s.leaving: // the next read fails
		}
	}
}

// Subscribe starts an operation. Its results come from Operation.Next.
func (s *Socket) Subscribe(query string, vars Variables) (*Operation, error) {
	payload, err := json.Marshal(request{query, vars})
	if err != nil {
		return nil, fmt.Errorf("failed to encode the operation: %w", err)
	}
	s.mu.Lock()
	s.last++
	op := &Operation{id: fmt.Sprint(s.last), socket: s, in: make(chan arrival, socketAhead)}
	s.ops[op.id] = op
	s.mu.Unlock()
	return op, s.send(message{ID: op.id, Type: msgSubscribe, Payload: payload})
}

// Next decodes the next result into out and returns when it arrived. io.EOF: the server completed the operation.
// Errors: the operation failed. ErrCut: the connection is gone.
func (o *Operation) Next(ctx context.Context, out any) (time.Time, error) {
	select { // what has arrived comes before the end of the connection
	case a := <-o.in:
		return a.at, o.take(a, out)
	default:
	}
	select {
	case a := <-o.in:
		return a.at, o.take(a, out)
	case <-o.socket.done:
		select {
		case a := <-o.in:
			return a.at, o.take(a, out)
		default:
			return time.Time{}, o.socket.err
		}
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}

func (o *Operation) take(a arrival, out any) error {
	switch a.Type {
	case msgNext:
		return decode(0, a.Payload, out)
	case msgComplete:
		return io.EOF
	case msgError:
		var e Errors
		if err := json.Unmarshal(a.Payload, &e); err != nil || len(e) == 0 {
			return fmt.Errorf("failed to decode an error message: %.200s", a.Payload)
		}
		return e
	}
	return fmt.Errorf("message of unknown type %q", a.Type)
}

// Stop ends the operation from the client's side.
func (o *Operation) Stop() error { return o.socket.send(message{ID: o.id, Type: msgComplete}) }

// Cut drops the connection as a crashed client or a broken network does: a reset, without a close frame.
func (s *Socket) Cut() {
	if tcp, ok := s.conn.NetConn().(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	s.drop()
}

// Close says goodbye and drops the connection.
func (s *Socket) Close() {
	s.write.Lock()
	_ = s.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
	s.write.Unlock()
	s.drop()
}

func (s *Socket) drop() {
	s.leave.Do(func() { close(s.leaving) })
	_ = s.conn.Close()
	<-s.done
}
