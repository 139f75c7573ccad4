package worker

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// Times of the server.
const (
	writeTime = 60 * time.Second // for a client to take what is written to it
	drainTime = 3 * time.Second  // for open streams to deliver their terminal at shutdown
)

// Server is the worker protocol in front of a Host.
type Server struct {
	host    *Host
	secret  [32]byte // SHA-256, so that the comparison takes the same time for any length
	log     *slog.Logger
	http    *http.Server
	streams atomic.Int32
}

// NewServer returns the server of a host. Nobody is served without the secret.
func NewServer(h *Host, secret string, log *slog.Logger) *Server {
	s := &Server{host: h, secret: sha256.Sum256([]byte(secret)), log: log}
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return s
}

// Listen makes the unix socket. It refuses a path that exists, so that two workers never share one.
func Listen(socket string) (net.Listener, error) {
	if len(socket) > MaxSocketPath {
		return nil, fmt.Errorf("failed to listen: socket path has %d bytes, at most %d fit", len(socket), MaxSocketPath)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("failed to listen: socket exists already")
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("failed to listen: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("failed to protect socket: %w", err)
	}
	return &limitedListener{Listener: l, slots: make(chan struct{}, MaxConnections)}, nil
}

// Serve answers until the host has stopped; then it lets open streams deliver their end, bounded, and closes l.
func (s *Server) Serve(l net.Listener) error {
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("failed to serve: %w", err)
	case <-s.host.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("failed to serve: %w", err)
	}
	return nil
}

// Abort cuts every connection and answers nobody any more.
func (s *Server) Abort() { _ = s.http.Close() }

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, f := range map[string]func(w http.ResponseWriter, r *http.Request) error{
		"GET /v1/ready":             s.ready,
		"POST /v1/bind":             s.bind,
		"POST /v1/runs":             s.start,
		"PUT /v1/state":             s.restore,
		"POST /v1/runs/{id}/cancel": s.cancel,
		"GET /v1/runs/{id}/state":   s.state,
		"POST /v1/runs/{id}/commit": s.commit,
		"GET /v1/runs/{id}/events":  s.events,
		"POST /v1/runs/{id}/ack":    s.ack,
		"POST /v1/shutdown":         s.shutdown,
		"/": func(http.ResponseWriter, *http.Request) error {
			return &Error{Code: CodeNotFound, Message: "no such call"}
		},
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := f(w, r); err != nil {
				s.fail(w, err)
			}
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get(headerSecret)))
		if subtle.ConstantTimeCompare(got[:], s.secret[:]) != 1 {
			s.fail(w, &Error{Code: CodeUnauthorized, Message: "wrong secret"})
			return
		}
		w.Header().Set(headerInstance, s.host.Instance())
		if v := r.Header.Get(headerProtocol); v != strconv.Itoa(ProtocolVersion) {
			s.fail(w, &Error{Code: CodeUnsupported, Field: headerProtocol, Message: "this worker speaks protocol version 1"})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// fail answers with an error. What is not an *Error is internal: its text goes to the log only.
func (s *Server) fail(w http.ResponseWriter, err error) {
	var e *Error
	if !errors.As(err, &e) {
		s.log.Error("call failed", "error", err)
		e = &Error{Code: CodeInternal, Message: "the worker failed"}
	}
	writeJSON(w, statusOf[e.Code], e)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}

func caller(r *http.Request) (Caller, error) {
	c := Caller{Binding: harness.Binding{SessionID: r.Header.Get(headerSession)}}
	for _, f := range []struct {
		header string
		dst    *int64
	}{
		{headerEpoch, &c.Binding.Epoch}, {headerSandboxGen, &c.Binding.SandboxGen}, {headerLeaseGen, &c.LeaseGen},
	} {
		n, err := strconv.ParseInt(r.Header.Get(f.header), 10, 64)
		if err != nil {
			return Caller{}, bad(f.header, "must be a whole number")
		}
		*f.dst = n
	}
	return c, c.validate()
}

// read decodes a body strictly: bounded, no unknown field, nothing after it.
func read(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	return decodeStrict(http.MaxBytesReader(w, r.Body, limit), v)
}

func decodeStrict(r io.Reader, v any) error {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		var extra json.RawMessage
		if err = dec.Decode(&extra); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			return bad("", "something follows the JSON value")
		}
	}
	var tooLarge *http.MaxBytesError
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &tooLarge):
		return &Error{Code: CodeTooLarge, Message: fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit)}
	case errors.As(err, &wrongType):
		return bad(wrongType.Field, "has the wrong type")
	default:
		return bad("", "not the JSON object that is expected: "+safeJSON(err))
	}
}

