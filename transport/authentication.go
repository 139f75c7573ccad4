package transport

import (
	"context"
	"errors"
	"net/http"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/transport/auth"
)

// errExpired is what a client sees whose stream outlives its token.
var errExpired = problem.New(problem.Unauthenticated, "the token has expired")

// errBadToken is what a client sees of a token that is not accepted; which of its parts is wrong stays in the log.
var errBadToken = problem.New(problem.Unauthenticated, "the token is not valid")

// authenticate puts the caller into the context. A request without a token goes on without a caller; one with a token
// that is not accepted does not go on at all.
func (s *Server) authenticate(refuse refuser, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := r.Header.Get("Authorization")
		if header == "" {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel, err := s.identify(r.Context(), header)
		if err != nil {
			status := http.StatusUnauthorized
			if err.Code != problem.Unauthenticated {
				status = http.StatusServiceUnavailable
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="harness-engine"`)
			refuse(w, status, err)
			return
		}
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// identify returns a context that has the caller and ends with the token.
func (s *Server) identify(ctx context.Context, authorization string) (context.Context, context.CancelFunc, *problem.Error) {
	who, p := s.judge(ctx, authorization)
	if p != nil {
		return nil, nil, p
	}
	ctx, cancel := context.WithDeadlineCause(authz.WithCaller(ctx, who.Caller), who.Expires, errExpired)
	return ctx, cancel, nil
}

// judge finds out who bears the value of an Authorization header. A problem other than Unauthenticated: nobody could tell.
func (s *Server) judge(ctx context.Context, authorization string) (auth.Identity, *problem.Error) {
	token, ok := auth.Bearer(authorization)
	if !ok {
		return auth.Identity{}, problem.New(problem.Unauthenticated, "Authorization must be a bearer token")
	}
	who, err := s.auth.Authenticate(ctx, token)
	switch {
	case errors.Is(err, auth.ErrInvalid):
		s.logger.DebugContext(ctx, "token refused", "error", err)
		return auth.Identity{}, errBadToken
	case err != nil:
		s.logger.ErrorContext(ctx, "token not judged", "error", err)
		return auth.Identity{}, problem.New(problem.AuthorizationUnavailable, "authentication is unavailable, try again").With("retryable", true)
	}
	return who, nil
}
