package transport

import (
	"context"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/harness-engine/harness-engine/engine/authz"
)

// meanDocument is the mean length of the documents that are kept, at most. Parsed they take some sixty times as much.
const meanDocument = 2 << 10

// documents keeps validated documents by their text, those that were used last: of callers who are known, none that is
// longer than longest, and so many bytes of all. It is safe for concurrent use, and implements graphql.Cache.
type documents struct {
	most, longest int

	mu    sync.Mutex
	known *simplelru.LRU[string, *ast.QueryDocument]
	bytes int
}

// newDocuments returns a cache of at most count documents.
func newDocuments(count, longest int) *documents {
	d := &documents{most: count * meanDocument, longest: longest}
	d.known, _ = simplelru.NewLRU(max(count, 1), func(text string, _ *ast.QueryDocument) { d.bytes -= len(text) })
	return d
}

// Get implements graphql.Cache.
func (d *documents) Get(_ context.Context, text string) (*ast.QueryDocument, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known.Get(text)
}

// Add implements graphql.Cache.
func (d *documents) Add(ctx context.Context, text string, doc *ast.QueryDocument) {
	if _, ok := authz.CallerFrom(ctx); !ok || len(text) > d.longest {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known.Contains(text) {
		return
	}
	d.known.Add(text, doc)
	for d.bytes += len(text); d.bytes > d.most; {
		d.known.RemoveOldest()
	}
}
