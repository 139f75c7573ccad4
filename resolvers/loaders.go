package resolvers

import (
	"context"
	"fmt"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vikstrous/dataloadgen"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// Batching of loads. The stores answer single reads in microseconds, so the point is that a page asks for each thing
// once, not that it asks together.
const (
	loadWait  = time.Millisecond
	loadBatch = 100
)

// question is one permission on one object.
type question struct {
	permission string
	object     authz.Object
}

// versionKey names one version of an agent.
type versionKey struct {
	agentID string
	number  int64
}

// loaderSet remembers what one root field has read. It lives no longer than that, so a mutation never sees what an
// earlier one in the same document read.
type loaderSet struct {
	agent   *dataloadgen.Loader[string, agent.Agent]
	version *dataloadgen.Loader[versionKey, agent.Version]
	session *dataloadgen.Loader[string, session.Binding]
	run     *dataloadgen.Loader[string, run.Run]
	allowed *dataloadgen.Loader[question, bool]
}

type loadersKey struct{}

// WithLoaders gives each root field its own loaders.
func (r *Root) WithLoaders(ctx context.Context, next graphql.RootResolver) graphql.Marshaler {
	return next(context.WithValue(ctx, loadersKey{}, r.newLoaders()))
}

func (r *Root) loaders(ctx context.Context) *loaderSet {
	if set, ok := ctx.Value(loadersKey{}).(*loaderSet); ok {
		return set
	}
	return r.newLoaders()
}

func (r *Root) newLoaders() *loaderSet {
	return &loaderSet{
		agent: loader(func(ctx context.Context, id string) (agent.Agent, error) { return r.Agents.Agent(ctx, id) }),
		version: loader(func(ctx context.Context, k versionKey) (agent.Version, error) {
			return r.Agents.Version(ctx, k.agentID, k.number)
		}),
		session: loader(func(ctx context.Context, id string) (session.Binding, error) { return r.Sessions.Session(ctx, id) }),
		run:     loader(func(ctx context.Context, id string) (run.Run, error) { return r.Runs.Run(ctx, id) }),
		allowed: dataloadgen.NewLoader(r.allowedMany, dataloadgen.WithWait(loadWait), dataloadgen.WithBatchCapacity(loadBatch)),
	}
}

// loader makes a loader from a single read.
func loader[K comparable, V any](read func(context.Context, K) (V, error)) *dataloadgen.Loader[K, V] {
	return dataloadgen.NewLoader(func(ctx context.Context, keys []K) (values []V, errs []error) {
		values, errs = make([]V, len(keys)), make([]error, len(keys))
		at := 0
		defer contain(errs, &at)
		for ; at < len(keys); at++ {
			values[at], errs[at] = read(ctx, keys[at])
		}
		return values, errs
	}, dataloadgen.WithWait(loadWait), dataloadgen.WithBatchCapacity(loadBatch))
}

// allowedMany asks for the questions of one batch, one call for each permission.
func (r *Root) allowedMany(ctx context.Context, qs []question) (values []bool, errs []error) {
	values, errs = make([]bool, len(qs)), make([]error, len(qs))
	at := 0
	defer contain(errs, &at)
	byPermission := map[string][]int{}
	for i, q := range qs {
		byPermission[q.permission] = append(byPermission[q.permission], i)
	}
	for permission, where := range byPermission {
		objects := make([]authz.Object, len(where))
		for i, w := range where {
			objects[i] = qs[w].object
		}
		ok, failed := r.allowedEach(ctx, permission, objects)
		for i, w := range where {
			values[w], errs[w] = ok[i], failed[i]
		}
	}
	return values, errs
}

// contain turns a panic of a batch, which runs on the loader's own goroutine, into an error of everything from *at on:
// otherwise it would end the process.
func contain(errs []error, at *int) {
	if p := recover(); p != nil {
		for i := *at; i < len(errs); i++ {
			errs[i] = fmt.Errorf("panic in a batch: %v", p)
		}
	}
}
