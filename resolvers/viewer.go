package resolvers

import (
	"context"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/graph/model"
)

// Viewer is nil for a request without a caller.
func (q queries) Viewer(ctx context.Context) (*model.Viewer, error) {
	c, ok := authz.CallerFrom(ctx)
	if !ok {
		return nil, nil
	}
	return &model.Viewer{Subject: c.Subject, Environment: c.Environment}, nil
}

// CanCreateAgent asks the platform.
func (v viewers) CanCreateAgent(ctx context.Context, _ *model.Viewer) (bool, error) {
	return v.loaders(ctx).allowed.Load(ctx, question{authz.CanCreateAgent, authz.Platform()})
}

// CanIntrospect asks the platform.
func (v viewers) CanIntrospect(ctx context.Context, _ *model.Viewer) (bool, error) {
	return v.loaders(ctx).allowed.Load(ctx, question{authz.CanIntrospect, authz.Platform()})
}
