package transport

import (
	"context"
	"net/http"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/99designs/gqlgen/graphql/handler/extension"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/validator/core"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/resolvers"
)

// operations is /graphql behind admission and authentication: an operation as one answer, as an event stream, or a
// WebSocket with many.
type operations struct {
	server *Server
	api    *resolvers.Root
	exec   *executor.Executor
}

// graphQL is the handler of /graphql.
func (s *Server) graphQL(api *resolvers.Root) http.Handler {
	return operations{server: s, api: api, exec: s.executor(api)}
}

// executor is what runs operations, the same for every transport. Shape comes first of the extensions: what follows may
// spread fragments out.
func (s *Server) executor(api *resolvers.Root) *executor.Executor {
	e := executor.New(api.Schema())
	e.SetErrorPresenter(api.Present)
	e.SetRecoverFunc(api.Recover)
	e.SetParserTokenLimit(s.limits.MaxTokens)
	e.SetDisableSuggestion(true)
	e.SetDefaultRulesFn(discreetRules)
	valid := newDocuments(s.limits.MaxQueryCache, s.limits.MaxCachedQuery)
	e.SetQueryCache(valid)

	e.Use(resolvers.Shape{MaxDepth: s.limits.MaxDepth, MaxFields: s.limits.MaxFields})
	e.Use(newPersisted(s.limits.MaxQueryCache, s.limits.MaxCachedQuery))
	e.Use(merging{valid, s.limits.MaxTokens})
	e.Use(extension.FixedComplexityLimit(s.limits.MaxComplexity))
	e.Use(api.Introspection())
	e.Use(resolvers.Streams{})
	e.AroundRootFields(api.WithLoaders)
	e.AroundResponses(operations{server: s, api: api}.bounded)
	return e
}

// ServeHTTP implements http.Handler.
func (o operations) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = r.WithContext(graphql.StartOperationTrace(r.Context()))
	if isUpgrade(r) {
		o.server.serveSocket(w, r, o.exec)
		return
	}
	takes := acceptedBy(r.Header)
	if !takes.any() {
		refuse(w, http.StatusNotAcceptable, problem.New(problem.BadUserInput, "Accept must take %s, %s or %s", mediaGraphQL, mediaJSON, mediaStream))
		return
	}
	c, p := o.server.admitRequest(r.Context())
	if p != nil {
		refuse(w, statuses[p.Code], p)
		return
	}
	defer c.release()
	params, status, p := o.server.readRequest(w, r, c)
	if p == nil {
		status, p = http.StatusServiceUnavailable, c.enter(r.Context())
	}
	if p != nil {
		refuse(w, status, p)
		return
	}
	defer o.recovered(w, r)
	op, errs := o.exec.CreateOperationContext(r.Context(), params)
	switch {
	case len(errs) == 0 && r.Method != http.MethodPost && op.Operation.Operation == ast.Mutation:
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, problem.New(problem.BadUserInput, "a mutation must be sent by POST"))
	case takes.before, takes.stream && len(errs) == 0 && op.Operation.Operation == ast.Subscription:
		o.stream(w, r, c, op, errs)
	case len(errs) > 0:
		c.answer(w, takes.single, o.exec.DispatchError(graphql.WithOperationContext(r.Context(), op), errs))
	default:
		responses, ctx := o.exec.DispatchOperation(r.Context(), op)
		resp := responses(ctx)
		if resp == nil { // the client has left
			return
		}
		c.answer(w, takes.single, resp)
	}
}

// recovered answers where something panicked outside an operation; those have their own recovery.
func (o operations) recovered(w http.ResponseWriter, r *http.Request) {
	switch cause := recover(); {
	case cause == nil:
	case cause == any(http.ErrAbortHandler): // an answer that has begun
		panic(cause)
	default:
		err := o.api.Present(r.Context(), o.api.Recover(r.Context(), cause))
		refuseErrors(w, http.StatusInternalServerError, gqlerror.List{err})
	}
}

// negotiated sets the form of an answer before anything can refuse the request, so that a refusal has it, too.
func negotiated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		if kind := acceptedBy(r.Header).single; kind != "" {
			w.Header().Set("Content-Type", kind+"; charset=utf-8")
		}
		next.ServeHTTP(w, r)
	})
}

// bounded ends a query or mutation at the timeout, and bounds what it reads. A subscription lives as long as its stream.
func (o operations) bounded(ctx context.Context, next graphql.ResponseHandler) *graphql.Response {
	if graphql.HasOperationContext(ctx) {
		if op := graphql.GetOperationContext(ctx).Operation; op != nil && op.Operation != ast.Subscription {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, o.server.limits.OperationTimeout)
			defer cancel()
			ctx = o.api.WithBudget(ctx)
		}
	}
	return next(ctx)
}

// discreetRules are the default rules without their suggestions, which would tell the schema to callers who may not
// read it.
func discreetRules() *rules.Rules {
	r := rules.NewDefaultRules()
	for _, discreet := range []core.Rule{
		rules.FieldsOnCorrectTypeRuleWithoutSuggestions,
		rules.KnownArgumentNamesRuleWithoutSuggestions,
		rules.KnownTypeNamesRuleWithoutSuggestions,
		rules.ScalarLeafsRuleWithoutSuggestions,
		rules.ValuesOfCorrectTypeRuleWithoutSuggestions,
	} {
		r.RemoveRule(strings.TrimSuffix(discreet.Name, "WithoutSuggestions"))
		r.AddRule(discreet.Name, discreet.RuleFunc)
	}
	return r
}
