package transport

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/resolvers"
)

// stream answers an operation, or the errors for which it does not begin, as server-sent events (graphql-sse, distinct
// connections mode): results as `next`, then `complete` where the operation is over. What ends the stream beside that,
// the engine's or the token's end, is a result with an error and no `complete`: the client may come back.
func (o operations) stream(w http.ResponseWriter, r *http.Request, c *claim, op *graphql.OperationContext, errs gqlerror.List) {
	mark := o.api.HistoryMark()
	after, p := lastEventID(r.Header)
	if p != nil {
		refuse(w, http.StatusBadRequest, p)
		return
	}
	if after, p = cursorOf(after, mark); p != nil && len(errs) == 0 {
		errs = gqlerror.List{wire(p)}
	}
	release, p := o.server.admitStream(r.Context())
	if p != nil {
		refuse(w, statuses[p.Code], p)
		return
	}
	defer release()
	c.done() // it is a stream now
	within := context.WithCancel
	if len(errs) == 0 && op.Operation.Operation == ast.Subscription {
		within = o.server.streamContext // anything else ends by itself, soon, and a drain waits for it
	}
	ctx, cancel := within(r.Context())
	defer cancel()
	out := o.server.eventStream(w)
	defer o.aborted(r, out)

	ctx = resolvers.WithStream(ctx, resolvers.StreamMessages)
	if len(errs) == 0 {
		feed, ok, err := o.api.OpenFeed(ctx, op, after)
		switch {
		case err != nil:
			errs = o.errorsOf(ctx, err)
		case ok:
			defer feed.Close()
			c.leave()
			if _, keeps := feed.(resolvers.StateFeed); !keeps {
				c.release()
			}
			err := o.server.follow(ctx, out, feed, func(item resolvers.Item) {
				id := item.Cursor
				if id != "" {
					id += mark
				}
				out.message(id, "next", oneLine(item.Payload))
			})
			o.end(ctx, out, err)
			return
		case after != "":
			errs = gqlerror.List{wire(problem.Field(lastEventIDField, "names a place, and the operation has none to begin at"))}
		default:
			o.execute(ctx, cancel, c, out, op)
			return
		}
	}
	refused := appendResponse(nil, o.exec.DispatchError(graphql.WithOperationContext(ctx, op), errs))
	c.leave()
	out.message("", "next", refused)
	out.complete()
	_ = out.flush()
}

// end writes why a stream has ended, where there is somebody to tell.
func (o operations) end(ctx context.Context, out *eventStream, err error) {
	over := isEOF(err)
	if !over {
		p, told := problem.As(context.Cause(ctx))
		switch {
		case errors.Is(err, errGone):
			return
		case ctx.Err() == nil:
			out.message("", "next", appendResponse(nil, &graphql.Response{Errors: o.errorsOf(ctx, err)}))
			over = true
		case told:
			out.message("", "next", appendResponse(nil, &graphql.Response{Errors: gqlerror.List{wire(p)}}))
		}
	}
	if over {
		out.complete()
	}
	_ = out.flush()
}

// errorsOf is the wire form of what a feed ends with.
func (o operations) errorsOf(ctx context.Context, err error) gqlerror.List {
	var list gqlerror.List
	if errors.As(err, &list) {
		return list
	}
	var one *gqlerror.Error
	if errors.As(err, &one) {
		return gqlerror.List{one}
	}
	return gqlerror.List{o.api.Present(ctx, err)}
}

// execute runs an operation in the ordinary way and writes its results.
func (o operations) execute(ctx context.Context, cancel context.CancelFunc, c *claim, out *eventStream, op *graphql.OperationContext) {
	results := make(chan []byte) // encoded: the executor writes the next result over the last one
	go func() {
		defer close(results)
		defer func() {
			if cause := recover(); cause != nil {
				results <- appendResponse(nil, &graphql.Response{Errors: gqlerror.List{o.api.Present(ctx, o.api.Recover(ctx, cause))}})
			}
		}()
		responses, ctx := o.exec.DispatchOperation(ctx, op)
		for resp := responses(ctx); resp != nil; resp = responses(ctx) {
			c.leave()
			results <- appendResponse(nil, resp)
		}
	}()
	written := func() {}
	defer func() {
		written()
		cancel()
		for range results { //nolint:revive // the operation ends with its context
		}
	}()
	if out.open() != nil {
		return
	}
	quiet := time.NewTimer(o.server.limits.PingInterval)
	defer quiet.Stop()
	for {
		select {
		case result, more := <-results:
			if more {
				paid, ok := c.owe(len(result))
				if !ok {
					paid, result = func() {}, appendResponse(nil, &graphql.Response{Errors: gqlerror.List{wire(errUnread)}})
				}
				written = paid
				out.message("", "next", result)
			} else if ctx.Err() == nil {
				out.complete()
			}
			if out.flush() != nil || !more {
				return
			}
			written()
			written = func() {}
		case <-quiet.C:
			if out.write([]byte(heartbeat)) != nil {
				return
			}
		}
		quiet.Reset(o.server.limits.PingInterval)
	}
}

// aborted cuts the connection where something panicked behind the beginning of an answer: only that tells that it is not
// whole.
func (o operations) aborted(r *http.Request, out *eventStream) {
	switch cause := recover(); {
	case cause == nil:
	case !out.begun:
		panic(cause)
	default:
		_ = o.api.Recover(r.Context(), cause) // logs it
		panic(http.ErrAbortHandler)
	}
}
