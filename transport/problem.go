package transport

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// statuses of the codes that the paths beside /graphql answer with.
var statuses = map[problem.Code]int{
	problem.Unauthenticated:          http.StatusUnauthorized,
	problem.Forbidden:                http.StatusForbidden,
	problem.NotFound:                 http.StatusNotFound,
	problem.BadUserInput:             http.StatusBadRequest,
	problem.Capacity:                 http.StatusServiceUnavailable,
	problem.Timeout:                  http.StatusServiceUnavailable,
	problem.AuthorizationUnavailable: http.StatusServiceUnavailable,
}

// refuseProblem answers with a problem document (RFC 9457): beside its own members the code of the API, the field where
// one is at fault, and the code's extensions. A status of 0 is the code's.
func refuseProblem(w http.ResponseWriter, status int, p *problem.Error) {
	if status == 0 {
		if status = statuses[p.Code]; status == 0 {
			status = http.StatusInternalServerError
		}
	}
	doc := map[string]any{}
	maps.Copy(doc, p.Extra)
	doc["type"], doc["title"], doc["status"], doc["detail"], doc["code"] = "about:blank", http.StatusText(status), status, p.Message, string(p.Code)
	if len(p.Field) > 0 {
		doc["field"] = strings.Join(p.Field, ".")
	}
	if seconds, ok := p.Extra["retryAfter"].(int); ok {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	body, err := json.Marshal(doc)
	if err != nil { // the extensions are scalars
		panic(err)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
