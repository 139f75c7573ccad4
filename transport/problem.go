package transport

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// statuses of the codes, where an answer's status tells what became of it.
var statuses = map[problem.Code]int{
	problem.Unauthenticated:          http.StatusUnauthorized,
	problem.Forbidden:                http.StatusForbidden,
	problem.NotFound:                 http.StatusNotFound,
	problem.BadUserInput:             http.StatusBadRequest,
	problem.CursorExpired:            http.StatusGone,
	problem.RateLimited:              http.StatusTooManyRequests,
	problem.Capacity:                 http.StatusServiceUnavailable,
	problem.Timeout:                  http.StatusServiceUnavailable,
	problem.AuthorizationUnavailable: http.StatusServiceUnavailable,
	problem.Internal:                 http.StatusInternalServerError,
}

// refuseProblem answers with a problem document. A status of 0 is the code's.
func refuseProblem(w http.ResponseWriter, status int, p *problem.Error) {
	status, body := problemDocument(status, p)
	if seconds, ok := p.Extra["retryAfter"].(int); ok {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	w.Header().Set("Content-Type", mediaProblem)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// problemDocument is a problem in JSON, on one line (RFC 9457): beside its own members the code of the API, the field where
// one is at fault, and the code's extensions. The status of a run, which has the name of such a member, is runStatus. A
// status of 0 is the code's.
func problemDocument(status int, p *problem.Error) (int, []byte) {
	if status == 0 {
		if status = statuses[p.Code]; status == 0 {
			status = http.StatusInternalServerError
		}
	}
	doc := map[string]any{}
	maps.Copy(doc, p.Extra)
	if of, ok := doc["status"]; ok {
		doc["runStatus"] = of
	}
	doc["type"], doc["title"], doc["status"], doc["detail"], doc["code"] = "about:blank", http.StatusText(status), status, p.Message, string(p.Code)
	if len(p.Field) > 0 {
		doc["field"] = strings.Join(p.Field, ".")
	}
	body, err := json.Marshal(doc)
	if err != nil { // the extensions are scalars
		panic(err)
	}
	return status, body
}
