package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/99designs/gqlgen/graphql"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// readRequest reads the parameters of an operation (GraphQL over HTTP, section 5): the JSON of a POST, the query string of
// any other method. What it refuses comes with its status. What a body takes is of the claim.
func (s *Server) readRequest(w http.ResponseWriter, r *http.Request, c *claim) (*graphql.RawParams, int, *problem.Error) {
	params := &graphql.RawParams{Headers: r.Header}
	params.ReadTime.Start = graphql.Now()
	var p *problem.Error
	if r.Method == http.MethodPost {
		body, status, refused := s.readBody(w, r, c)
		if refused != nil {
			return nil, status, refused
		}
		p = parseBody(body, s.limits.MaxBodyDepth, params)
	} else {
		p = parseQuery(r.URL.RawQuery, s.limits.MaxBodyDepth, params)
	}
	params.ReadTime.End = graphql.Now()
	return params, http.StatusBadRequest, p
}

// readBody reads the body of a request within its bound. Who is not known gets as much room as for headers.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, c *claim) (body []byte, status int, p *problem.Error) {
	most := s.limits.MaxBodyBytes
	if c.who == (authz.Caller{}) {
		most = min(most, int64(s.limits.MaxHeaderBytes))
	}
	in := http.MaxBytesReader(w, r.Body, most)
	var err error
	for err == nil {
		if len(body) == cap(body) {
			body = slices.Grow(body, 1024)
			if !c.hold(cap(body) - c.bytes) {
				return nil, http.StatusServiceUnavailable, errHeld
			}
		}
		var n int
		n, err = in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, io.EOF):
		return body, 0, nil
	case errors.As(err, &tooLarge):
		return nil, http.StatusRequestEntityTooLarge, problem.New(problem.BadUserInput, "the request is longer than %d bytes", tooLarge.Limit)
	}
	return nil, http.StatusBadRequest, problem.New(problem.BadUserInput, "the request was cut off").Because(err)
}

// parseBody reads a request from its JSON: one object whose nesting is at most maxDepth. Names are exact, unlike where
// encoding/json reads into a struct; other members are skipped.
func parseBody(raw []byte, maxDepth int, into *graphql.RawParams) *problem.Error {
	var members map[string]json.RawMessage
	if p := checkObject("the request", raw, maxDepth, &members); p != nil {
		return p
	}
	for name, text := range map[string]*string{"query": &into.Query, "operationName": &into.OperationName} {
		if raw, ok := members[name]; ok && !isNull(raw) && json.Unmarshal(raw, text) != nil {
			return problem.Field(name, "must be a string")
		}
	}
	for name, object := range map[string]*map[string]any{"variables": &into.Variables, "extensions": &into.Extensions} {
		raw, ok := members[name]
		if !ok || isNull(raw) {
			continue
		}
		if p := decodeObject(name, raw, object); p != nil {
			return p
		}
	}
	return checkDocument(into)
}

// queryParameters are those of a GET; any other is skipped, for clients add some of their own.
var queryParameters = []string{"query", "operationName", "variables", "extensions"}

// parseQuery reads a request from the query string of a URL.
func parseQuery(raw string, maxDepth int, into *graphql.RawParams) *problem.Error {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return problem.New(problem.BadUserInput, "the query string is malformed")
	}
	for _, name := range queryParameters {
		if len(values[name]) > 1 {
			return problem.Field(name, "is given more than once")
		}
		if !utf8.ValidString(values.Get(name)) {
			return problem.Field(name, "is not valid UTF-8")
		}
	}
	into.Query, into.OperationName = values.Get("query"), values.Get("operationName")
	for name, object := range map[string]*map[string]any{"variables": &into.Variables, "extensions": &into.Extensions} {
		text := values.Get(name)
		if text == "" || text == "null" {
			continue
		}
		switch depth, values := extentOf([]byte(text)); {
		case depth > maxDepth:
			return problem.Field(name, "is nested more than %d levels deep", maxDepth)
		case values > maxValues:
			return problem.Field(name, "has more than %d values", maxValues)
		}
		if p := decodeObject(name, []byte(text), object); p != nil {
			return p
		}
	}
	return checkDocument(into)
}

// checkDocument wants a document, or the hash of one in its place.
func checkDocument(params *graphql.RawParams) *problem.Error {
	if params.Query == "" && params.Extensions[persistedExtension] == nil {
		return problem.Field("query", "must be a string with a document")
	}
	return nil
}

// decodeObject reads a JSON object; its numbers stay as they are written.
func decodeObject(name string, raw []byte, into *map[string]any) *problem.Error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(into); err != nil || *into == nil {
		return problem.Field(name, "must be an object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return problem.Field(name, "must be one object")
	}
	return nil
}

// checkObject checks that raw is one JSON object within the depth, and reads its members.
func checkObject(what string, raw []byte, maxDepth int, members *map[string]json.RawMessage) *problem.Error {
	depth, values := extentOf(raw)
	switch {
	case !utf8.Valid(raw):
		return problem.New(problem.BadUserInput, "%s is not valid UTF-8", what)
	case depth > maxDepth:
		return problem.New(problem.BadUserInput, "%s is nested more than %d levels deep", what, maxDepth)
	case values > maxValues:
		return problem.New(problem.BadUserInput, "%s has more than %d values", what, maxValues)
	case !json.Valid(raw):
		return problem.New(problem.BadUserInput, "%s is not JSON", what)
	case json.Unmarshal(raw, members) != nil || *members == nil:
		return problem.New(problem.BadUserInput, "%s must be a JSON object", what)
	}
	return nil
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// maxValues is how many values the JSON of a request may have, about. A value of two bytes takes fifty when it is decoded.
const maxValues = 1 << 16

// extentOf counts how deep brackets nest outside strings, and the values within them, about. It does not say that raw is
// JSON.
func extentOf(raw []byte) (deepest, values int) {
	depth := 0
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
			values++
		case c == '}' || c == ']':
			depth--
		case c == ',':
			values++
		}
	}
	return deepest, values
}

// isJSON reports whether the body is declared to be JSON, in UTF-8 and not packed.
func isJSON(r *http.Request) bool {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != mediaJSON {
		return false
	}
	charset, declared := params["charset"]
	encoding := r.Header.Get("Content-Encoding")
	return (!declared || isUTF8(charset)) && (encoding == "" || strings.EqualFold(encoding, "identity"))
}