// safeJSON keeps of a JSON error what names a field or a place.
func safeJSON(err error) string {
	const unknown = "json: unknown field "
	if s := err.Error(); len(s) > len(unknown) && s[:len(unknown)] == unknown {
		return "unknown field " + s[len(unknown):min(len(s), len(unknown)+130)]
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Sprintf("syntax error at byte %d", syntax.Offset)
	}
	return "it is cut off or unreadable"
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	writeJSON(w, http.StatusOK, s.host.Ready())
	return nil
}

func (s *Server) bind(w http.ResponseWriter, r *http.Request) error {
	c, err := caller(r)
	if err != nil {
		return err
	}
	var req BindRequest
	if err := read(w, r, maxBody, &req); err != nil {
		return err
	}
	patient(w)
	if err := s.host.Bind(r.Context(), c, req); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, bindAnswer{Instance: s.host.Instance()})
	return nil
}

// patient is for calls that take longer than their request may: the server's read timeout would otherwise end their
// context.
func patient(w http.ResponseWriter) { _ = http.NewResponseController(w).SetReadDeadline(time.Time{}) }

type done struct{}

func (s *Server) start(w http.ResponseWriter, r *http.Request) error {
	c, err := caller(r)
	if err != nil {
		return err
	}
	var t harness.Turn
	if err := read(w, r, maxTurnBody, &t); err != nil {
		return err
	}
	if err := s.host.StartTurn(c, t); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, done{})
	return nil
}

func (s *Server) cancel(w http.ResponseWriter, r *http.Request) error {
	c, err := caller(r)
	if err != nil {
		return err
	}
	var req cancelRequest
	if err := read(w, r, maxSmallBody, &req); err != nil {
		return err
	}
	patient(w)
	if err := s.host.Cancel(c, r.PathValue("id"), event.CancelReason(req.Reason)); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, done{})
	return nil
}

func (s *Server) ack(w http.ResponseWriter, r *http.Request) error {
	c, err := caller(r)
	if err != nil {
		return err
	}
	var req ackRequest
	if err := read(w, r, maxSmallBody, &req); err != nil {
		return err
	}
	if req.Seq < 0 {
		return bad("seq", "negative")
	}
	if err := s.host.Ack(c, r.PathValue("id"), req.Seq); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, done{})
	return nil
}

// shutdown answers when the host has stopped.
func (s *Server) shutdown(w http.ResponseWriter, r *http.Request) error {
	c, err := caller(r)
	if err != nil {
		return err
	}
	var req shutdownRequest
	if err := read(w, r, maxSmallBody, &req); err != nil {
		return err
	}
	if req.IfIdleMs < 0 || req.IfIdleMs > MaxDeadline.Milliseconds() {
		return bad("ifIdleMs", "out of bounds")
	}
	if err := s.host.mayStop(c, time.Duration(req.IfIdleMs)*time.Millisecond); err != nil {
		return err
	}
	patient(w)
	s.host.Stop()
	writeJSON(w, http.StatusOK, done{})
	return nil
}

func after(q url.Values) (int64, error) {
	for k := range q {
		if k != "after" {
			return 0, bad("after", "no other parameter is known")
		}
	}
	n, err := strconv.ParseInt(q.Get("after"), 10, 64)
	if err != nil || n < 0 || len(q["after"]) != 1 {
		return 0, bad("after", "must be one whole number, 0 or more")
	}
	return n, nil
}

// events streams a run's journal as NDJSON.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	c, err := caller(r)
	if err != nil {
		return err
	}
	from, err := after(r.URL.Query())
	if err != nil {
		return err
	}
	if s.streams.Add(1) > MaxStreams {
		s.streams.Add(-1)
		return &Error{Code: CodeTooMany, Message: "too many event streams"}
	}
	defer s.streams.Add(-1)
	reader, err := s.host.read(c, r.PathValue("id"), from)
	if err != nil {
		return err
	}
	defer reader.leave()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	newStreamWriter(w).run(r.Context(), reader, from, s.host.Done())
	return nil
}

// limitedListener bounds the connections that are open at a time; further ones wait in the kernel's queue.
type limitedListener struct {
	net.Listener
	slots chan struct{}
}

func (l *limitedListener) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: conn, slots: l.slots}, nil
}

type limitedConn struct {
	net.Conn
	slots  chan struct{}
	closed atomic.Bool
}

func (c *limitedConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		<-c.slots
	}
	return c.Conn.Close()
}
