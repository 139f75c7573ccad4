package resolvers

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/graph/model"
)

// CatalogChanged shows what the catalog is; see StateFeed.
func (subscriptions) CatalogChanged(ctx context.Context) (<-chan *model.CatalogRevision, error) {
	return shown[*model.CatalogRevision](ctx)
}

// catalogWatch watches the catalog, which at first counts as changed.
type catalogWatch struct {
	*Root
	changed atomic.Bool
	release func()
}

func watchCatalog(_ context.Context, r *Root, _ authz.Caller) (stateWatch, error) {
	w := &catalogWatch{Root: r, release: func() {}}
	w.changed.Store(true)
	return w, nil
}

func (w *catalogWatch) poll(context.Context) (string, bool, error) {
	return "", w.changed.Swap(false), nil
}

func (w *catalogWatch) read(context.Context, string) (v any, until time.Time, ok bool, err error) {
	latest := w.Catalog.Latest()
	return &model.CatalogRevision{Revision: latest.Revision, ChangedAt: latest.At}, until, true, nil
}

func (w *catalogWatch) notify(f func()) {
	w.release = w.Catalog.Watch(func() {
		w.changed.Store(true)
		f()
	})
	f()
}

func (w *catalogWatch) close() { w.release() }
