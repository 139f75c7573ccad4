package resolvers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql/errcode"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
)

func TestPresent(t *testing.T) {
	validation := gqlerror.ErrorPathf(ast.Path{ast.PathName("variable"), ast.PathName("input"), ast.PathName("busyPolicy")}, "LATER is not a valid BusyPolicy")
	errcode.Set(validation, errcode.ValidationFailed)
	complexity := gqlerror.Errorf("operation has complexity 5, which exceeds the limit of 1")
	errcode.Set(complexity, "COMPLEXITY_LIMIT_EXCEEDED")
	for name, c := range map[string]struct {
		err               error
		code, field, text string
	}{
		"problem":    {fmt.Errorf("failed to start: %w", problem.New(problem.HarnessUnknown, "no such harness")), "HARNESS_UNKNOWN", "", "no such harness"},
		"field":      {problem.Field("input.message.text", "must not be empty"), "BAD_USER_INPUT", "input.message.text", "must not be empty"},
		"inside":     {gqlerror.WrapPath(ast.Path{ast.PathName("a")}, problem.New(problem.Forbidden, "no")), "FORBIDDEN", "", "no"},
		"store":      {fmt.Errorf("failed to read: %w", run.ErrNotFound), "NOT_FOUND", "", "object not found"},
		"late":       {fmt.Errorf("failed to read: %w", context.DeadlineExceeded), "TIMEOUT", "", "the operation was cut off; it may have taken effect"},
		"validation": {validation, "BAD_USER_INPUT", "input.busyPolicy", "LATER is not a valid BusyPolicy"},
		"complexity": {complexity, "TOO_COMPLEX", "", complexity.Message},
		"internal":   {errors.New("dial tcp 10.0.0.7:5432: secret"), "INTERNAL", "", "internal error"},
		"wrapped":    {gqlerror.WrapPath(nil, errors.New("/var/lib/x: secret")), "INTERNAL", "", "internal error"},
		"not a null": {gqlerror.Errorf("must not be null"), "INTERNAL", "", "internal error"},
	} {
		var log bytes.Buffer
		r := &Root{Options: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
		got := r.Present(context.Background(), c.err)
		field, _ := got.Extensions["field"].(string)
		if got.Extensions["code"] != c.code || field != c.field || got.Message != c.text {
			t.Errorf("%s: %q %v", name, got.Message, got.Extensions)
		}
		if strings.Contains(fmt.Sprint(got.Message, got.Extensions), "secret") {
			t.Errorf("%s: leaks %v", name, got)
		}
		incident, _ := got.Extensions["incident"].(string)
		if (c.code == "INTERNAL") != (incident != "" && strings.Contains(log.String(), incident)) {
			t.Errorf("%s: incident %q, log %q", name, incident, log.String())
		}
	}
}

func TestMessagesAreBounded(t *testing.T) {
	r := &Root{Options: Options{Logger: slog.New(slog.DiscardHandler)}}
	got := r.Present(context.Background(), problem.New(problem.BadUserInput, "%s", strings.Repeat("é", 5000)+"\xff"))
	if len(got.Message) > maxMessage+len("…") || strings.ContainsRune(got.Message, '\uFFFD') {
		t.Errorf("%d bytes: %q", len(got.Message), got.Message[len(got.Message)-20:])
	}
}

// A panic in a loader's batch runs on a goroutine of its own; it must be an error, not the end of the process.
func TestPanicInABatchIsAnError(t *testing.T) {
	l := loader(func(context.Context, string) (int, error) { panic("boom") })
	if _, err := l.Load(context.Background(), "x"); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("got %v", err)
	}
}
