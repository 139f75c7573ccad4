package transport

import (
	"context"
	"net/http"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/handler"
	"github.com/99designs/gqlgen/graphql/handler/extension"
	"github.com/99designs/gqlgen/graphql/handler/lru"
	"github.com/99designs/gqlgen/graphql/handler/transport"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/core"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"github.com/harness-engine/harness-engine/resolvers"
)

// graphQL is the executor with its transports. Shape comes first of the extensions: what follows may spread fragments
// out.
func (s *Server) graphQL(api *resolvers.Root) http.Handler {
	h := handler.New(api.Schema())
	h.AddTransport(s.webSocket())
	h.AddTransport(eventStream{transport.SSE{KeepAlivePingInterval: s.limits.PingInterval}, s.life})
	h.AddTransport(transport.POST{})
	h.AddTransport(transport.GET{})

	h.SetErrorPresenter(api.Present)
	h.SetRecoverFunc(api.Recover)
	h.SetParserTokenLimit(s.limits.MaxTokens)
	h.SetDisableSuggestion(true)
	h.SetValidationRulesFn(discreetRules)
	h.SetQueryCache(shortQueries{lru.New[*ast.QueryDocument](s.limits.MaxQueryCache), s.limits.MaxCachedQuery})

	h.Use(resolvers.Shape{MaxDepth: s.limits.MaxDepth, MaxFields: s.limits.MaxFields})
	h.Use(extension.FixedComplexityLimit(s.limits.MaxComplexity))
	h.Use(api.Introspection())
	h.Use(resolvers.Streams{})
	h.Use(socketOperations{s.limits.MaxSocketOps})
	h.AroundRootFields(api.WithLoaders)
	h.AroundResponses(s.bounded)
	return h
}

// bounded ends a query or mutation at the timeout. A subscription lives as long as its stream.
func (s *Server) bounded(ctx context.Context, next graphql.ResponseHandler) *graphql.Response {
	if graphql.HasOperationContext(ctx) {
		if op := graphql.GetOperationContext(ctx).Operation; op != nil && op.Operation != ast.Subscription {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.limits.OperationTimeout)
			defer cancel()
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

// shortQueries keeps long documents out of a cache that is bounded by count.
type shortQueries struct {
	graphql.Cache[*ast.QueryDocument]
	longest int
}

// Add implements graphql.Cache.
func (c shortQueries) Add(ctx context.Context, query string, doc *ast.QueryDocument) {
	if len(query) <= c.longest {
		c.Cache.Add(ctx, query, doc)
	}
}
