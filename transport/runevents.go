package transport

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/resolvers"
)

// formatCanonical is the form of events that there is; see docs/events.md.
const formatCanonical = "canonical"

// runEventsRoute is /v1/runs/{id}/events.
var runEventsRoute = route{methods: []string{http.MethodGet}, refuse: refuseProblem, admissible: askedFor}

// runEvents is GET /v1/runs/{id}/events: a run's log for clients without GraphQL, by the rules of runEvents.
type runEvents struct {
	server *Server
	api    *resolvers.Root
}

// ServeHTTP implements http.Handler. The first look at the log comes before the answer begins, so that its status tells
// what is wrong, and 204 that nothing follows: that keeps an EventSource from coming back.
func (e runEvents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !acceptsStream(r.Header) {
		refuseProblem(w, http.StatusNotAcceptable, problem.New(problem.BadUserInput, "Accept must take %s", mediaStream))
		return
	}
	after, p := placeOf(r, e.api.HistoryMark())
	if p != nil {
		refuseProblem(w, 0, p)
		return
	}
	release, p := e.server.admitStream(r.Context())
	if p != nil {
		refuseProblem(w, 0, p)
		return
	}
	defer release()
	ctx, cancel := e.server.streamContext(r.Context())
	defer cancel()
	feed, err := e.api.OpenRun(ctx, r.PathValue("id"), after)
	if err != nil {
		e.refuse(ctx, w, err)
		return
	}
	defer feed.Close()
	out := e.server.eventStream(w)
	first, ok, err := feed.Poll(ctx)
	switch {
	case isEOF(err):
		w.WriteHeader(http.StatusNoContent)
		return
	case err != nil:
		e.refuse(ctx, w, err)
		return
	case ok:
		out.buf = append(out.buf, first.Payload...)
	}
	// Each message has its id: the payload is as it goes onto the wire.
	err = e.server.follow(ctx, out, feed, func(item resolvers.Item) { out.buf = append(out.buf, item.Payload...) })
	if isEOF(err) || errors.Is(err, errGone) {
		return
	}
	if p := e.problemOf(ctx, err); p != nil {
		_, doc := problemDocument(0, p)
		out.message("", "problem", doc)
		_ = out.flush()
	}
}

func (e runEvents) refuse(ctx context.Context, w http.ResponseWriter, err error) {
	if p := e.problemOf(ctx, err); p != nil {
		refuseProblem(w, 0, p)
	}
}

// problemOf is what a client may see of an error; nil where the client has left.
func (e runEvents) problemOf(ctx context.Context, err error) *problem.Error {
	if cause := context.Cause(ctx); cause != nil {
		p, _ := problem.As(cause)
		return p
	}
	if p, ok := problem.As(err); ok {
		return p
	}
	shown := e.api.Present(ctx, err)
	code, _ := shown.Extensions["code"].(string)
	p := problem.New(problem.Code(code), "%s", shown.Message)
	for key, value := range shown.Extensions {
		if key != "code" {
			p = p.With(key, value)
		}
	}
	return p
}

// placeOf reads where the client wants to begin, and in which form. Last-Event-ID is where a client is by now, and wins
// over `after`, which its URL began with.
func placeOf(r *http.Request, mark string) (after int64, p *problem.Error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return 0, problem.New(problem.BadUserInput, "the query string is malformed")
	}
	for _, name := range []string{"format", "after"} {
		if len(query[name]) > 1 {
			return 0, problem.Field(name, "is given more than once")
		}
	}
	if format := query.Get("format"); format != "" && format != formatCanonical {
		return 0, problem.Field("format", "is not one that there is: %s", formatCanonical)
	}
	if query.Has("after") {
		if after, p = sequenceOf("after", query.Get("after")); p != nil {
			return 0, p
		}
	}
	id, p := lastEventID(r.Header)
	if p != nil || id == "" {
		return after, p
	}
	if id, p = cursorOf(id, mark); p != nil {
		return 0, p
	}
	return sequenceOf(lastEventIDField, id)
}
