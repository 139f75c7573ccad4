package resolvers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
)

const (
	// edgeAge is how old the executor's answers about edges may be: with the 2 seconds for which an answer may be repeated
	// nothing is shown later than authz.MaxAge after its check.
	edgeAge = authz.MaxAge - 2*time.Second
	// States that are shown at once, in all and to one caller; the others wait.
	maxShowing       = 64
	maxCallerShowing = 8
)

// stateWatch tells what has changed of something that is shown as it is, and reads it. poll, read and close are called by one
// goroutine at a time.
type stateWatch interface {
	// poll takes the next that has changed; false where nothing has.
	poll(ctx context.Context) (key string, ok bool, err error)
	// read reads it as it is now, and until when that may be shown; zero: as long as the feed may deliver. False: it is not
	// to be shown.
	read(ctx context.Context, key string) (v any, until time.Time, ok bool, err error)
	// notify sets f, which must not block, and is called when a poll that found nothing may find something now. It is
	// called once, before any poll, and may call f at once.
	notify(f func())
	close()
}

// watches are the root fields that show a state.
var watches = map[string]func(ctx context.Context, r *Root, who authz.Caller) (stateWatch, error){
	"sessionChanged": watchSessions,
	"catalogChanged": watchCatalog,
}

// stateFeed is a StateFeed.
type stateFeed struct {
	*feed
	state *stateSource
}

// Again implements StateFeed.
func (f stateFeed) Again() { f.state.again() }

func (r *Root) openState(ctx context.Context, op *graphql.OperationContext, root graphql.CollectedField,
	open func(context.Context, *Root, authz.Caller) (stateWatch, error),
) (StateFeed, error) {
	permission, object, err := feedTarget(ctx, root)
	if err != nil {
		return nil, err
	}
	var s *stateSource
	f, err := r.openFeed(ctx, permission, object, func() (source, error) {
		who, err := caller(ctx)
		if err != nil {
			return nil, err
		}
		w, err := open(ctx, r, who)
		if err != nil {
			return nil, err
		}
		s = &stateSource{root: r, op: op, who: who, watch: w}
		s.ctx, s.cancel = context.WithCancel(authz.WithCaller(context.Background(), who))
		w.notify(s.stir)
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	f.present = r.presentAt(strings.Clone(root.Alias))
	return stateFeed{f, s}, nil
}

// stateSource gives what a watch tells of, as the executor writes it. That is done beside those who poll, by one goroutine
// while there is something to be shown, and none otherwise.
type stateSource struct {
	root   *Root
	op     *graphql.OperationContext
	who    authz.Caller
	ctx    context.Context // of everything that is done for it
	cancel context.CancelFunc
	watch  stateWatch // of the goroutine that shows; of whoever holds the lock while there is none

	mu      sync.Mutex
	called  func() // of notify
	stirred bool   // there may be something to show
	showing bool   // a goroutine is at it
	item    *stateItem
	given   string  // key of the item that poll returned last
	pending *string // key of what has to be shown again
	broken  error   // what it ended at
	closed  bool
}

// stateItem is one thing that was shown.
type stateItem struct {
	key     string
	payload []byte
	until   time.Time
}

// lasts reports whether the item may still be written. Zero is without an end.
func (i *stateItem) lasts(now time.Time) bool { return i.until.IsZero() || now.Before(i.until) }

func (s *stateSource) poll(context.Context) (Item, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.item; i != nil {
		s.item = nil
		if i.lasts(time.Now()) {
			s.given, s.stirred = i.key, true // there may be more
			return Item{Payload: i.payload, Until: i.until}, true, nil
		}
		s.pending, s.stirred = &i.key, true
	}
	if s.broken != nil {
		return Item{}, false, s.broken
	}
	if s.stirred && !s.showing && !s.closed {
		s.stirred, s.showing = false, true
		s.root.shows.Go(s.who, s.show)
	}
	return Item{}, false, nil
}

func (s *stateSource) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.given
	s.pending, s.stirred = &key, true
}

// stir is called by the watch.
func (s *stateSource) stir() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stirred = true
	if s.called != nil && !s.showing {
		s.called()
	}
}

