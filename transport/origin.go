package transport

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// csrfHeaders make a request one that a page of another origin cannot send without asking first (CORS preflight).
var csrfHeaders = []string{"X-Requested-With", "Apollo-Require-Preflight", "X-Harness-Csrf"}

// methods of /graphql.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodOptions}

// admit lets in what may come from where it comes from: it answers preflights, and refuses foreign origins, other
// methods, requests that a foreign page could send, and new work while the server drains.
func (s *Server) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(methods, r.Method) {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			refuse(w, http.StatusMethodNotAllowed, problem.New(problem.BadUserInput, "the method must be GET or POST"))
			return
		}
		w.Header().Add("Vary", "Origin")
		if origin := r.Header.Get("Origin"); origin != "" && !sameHost(origin, r.Host) {
			if !s.origins[origin] {
				refuse(w, http.StatusForbidden, problem.New(problem.Forbidden, "the origin is not allowed"))
				return
			}
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Cross-Origin-Resource-Policy", "cross-origin")
		}
		switch {
		case r.Method == http.MethodOptions:
			h := w.Header()
			h.Set("Allow", strings.Join(methods, ", "))
			h.Set("Access-Control-Allow-Methods", "GET, POST")
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, "+strings.Join(csrfHeaders, ", "))
			h.Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		case s.draining():
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, errDraining)
			return
		case isUpgrade(r):
		case r.Method == http.MethodPost && !isJSON(r):
			refuse(w, http.StatusUnsupportedMediaType, problem.New(problem.BadUserInput, "Content-Type must be application/json"))
			return
		case r.Method == http.MethodGet && !isJSON(r) && !slices.ContainsFunc(csrfHeaders, func(h string) bool { return r.Header.Get(h) != "" }):
			refuse(w, http.StatusBadRequest, problem.New(problem.BadUserInput,
				"a GET needs the header %s, so that no foreign page can send it", csrfHeaders[0]))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sameHost reports whether the origin names the host that was asked.
func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.EqualFold(u.Host, host)
}

// checkOrigin checks the form of an allowed origin (RFC 6454, section 6.2).
func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Scheme+"://"+u.Host != origin {
		return fmt.Errorf("transport: allowed origin %q is not scheme://host[:port]", origin)
	}
	return nil
}

func isUpgrade(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}
