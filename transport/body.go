package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// wellFormed checks a request before the stock transports read it, which would echo what they cannot read: size, UTF-8,
// one JSON object, nesting, and the types of its members (GraphQL over HTTP, section 5).
func (s *Server) wellFormed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var status int
		var p *problem.Error
		switch {
		case isUpgrade(r):
		case r.Method == http.MethodPost:
			var body []byte
			if body, status, p = s.readBody(w, r); p == nil {
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			}
		default:
			status, p = http.StatusBadRequest, s.checkParameters(r)
		}
		if p != nil {
			refuse(w, status, p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) readBody(w http.ResponseWriter, r *http.Request) (body []byte, status int, p *problem.Error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.limits.MaxBodyBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, http.StatusRequestEntityTooLarge, problem.New(problem.BadUserInput, "the request is longer than %d bytes", tooLarge.Limit)
	case err != nil:
		return nil, http.StatusBadRequest, problem.New(problem.BadUserInput, "the request was cut off").Because(err)
	}
	return body, http.StatusBadRequest, checkRequest(body, s.limits.MaxBodyDepth)
}

// checkRequest checks the JSON of a request.
func checkRequest(raw []byte, maxDepth int) *problem.Error {
	var members map[string]json.RawMessage
	if p := checkObject("the request", raw, maxDepth, &members); p != nil {
		return p
	}
	var text string
	if json.Unmarshal(members["query"], &text) != nil || text == "" {
		return problem.Field("query", "must be a string with a document")
	}
	if name, ok := members["operationName"]; ok && !isNull(name) && json.Unmarshal(name, &text) != nil {
		return problem.Field("operationName", "must be a string")
	}
	for _, member := range []string{"variables", "extensions"} {
		if raw, ok := members[member]; ok && !isNull(raw) && raw[0] != '{' {
			return problem.Field(member, "must be an object")
		}
	}
	return nil
}

// checkParameters checks the query string of a GET.
func (s *Server) checkParameters(r *http.Request) *problem.Error {
	q := r.URL.Query()
	if q.Get("query") == "" {
		return problem.Field("query", "must be a document")
	}
	for name := range q {
		if !utf8.ValidString(q.Get(name)) {
			return problem.New(problem.BadUserInput, "a parameter is not valid UTF-8")
		}
	}
	for _, name := range []string{"variables", "extensions"} {
		if v := q.Get(name); v != "" {
			var members map[string]json.RawMessage
			if p := checkObject(name, []byte(v), s.limits.MaxBodyDepth, &members); p != nil {
				p.Field = []string{name}
				return p
			}
		}
	}
	return nil
}

// checkObject checks that raw is one JSON object within the depth, and reads its members.
func checkObject(what string, raw []byte, maxDepth int, members *map[string]json.RawMessage) *problem.Error {
	switch {
	case !utf8.Valid(raw):
		return problem.New(problem.BadUserInput, "%s is not valid UTF-8", what)
	case depthOf(raw) > maxDepth:
		return problem.New(problem.BadUserInput, "%s is nested more than %d levels deep", what, maxDepth)
	case !json.Valid(raw):
		return problem.New(problem.BadUserInput, "%s is not JSON", what)
	case json.Unmarshal(raw, members) != nil || *members == nil:
		return problem.New(problem.BadUserInput, "%s must be a JSON object", what)
	}
	return nil
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// depthOf counts how deep brackets nest outside strings. It does not say that raw is JSON.
func depthOf(raw []byte) int {
	depth, deepest := 0, 0
	inString := false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}
