package transport

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"

	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// refuse answers a request that never became an operation, in the form of a GraphQL response without data.
func refuse(w http.ResponseWriter, status int, p *problem.Error) {
	body, err := json.Marshal(struct {
		Errors gqlerror.List `json:"errors"`
	}{gqlerror.List{wire(p)}})
	if err != nil { // the extensions are scalars
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body)
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