func (s *stateSource) notify(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.called = f
	if s.ready() {
		f()
	}
}

// ready reports whether a poll would do something. mu is held.
func (s *stateSource) ready() bool {
	return s.item != nil || s.broken != nil || s.stirred && !s.showing
}

func (s *stateSource) close() {
	s.cancel()
	s.mu.Lock()
	idle := !s.closed && !s.showing // else it was done, or is at the end of what is under way
	s.closed, s.called = true, nil
	s.mu.Unlock()
	if idle {
		s.watch.close()
	}
}

// show shows the next thing, beside those who poll.
func (s *stateSource) show() {
	item, err := s.next()
	s.mu.Lock()
	closed := s.closed
	s.showing, s.item, s.broken = false, item, err
	if s.called != nil && s.ready() {
		s.called()
	}
	s.mu.Unlock()
	if closed { // not under the lock: the watch calls stir under its own
		s.watch.close()
	}
}

// next is what is to be shown next; nil where there is nothing.
func (s *stateSource) next() (item *stateItem, err error) {
	defer func() {
		if p := recover(); p != nil {
			item, err = nil, s.root.Recover(s.ctx, p)
		}
	}()
	giveUp := time.Now().Add(s.root.Limits.HoldFor)
	ctx, cancel := context.WithDeadline(s.ctx, giveUp.Add(s.root.Limits.HoldFor))
	defer cancel()
	s.mu.Lock()
	pending := s.pending
	s.pending = nil
	s.mu.Unlock()
	for {
		if pending == nil {
			key, ok, err := s.watch.poll(ctx)
			if !ok || err != nil {
				return nil, err
			}
			pending = &key
		}
		begun := time.Now()
		v, until, ok, err := s.watch.read(ctx, *pending)
		switch {
		case err != nil:
			return nil, err
		case !ok:
			pending = nil
			continue
		}
		item := &stateItem{key: *pending}
		if !until.IsZero() {
			item.until = until
			if edges := begun.Add(edgeAge); edges.Before(until) {
				item.until = edges
			}
		}
		if item.payload, err = s.root.execute(ctx, s.op, v); err != nil {
			return nil, err
		}
		switch now := time.Now(); {
		case item.lasts(now):
			return item, nil
		case now.After(giveUp): // it takes longer than a permission lasts
			return nil, problem.New(problem.AuthorizationUnavailable, "authorization is unavailable, try again").With("retryable", true)
		}
	}
}

// execute executes a subscription whose one value is v; what fails as a whole is an error.
func (r *Root) execute(ctx context.Context, op *graphql.OperationContext, v any) ([]byte, error) {
	ctx = graphql.WithOperationContext(ctx, op)
	ctx = graphql.WithResponseContext(ctx, r.Present, r.Recover)
	ctx = context.WithValue(ctx, loadersKey{}, r.newLoaders())
	ctx = r.WithBudget(context.WithValue(ctx, shownKey{}, v))
	responses := r.schema.Exec(ctx)
	resp := &graphql.Response{}
	if len(graphql.GetErrors(ctx)) == 0 {
		if resp = responses(ctx); resp == nil {
			resp = &graphql.Response{}
		}
	}
	resp.Errors = append(resp.Errors, graphql.GetErrors(ctx)...)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case len(resp.Data) > 0:
		payload, err := json.Marshal(resp)
		if err != nil {
			return nil, fmt.Errorf("failed to encode a state: %w", err)
		}
		return payload, nil
	case len(resp.Errors) > 0:
		return nil, resp.Errors[0]
	}
	return nil, errUnshown
}

var errUnshown = errors.New("resolvers: a state is shown by its feed only")

type shownKey struct{}

// isShown reports whether a subscription is executed for its feed.
func isShown(ctx context.Context) bool { return ctx.Value(shownKey{}) != nil }

// shown gives the value that execute was called with to the executor.
func shown[T any](ctx context.Context) (<-chan T, error) {
	v, ok := ctx.Value(shownKey{}).(T)
	if !ok {
		return nil, errUnshown
	}
	one := make(chan T, 1)
	one <- v
	close(one)
	return one, nil
}
