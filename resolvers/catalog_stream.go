package resolvers

import (
	"context"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/graph/model"
)

// CatalogChanged follows the catalog.
func (s subscriptions) CatalogChanged(ctx context.Context) (<-chan *model.CatalogRevision, error) {
	l, err := s.grant(ctx, authz.CanList, authz.Platform())
	if err != nil {
		return nil, err
	}
	var changed <-chan struct{} // nil before the first delivery, which does not wait
	return stream(ctx, l, func(ctx context.Context) (*model.CatalogRevision, error) {
		if changed != nil {
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		latest, next := s.Catalog.Latest()
		changed = next
		return &model.CatalogRevision{Revision: latest.Revision, ChangedAt: latest.At}, nil
	}, nil), nil
}
