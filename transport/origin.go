package transport

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// csrfHeaders make a request one that a page of another origin cannot send without asking first (CORS preflight).
var csrfHeaders = []string{"X-Requested-With", "Apollo-Require-Preflight", "X-Harness-Csrf"}

// route is what the edge has to know of a path before it lets a request in.
type route struct {
	methods []string // OPTIONS aside
	refuse  refuser
	// admissible refuses what a foreign page could send, and what the path does not take.
	admissible func(r *http.Request) (int, *problem.Error)
}

// refuser answers a request that is refused, in the path's own form.
type refuser func(w http.ResponseWriter, status int, p *problem.Error)

// graphQLRoute is /graphql.
var graphQLRoute = route{
	methods: []string{http.MethodGet, http.MethodPost}, refuse: refuse,
	admissible: func(r *http.Request) (int, *problem.Error) {
		switch {
		case isUpgrade(r):
		case r.Method == http.MethodPost && !isJSON(r):
			return http.StatusUnsupportedMediaType, problem.New(problem.BadUserInput, "Content-Type must be application/json")
		case r.Method == http.MethodGet && !isJSON(r):
			return askedFor(r)
		}
		return 0, nil
	},
}

// askedFor is preflighted for what only reads: there a token is enough, which no browser adds by itself.
func askedFor(r *http.Request) (int, *problem.Error) {
	if r.Header.Get("Authorization") != "" {
		return 0, nil
	}
	return preflighted(r)
}

// preflighted refuses a request that a page of another origin could send without asking first.
func preflighted(r *http.Request) (int, *problem.Error) {
	if slices.ContainsFunc(csrfHeaders, func(h string) bool { return r.Header.Get(h) != "" }) {
		return 0, nil
	}
	return http.StatusBadRequest, problem.New(problem.BadUserInput,
		"a %s needs the header %s, so that no foreign page can send it", r.Method, csrfHeaders[0])
}

// admit lets in what may come from where it comes from: it answers preflights, and refuses foreign origins, other
// methods, requests that a foreign page could send, and new work while the server drains.
func (s *Server) admit(at route, next http.Handler) http.Handler {
	allow := strings.Join(append(slices.Clone(at.methods), http.MethodOptions), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodOptions && !slices.Contains(at.methods, r.Method) {
			w.Header().Set("Allow", allow)
			at.refuse(w, http.StatusMethodNotAllowed, problem.New(problem.BadUserInput, "the method must be %s", strings.Join(at.methods, " or ")))
			return
		}
		w.Header().Add("Vary", "Origin")
		if origin := r.Header.Get("Origin"); origin != "" && !sameHost(origin, r.Host) {
			if !s.origins[origin] {
				at.refuse(w, http.StatusForbidden, problem.New(problem.Forbidden, "the origin is not allowed"))
				return
			}
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Cross-Origin-Resource-Policy", "cross-origin")
		}
		switch {
		case r.Method == http.MethodOptions:
			h := w.Header()
			h.Set("Allow", allow)
			h.Set("Access-Control-Allow-Methods", strings.Join(at.methods, ", "))
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Content-Disposition, Last-Event-ID, "+strings.Join(csrfHeaders, ", "))
			h.Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		case s.draining():
			w.Header().Set("Retry-After", "1")
			at.refuse(w, http.StatusServiceUnavailable, errDraining)
			return
		}
		if status, p := at.admissible(r); p != nil {
			at.refuse(w, status, p)
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
