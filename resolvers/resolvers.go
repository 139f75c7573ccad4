// Package resolvers turns GraphQL into calls of the engine and engine errors into stable codes. One file a noun.
package resolvers

import (
	"errors"
	"log/slog"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/graph"
	"github.com/harness-engine/harness-engine/internal/share"
)

// Options are what the API is made of. All but Files, Logger and Limits are required.
type Options struct {
	Guard    Guard
	Agents   Agents
	Catalog  Catalog
	Sessions Sessions
	Runs     Runs
	Control  Control
	Events   Events
	Hub      Hub
	Feed     SessionFeed
	Changes  Changes
	Files    Files  // nil: messages have no attachments
	LogEpoch string // of every run: the incarnation of the store, see store.ValueIncarnation
	Limits   Limits
	Logger   *slog.Logger // nil: slog.Default()
}

// Limits of the API; a zero field takes the default.
type Limits struct {
	BatchEvents int           // most events in one batch of a subscription; default 256
	MaxRead     int           // bytes of runs and events that one operation may read, and one page more; default 16 MiB
	HoldFor     time.Duration // how long a stream waits for an authorization that gives no answer; default 15 s
}

func (l Limits) withDefaults() Limits {
	if l.BatchEvents <= 0 {
		l.BatchEvents = 256
	}
	if l.MaxRead <= 0 {
		l.MaxRead = 16 << 20
	}
	if l.HoldFor <= 0 {
		l.HoldFor = 15 * time.Second
	}
	return l
}

// Root resolves the schema. It implements graph.ResolverRoot.
type Root struct {
	Options

	schema    graphql.ExecutableSchema
	forms     forms
	frames    *frames
	canonical *form                       // of OpenRun
	shows     *share.Places[authz.Caller] // where states are shown
}

// New returns the resolvers. It fails when a required option is missing.
func New(o Options) (*Root, error) {
	for _, part := range []any{o.Guard, o.Agents, o.Catalog, o.Sessions, o.Runs, o.Control, o.Events, o.Hub, o.Feed, o.Changes} {
		if part == nil {
			return nil, errors.New("resolvers: a required option is missing")
		}
	}
	o.Limits = o.Limits.withDefaults()
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	r := &Root{
		Options: o, frames: newFrames(), canonical: &form{mark: historyMark(o.LogEpoch)},
		shows: share.NewPlaces[authz.Caller](maxShowing, maxCallerShowing),
	}
	r.schema = r.Schema()
	return r, nil
}

// HistoryMark is what the ids of server-sent events end in: "." and a few characters that LogEpoch gives. An id with
// another mark was given by another history of the logs, which a store that was restored from a backup does not have.
func (r *Root) HistoryMark() string { return r.canonical.mark }

// Schema returns the executable schema with the directives and the cost of its lists.
func (r *Root) Schema() graphql.ExecutableSchema {
	c := graph.Config{Resolvers: r, Complexity: complexity()}
	c.Directives.Authz = r.authorize
	return graph.NewExecutableSchema(c)
}

// The nouns of the schema.
func (r *Root) Query() graph.QueryResolver               { return queries{r} }
func (r *Root) Mutation() graph.MutationResolver         { return mutations{r} }
func (r *Root) Subscription() graph.SubscriptionResolver { return subscriptions{r} }
func (r *Root) Viewer() graph.ViewerResolver             { return viewers{r} }
func (r *Root) Agent() graph.AgentResolver               { return agents{r} }
func (r *Root) Session() graph.SessionResolver           { return sessions{r} }
func (r *Root) Run() graph.RunResolver                   { return runs{r} }
func (r *Root) SessionBusy() graph.SessionBusyResolver   { return busySessions{r} }
func (r *Root) FormInterrupt() graph.FormInterruptResolver {
	return formInterrupts{r}
}
func (r *Root) ToolApprovalInterrupt() graph.ToolApprovalInterruptResolver {
	return approvalInterrupts{r}
}

type (
	queries       struct{ *Root }
	mutations     struct{ *Root }
	subscriptions struct{ *Root }
	viewers       struct{ *Root }
	agents        struct{ *Root }
	sessions      struct{ *Root }
	runs          struct{ *Root }
	busySessions  struct{ *Root }

	formInterrupts     struct{ *Root }
	approvalInterrupts struct{ *Root }
)
