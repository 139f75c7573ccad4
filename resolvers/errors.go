package resolvers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/errcode"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// maxMessage bounds an error's message, which may quote what the client sent.
const maxMessage = 500

// incidentPrefix begins the ids by which an operator finds an internal error in the log.
const incidentPrefix = "inc"

// protocolCodes are the codes that the executor and the parser set themselves, and what they are in this API.
var protocolCodes = map[string]problem.Code{
	errcode.ParseFailed:         problem.BadUserInput,
	errcode.ValidationFailed:    problem.BadUserInput,
	"COMPLEXITY_LIMIT_EXCEEDED": problem.TooComplex,
}

// Present makes what a client sees of an error. What is not meant for clients becomes INTERNAL with an incident id; the
// rest is logged under that id.
func (r *Root) Present(ctx context.Context, err error) *gqlerror.Error {
	shown := &gqlerror.Error{}
	var wire *gqlerror.Error
	if errors.As(err, &wire) {
		shown.Locations, shown.Path = wire.Locations, wire.Path
	}
	var gone *event.ExpiredError
	if errors.As(err, &gone) {
		err = r.cursorExpired(ctx, gone)
	}
	within := argumentPath(ctx, shown)
	if p, ok := problem.As(err); ok {
		return fill(shown, p, within)
	}
	switch {
	case wire != nil && len(within) > 0: // an argument that its type does not take
		return fill(shown, problem.New(problem.BadUserInput, "%s", wire.Message), within)
	case errors.Is(err, agent.ErrNotFound), errors.Is(err, run.ErrNotFound), errors.Is(err, session.ErrNotFound):
		return fill(shown, problem.NotFoundf("object"), nil)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fill(shown, problem.New(problem.Timeout, "the operation was cut off; it may have taken effect"), nil)
	}
	if wire != nil && wire.Err == nil {
		code, _ := wire.Extensions["code"].(string)
		if c, known := protocolCodes[code]; known {
			p := problem.New(c, "%s", wire.Message)
			if len(shown.Path) > 0 && shown.Path[0] == ast.PathName("variable") {
				within, shown.Path = shown.Path[1:], nil
			}
			return fill(shown, p, within)
		}
		if code != "" { // set by one of this API's own extensions
			return wire
		}
	}
	return fill(shown, r.incident(ctx, err), nil)
}

// incident logs the error under a new id and returns what a client may know of it.
func (r *Root) incident(ctx context.Context, err error, args ...any) *problem.Error {
	incident := id.New(incidentPrefix)
	args = append([]any{"incident", incident, "path", graphql.GetPath(ctx).String(), "error", err}, args...)
	r.Logger.ErrorContext(ctx, "operation failed", args...)
	return problem.New(problem.Internal, "internal error").With("incident", incident)
}

// Recover makes an error of a panic; the process and the other fields go on.
func (r *Root) Recover(ctx context.Context, p any) error {
	return r.incident(ctx, fmt.Errorf("panic: %v", p), "stack", string(debug.Stack()))
}

// fill writes a client-visible error into its wire form; within is the path inside the field's arguments, for errors
// that do not name their own.
func fill(shown *gqlerror.Error, p *problem.Error, within ast.Path) *gqlerror.Error {
	shown.Message = clip(p.Message)
	shown.Extensions = map[string]any{}
	maps.Copy(shown.Extensions, p.Extra)
	shown.Extensions["code"] = string(p.Code)
	switch {
	case len(p.Field) > 0:
		shown.Extensions["field"] = strings.Join(p.Field, ".")
	case p.Code == problem.BadUserInput && len(within) > 0:
		shown.Extensions["field"] = within.String()
	}
	return shown
}

// argumentPath cuts from the error's path what is behind the response's path: the place inside the arguments.
func argumentPath(ctx context.Context, shown *gqlerror.Error) ast.Path {
	fc := graphql.GetFieldContext(ctx)
	if fc == nil {
		return nil
	}
	here := fc.Path()
	if shown.Path == nil {
		shown.Path = here
		return nil
	}
	if len(shown.Path) <= len(here) {
		return nil
	}
	for i := range here {
		if shown.Path[i] != here[i] {
			return nil
		}
	}
	within := shown.Path[len(here):]
	shown.Path = here
	return within
}

func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxMessage {
		return s
	}
	s = s[:maxMessage]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}
