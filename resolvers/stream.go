package resolvers

import (
	"context"
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// StreamKind says how a transport carries a subscription.
type StreamKind int

// Kinds of streams. A context without one carries no subscription at all.
const (
	StreamNone     StreamKind = iota
	StreamMessages            // how the stream ends is told by its last response, as in SSE
	StreamFrames              // the end of the connection is told by the connection, as in graphql-transport-ws
)

type (
	streamKindKey struct{}
	streamEndKey  struct{}
)

// WithStream marks a context as one that carries subscriptions.
func WithStream(ctx context.Context, kind StreamKind) context.Context {
	return context.WithValue(ctx, streamKindKey{}, kind)
}

// Streams is the extension by which a subscription ends with an error on every transport, as a response without data,
// and is refused on those that could only answer once.
type Streams struct{}

var _ interface {
	graphql.HandlerExtension
	graphql.OperationInterceptor
} = Streams{}

// ExtensionName implements graphql.HandlerExtension.
func (Streams) ExtensionName() string { return "Streams" }

// Validate implements graphql.HandlerExtension.
func (Streams) Validate(graphql.ExecutableSchema) error { return nil }

// InterceptOperation implements graphql.OperationInterceptor.
func (Streams) InterceptOperation(ctx context.Context, next graphql.OperationHandler) graphql.ResponseHandler {
	if graphql.GetOperationContext(ctx).Operation.Operation != ast.Subscription {
		return next(ctx)
	}
	kind, _ := ctx.Value(streamKindKey{}).(StreamKind)
	if kind == StreamNone {
		p := problem.New(problem.BadUserInput, "a subscription needs WebSocket (graphql-transport-ws) or Accept: text/event-stream")
		return graphql.OneShot(&graphql.Response{Errors: gqlerror.List{fill(&gqlerror.Error{}, p, nil)}})
	}
	end := &streamEnd{}
	responses := next(context.WithValue(ctx, streamEndKey{}, end))
	return func(ctx context.Context) *graphql.Response {
		resp := responses(ctx)
		if resp == nil {
			if err := end.take(ctx, kind); err != nil {
				return &graphql.Response{Errors: gqlerror.List{err}}
			}
		}
		return resp
	}
}

// streamEnd holds the error that a stream ends with.
type streamEnd struct {
	mu    sync.Mutex
	err   *gqlerror.Error
	taken bool
}

// take returns the error, once: the one that was left, else why the context ended where that may be told. A WebSocket
// tells the latter by its close code, upon which clients come back; an error would end the operation for them.
func (e *streamEnd) take(ctx context.Context, kind StreamKind) *gqlerror.Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.taken {
		return nil
	}
	e.taken = true
	if e.err == nil && ctx.Err() != nil && kind == StreamMessages {
		if p, ok := problem.As(context.Cause(ctx)); ok {
			return fill(&gqlerror.Error{}, p, nil)
		}
	}
	return e.err
}

// endStream leaves the error for the moment when the subscription's channel is closed.
func endStream(ctx context.Context, err *gqlerror.Error) {
	if end, ok := ctx.Value(streamEndKey{}).(*streamEnd); ok {
		end.mu.Lock()
		end.err = err
		end.mu.Unlock()
	}
}
