package transport

import (
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// refuse answers a request that never became an operation, in the form of a GraphQL response without data.
func refuse(w http.ResponseWriter, status int, p *problem.Error) {
	if seconds, ok := p.Extra["retryAfter"].(int); ok {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	refuseErrors(w, status, gqlerror.List{wire(p)})
}

func refuseErrors(w http.ResponseWriter, status int, errs gqlerror.List) {
	kind, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";") // as negotiated
	if kind == "" {
		kind = mediaJSON
	}
	writeAnswer(w, status, kind, appendResponse(nil, &graphql.Response{Errors: errs}))
}

// wire is the GraphQL form of an error.
func wire(p *problem.Error) *gqlerror.Error {
	ext := map[string]any{}
	maps.Copy(ext, p.Extra)
	ext["code"] = string(p.Code)
	if len(p.Field) > 0 {
		ext["field"] = strings.Join(p.Field, ".")
	}
	return &gqlerror.Error{Message: p.Message, Extensions: ext}
}
