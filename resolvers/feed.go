package resolvers

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// Item is one delivery of a Feed.
type Item struct {
	// Payload is the complete encoded delivery: of OpenFeed a GraphQL result, {"data":{...}}; of OpenRun one or more
	// server-sent messages, see there. It is shared with other feeds: read-only.
	Payload []byte
	// Cursor is where to come back for what follows: the id of a server-sent event, and what OpenFeed takes as after.
	Cursor string
	// Waiting: nothing was behind this delivery, and Notify's function is called when something is, as after a Poll that
	// found nothing. No Poll is needed until then. False says nothing: the next Poll tells.
	Waiting bool
	// Until, where it is not zero, is the moment until which this item may be written, whatever the feed's permission: of a
	// StateFeed, whose items show what more permissions were asked for.
	Until time.Time
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
	// Notify sets f, which is called from any goroutine, and must not block, when a Poll that found nothing, or whose Item
	// says Waiting, may find something now. It is level-triggered: what comes between that Poll and Notify calls f at once.
	// A call may also come for nothing.
	Notify(f func())
	// Until is the moment until which deliveries are permitted, at most 5 s after the check behind it was sent.
	Until() time.Time
	// Renew asks for the permission anew, however idle the feed is, and moves Until. While there is no answer it waits
	// and asks again, at most Limits.HoldFor: nothing may be delivered meanwhile. Its errors are those of Poll.
	Renew(ctx context.Context) error
	// Close lets everything go. It may be called again.
	Close()
}

// StateFeed is the Feed of something that is shown as it is: an item that is not written in its time is of no use, and the
// next one shows the same thing as it is by then. It keeps its operation, with the document.
type StateFeed interface {
	Feed
	// Again says that the item which Poll returned last was not written, nor will it be.
	Again()
}

// source is where the deliveries of a feed come from: what Poll, Notify and Close of a Feed do, with errors as they are.
type source interface {
	poll(ctx context.Context) (Item, bool, error)
	notify(f func())
	close()
}

// feed is a source that is delivered under a permission.
type feed struct {
	source
	ofRun   runSource // the source, where it is a run's: what each delivery looks at is in one place
	caller  authz.Caller
	present func(ctx context.Context, err error) error

	mu    sync.Mutex
	lease lease
}

// openFeed asks for the permission and opens the source then.
func (r *Root) openFeed(ctx context.Context, permission string, object authz.Object, open func() (source, error)) (*feed, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	until, err := r.Guard.Recheck(ctx, permission, object)
	if err != nil {
		return nil, err
	}
	s, err := open()
	if err != nil {
		return nil, err
	}
	f := &feed{source: s, caller: who, lease: lease{Root: r, permission: permission, object: object, until: until}}
	if one, ok := s.(*runSource); ok {
		f.ofRun = *one
		f.source = &f.ofRun
	}
	return f, nil
}

// Poll implements Feed.
func (f *feed) Poll(ctx context.Context) (item Item, ok bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			item, ok, err = Item{}, false, f.present(ctx, f.lease.Recover(ctx, p))
		}
	}()
	item, ok, err = f.poll(ctx)
	if err == nil || errors.Is(err, io.EOF) {
		return item, ok, err
	}
	return Item{}, false, f.shown(ctx, err)
}

// shown is what the transport gets to see of an error.
func (f *feed) shown(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return f.present(ctx, err)
}

// Notify implements Feed.
func (f *feed) Notify(call func()) { f.notify(call) }

// Close implements Feed.
func (f *feed) Close() { f.close() }

// Until implements Feed.
func (f *feed) Until() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lease.until
}

// Renew implements Feed.
func (f *feed) Renew(ctx context.Context) error {
	f.mu.Lock()
	l := f.lease
	f.mu.Unlock()
	if err := l.renew(authz.WithCaller(ctx, f.caller)); err != nil {
		return f.shown(ctx, err)
	}
	f.mu.Lock()
	f.lease.until = l.until
	f.mu.Unlock()
	return nil
}

// presentAt makes the errors of a root field, as a client may see them. Only the field's name is kept of the operation.
func (r *Root) presentAt(alias string) func(context.Context, error) error {
	return func(ctx context.Context, err error) error {
		at := &graphql.FieldContext{Object: "Subscription", Field: graphql.CollectedField{Field: &ast.Field{Alias: alias}}}
		return r.Present(graphql.WithFieldContext(ctx, at), err)
	}
}

// presentProblem makes errors for those who speak no GraphQL.
func (r *Root) presentProblem(ctx context.Context, err error) error {
	shown := r.Present(ctx, err)
	code, _ := shown.Extensions["code"].(string)
	p := problem.New(problem.Code(code), "%s", shown.Message).Because(err)
	for key, value := range shown.Extensions {
		if key != "code" && key != "field" {
			p = p.With(key, value)
		}
	}
	if from, ok := problem.As(err); ok {
		p.Field = from.Field
	}
	return p
}

// OpenRun opens a feed of a run's events in their canonical form for clients without GraphQL. A payload is one or more
// complete server-sent messages, one for each event:
//
//	id: 7.5f2c81aa
//	event: text.delta
//	data: {"version":1,"type":"text.delta","run_id":"run_…","session_id":"ses_…","sequence":7,…}
//
// The id is the sequence and HistoryMark. after is exclusive, from 0. The error is a *problem.Error, or the context's.
func (r *Root) OpenRun(ctx context.Context, runID string, after int64) (Feed, error) {
	f, err := r.openRun(ctx, runID, after)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, r.presentProblem(ctx, err)
	}
	return f, nil
}

func (r *Root) openRun(ctx context.Context, runID string, after int64) (*feed, error) {
	if err := checkID("runId", runID); err != nil {
		return nil, err
	}
	if err := checkSequence("after", after); err != nil {
		return nil, err
	}
	f, err := r.openFeed(ctx, authz.CanView, authz.Run(runID), func() (source, error) {
		return &runSource{frames: r.frames, form: r.canonical, sub: r.Hub.Subscribe(runID, after), limit: r.Limits.BatchEvents}, nil
	})
	if err != nil {
		return nil, err
	}
	f.present = r.presentProblem
	return f, nil
}
