package resolvers

import (
	"context"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// Item is one delivery of a Feed.
type Item struct {
	// Payload is the complete encoded delivery: of OpenFeed a GraphQL result, {"data":{...}}; of OpenRun one or more
	// server-sent messages, see there. It is shared with other feeds: read-only.
	Payload []byte
	// Cursor is where to come back for what follows: the id of a server-sent event, and what OpenFeed takes as after.
	Cursor string
}

// Feed is a subscription that is polled, whose deliveries are shared among all who select the same: each is encoded once
// for one range of chunks, one normalised selection and one wire. It has no goroutine and, while it is idle, about a
// kilobyte.
//
// Poll, Notify and Close are for one goroutine at a time; Until and Renew may be called beside them.
type Feed interface {
	// Poll returns the next delivery, and false when there is none yet. It does not wait for events, but it may read the
	// log and encode. io.EOF: the operation is complete. The context's own error: Poll may be called again. Any other
	// error is the end of the operation, as a client may see it: *gqlerror.Error of OpenFeed, *problem.Error of OpenRun.
	// Poll does not look at Until: what it returned must not be written later than that.
	Poll(ctx context.Context) (Item, bool, error)
	// Notify sets f, which is called from any goroutine, and must not block, when a Poll that found nothing may find
	// something. It is level-triggered: what comes between that Poll and Notify calls f at once. Each call of f follows a
	// Poll that found nothing.
	Notify(f func())
	// Until is the moment until which deliveries are permitted, at most 5 s after the check behind it was sent.
	Until() time.Time
	// Renew asks for the permission anew, however idle the feed is, and moves Until. While there is no answer it waits
	// and asks again, at most Limits.HoldFor: nothing may be delivered meanwhile. Its errors are those of Poll.
	Renew(ctx context.Context) error
	// Close lets everything go. It may be called again.
	Close()
}

// OpenFeed opens the feed of an operation whose only root field is runEvents or sessionEvents. ok is false where the
// operation has to be executed in the ordinary way, by the executor; nothing was asked or opened then. The caller has
// checked the operation (CreateOperationContext does); authorization, arguments and their bounds are checked here. The
// error is a gqlerror.List, what the ordinary way would answer. after, where it is not empty, is put into the place of
// the argument of that name: the cursor of an Item. ctx must carry the caller; its values are kept, its end is not that
// of the feed.
func (r *Root) OpenFeed(ctx context.Context, op *graphql.OperationContext, after string) (f Feed, ok bool, err error) {
	return nil, false, nil
}

// OpenRun opens a feed of a run's events in their canonical form for clients without GraphQL. A payload is one or more
// complete server-sent messages, one for each event:
//
//	id: 7
//	event: text.delta
//	data: {"version":1,"type":"text.delta","run_id":"run_…","session_id":"ses_…","sequence":7,…}
//
// after is exclusive, from 0. The error is a *problem.Error, or the context's.
func (r *Root) OpenRun(ctx context.Context, runID string, after int64) (Feed, error) {
	return nil, problem.New(problem.Internal, "not there yet")
}
