// Package transport is the HTTP edge: GraphQL over POST, GET, server-sent events and graphql-transport-ws, with
// authentication, origin and size limits, health, the playground, and an orderly end.
package transport

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/internal/share"
	"github.com/harness-engine/harness-engine/resolvers"
	"github.com/harness-engine/harness-engine/transport/auth"
	"github.com/harness-engine/harness-engine/transport/playground"
	"github.com/harness-engine/harness-engine/transport/ws"
)

// Files takes attachments in and gives them back; see file.Service.
type Files interface {
	Upload(ctx context.Context, caller authz.Caller, u file.Upload) (file.Attachment, error)
	Open(ctx context.Context, caller authz.Caller, attachmentID string) (file.Attachment, io.ReadCloser, error)
}

// Options configure a Server. API and Authenticator are required.
type Options struct {
	API            *resolvers.Root
	Files          Files // nil: no attachments
	Authenticator  auth.Authenticator
	Checks         []Check  // what /readyz asks
	AllowedOrigins []string // beside the server's own host: scheme://host[:port], exactly
	Playground     bool     // serve /playground
	Limits         Limits
	Logger         *slog.Logger // nil: slog.Default()
}

// Server is the edge as one handler.
type Server struct {
	limits  Limits
	auth    auth.Authenticator
	origins map[string]bool
	logger  *slog.Logger
	checks  *readiness
	handler http.Handler

	// life ends at Drain; its cause says so to whoever is cut off.
	life    context.Context
	end     context.CancelCauseFunc
	sockets *ws.Server
	streams *quota
	conns   *connections

	// What callers share.
	places   *share.Places[authz.Caller] // where operations are executed
	requests *share.Stock[authz.Caller]  // HTTP requests in work
	held     *share.Stock[authz.Caller]  // bytes of requests and messages
	unread   *share.Stock[authz.Caller]  // bytes of answers that are not written yet
}

// errDraining is what a client sees whose stream ends with the engine.
var errDraining = problem.New(problem.Capacity, "the engine is shutting down").With("retryAfter", 1)

// NewServer returns the edge. It listens to nothing; see HTTP.
func NewServer(o Options) (*Server, error) {
	if o.API == nil || o.Authenticator == nil {
		return nil, errors.New("transport: a server needs the API and an authenticator")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Server{limits: o.Limits.withDefaults(), auth: o.Authenticator, origins: map[string]bool{}, logger: o.Logger}
	for _, origin := range o.AllowedOrigins {
		if err := checkOrigin(origin); err != nil {
			return nil, err
		}
		s.origins[origin] = true
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	s.streams = newQuota(s.limits.MaxSockets, s.limits.MaxCallerStreams)
	s.places = share.NewPlaces[authz.Caller](s.limits.MaxExecuting, s.limits.MaxCallerActive)
	s.requests = share.NewStock[authz.Caller](int64(s.limits.MaxConnections), int64(s.limits.MaxCallerRequests))
	s.held = share.NewStock[authz.Caller](s.limits.MaxHeld, s.limits.MaxCallerHeld)
	s.unread = share.NewStock[authz.Caller](s.limits.MaxUnread, s.limits.MaxCallerUnread)
	s.sockets = s.newSockets(o.API)
	s.conns = newConnections(s.limits.MaxConnections, s.sockets.Count)
	s.checks = newReadiness(o.Checks, s.limits, s.logger)

	mux := http.NewServeMux()
	mux.Handle("/graphql", negotiated(s.admit(graphQLRoute, s.authenticate(refuse, s.graphQL(o.API)))))
	mux.Handle("/v1/runs/{id}/events", s.admit(runEventsRoute, s.authenticate(refuseProblem, runEvents{server: s, api: o.API})))
	if o.Files != nil {
		files := attachments{server: s, api: o.API, files: o.Files}
		mux.Handle("/v1/attachments", s.admit(uploadRoute, s.authenticate(refuseProblem, files.guarded(files.upload))))
		mux.Handle("/v1/attachments/{id}", s.admit(downloadRoute, s.authenticate(refuseProblem, files.guarded(files.download))))
	}
	mux.HandleFunc("GET /healthz", health)
	mux.HandleFunc("GET /readyz", s.ready)
	if o.Playground {
		page := playground.Handler()
		mux.Handle("GET /playground", page)
		mux.Handle("GET /playground/", page)
		mux.Handle("GET /{$}", http.RedirectHandler("/playground", http.StatusFound))
	}
	s.handler = secure(mux)
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer work(r.Context())()
	s.handler.ServeHTTP(w, r)
}

// HTTP returns an http.Server for the address with the limits that belong to a listener; of those that it counts there is
// one for all servers of this one. An event stream moves the
// deadline for writing on with each write; a WebSocket takes it off.
func (s *Server) HTTP(addr string) *http.Server {
	server := &http.Server{
		Addr: addr, Handler: s, MaxHeaderBytes: s.limits.MaxHeaderBytes,
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: s.limits.ReadTimeout, IdleTimeout: 2 * time.Minute,
		WriteTimeout: s.limits.ReadTimeout + s.limits.OperationTimeout + transferTimeout,
		ErrorLog:     slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),
	}
	s.conns.watch(server)
	return server
}

// transferTimeout is for an answer to reach a slow reader.
const transferTimeout = time.Minute

// Drain makes the server not ready, takes no new work and ends every stream: event streams at once, WebSockets with
// 1012, each at a moment of its own and when the queries and mutations on it have ended. Call it before
// http.Server.Shutdown, which waits for the requests that are in work, and Wait.
func (s *Server) Drain() {
	s.end(errDraining)
	s.sockets.Drain()
}

// Wait waits until a drain has closed all WebSockets, which takes at most Limits.DrainTimeout and a moment. When ctx ends
// before, they are cut off, and its error is returned.
func (s *Server) Wait(ctx context.Context) error { return s.sockets.Wait(ctx) }

// draining reports whether Drain was called.
func (s *Server) draining() bool { return s.life.Err() != nil }
