package resolvers

import (
	"context"
	"sync/atomic"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
)

// budget bounds what one operation reads of runs and their events: it holds all of that until it has answered, and a
// short document may ask for many pages of long texts. Pages are read one after the other, so that it is exceeded by one
// of them at most.
type budget struct {
	turn chan struct{} // has one who reads
	left atomic.Int64
	most int
}

type budgetKey struct{}

// WithBudget gives an operation its budget: Limits.MaxRead.
func (r *Root) WithBudget(ctx context.Context) context.Context {
	b := &budget{turn: make(chan struct{}, 1), most: r.Limits.MaxRead}
	b.left.Store(int64(r.Limits.MaxRead))
	return context.WithValue(ctx, budgetKey{}, b)
}

// spend reads what may be much, within the operation's budget.
func spend[T any](ctx context.Context, bytes func(T) int, read func() ([]T, error)) ([]T, error) {
	b, _ := ctx.Value(budgetKey{}).(*budget)
	if b == nil {
		return read()
	}
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if b.left.Load() <= 0 {
		return nil, problem.New(problem.TooComplex, "the operation reads more than %d bytes, ask for less at once", b.most)
	}
	page, err := read()
	for _, item := range page {
		b.left.Add(-int64(bytes(item)))
	}
	return page, err
}

// documentBytes is what a document takes beside its texts, about.
const documentBytes = 1 << 10

func runBytes(r run.Run) int {
	n := documentBytes + len(r.Input.Text)
	for _, m := range r.Output {
		n += len(m.Text)
	}
	if r.Interrupt != nil {
		n += len(r.Interrupt.Request)
	}
	return n
}

func chunkBytes(c event.Chunk) int { return documentBytes + len(c.Body) }
