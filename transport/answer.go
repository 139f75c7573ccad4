package transport

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// answer writes a response as the single answer to a request, which has been executed. Under application/json whatever was well-formed has the
// status 200; under application/graphql-response+json the status also tells that an operation never began
// (GraphQL over HTTP, section 6.4).
func (c *claim) answer(w http.ResponseWriter, kind string, resp *graphql.Response) {
	c.leave()
	status := http.StatusOK
	if kind == mediaGraphQL && len(resp.Data) == 0 {
		status = statusOf(resp.Errors)
	}
	body := appendResponse(nil, resp)
	written, ok := c.owe(len(body))
	if !ok {
		refuse(w, statuses[errUnread.Code], errUnread)
		return
	}
	defer written()
	writeAnswer(w, status, kind, body)
}

func writeAnswer(w http.ResponseWriter, status int, kind string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", kind+"; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// statusOf is the status of a request whose operation never began, by the first error's code.
func statusOf(errs gqlerror.List) int {
	if len(errs) > 0 {
		code, _ := errs[0].Extensions["code"].(string)
		if status := statuses[problem.Code(code)]; status != 0 {
			return status
		}
	}
	return http.StatusBadRequest
}

// appendResponse appends a response in JSON, errors first. Unlike its own encoding it has no data where nothing was
// executed, and no line ends, which would cut a server-sent event: a JSON scalar keeps those that it was given.
func appendResponse(to []byte, resp *graphql.Response) []byte {
	to = append(to, '{')
	member := func(name string, value []byte) {
		if len(to) > 0 && to[len(to)-1] != '{' {
			to = append(to, ',')
		}
		to = append(to, '"')
		to = append(to, name...)
		to = append(to, `":`...)
		to = append(to, value...)
	}
	if len(resp.Errors) > 0 {
		member("errors", encoded(resp.Errors))
	}
	if len(resp.Data) > 0 {
		member("data", oneLine(resp.Data))
	}
	if len(resp.Extensions) > 0 {
		member("extensions", encoded(resp.Extensions))
	}
	return append(to, '}')
}

func encoded(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil { // errors and extensions are made here, of scalars
		panic(err)
	}
	return raw
}

// oneLine takes line ends out of JSON, which are between its tokens.
func oneLine(raw []byte) []byte {
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return raw
	}
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil { // the executor's output is JSON
		panic(err)
	}
	return out.Bytes()
}
