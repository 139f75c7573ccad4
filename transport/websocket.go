package transport

import (
	"context"
	"net/http"

	"github.com/99designs/gqlgen/graphql"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/resolvers"
	"github.com/harness-engine/harness-engine/transport/ws"
)

// newSockets makes the part that speaks graphql-transport-ws.
func (s *Server) newSockets(api *resolvers.Root) *ws.Server {
	l := s.limits
	return ws.NewServer(ws.Options{
		API: api, Identify: s.identifySocket, Take: s.streams.take, Refuse: refuse,
		Execute: s.places, Messages: s.held, Answers: s.unread,
		Limits: ws.Limits{
			MaxMessage: int(l.MaxBodyBytes), MaxInit: min(l.MaxHeaderBytes, int(l.MaxBodyBytes)), MaxDepth: l.MaxBodyDepth, MaxOps: l.MaxSocketOps,
			MaxUnknown: max(l.MaxSockets/4, 64), MaxAnswers: l.MaxSocketUnread, InitTimeout: l.InitTimeout, WriteTimeout: l.WriteTimeout, PingInterval: l.SocketPing,
			HoldFor: api.Limits.HoldFor, DrainSpread: l.DrainSpread, DrainTimeout: l.DrainTimeout,
		},
	})
}

// serveSocket takes an upgrade request that was admitted and authenticated. Whom its token names is known until that expires.
func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request, exec graphql.GraphExecutor) {
	var known *ws.Identity
	if caller, ok := authz.CallerFrom(r.Context()); ok {
		expires, _ := r.Context().Deadline()
		known = &ws.Identity{Caller: caller, Expires: expires}
	}
	s.sockets.Serve(w, r, exec, known)
}

// identifySocket says whom the token in connection_init names, and until when.
func (s *Server) identifySocket(ctx context.Context, authorization string) (ws.Identity, *problem.Error) {
	who, p := s.judge(ctx, authorization)
	return ws.Identity{Caller: who.Caller, Expires: who.Expires}, p
}
