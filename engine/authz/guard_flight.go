package authz

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// flights lets equal questions share one answer while it is awaited.
type flights[V any] struct {
	mu      sync.Mutex
	pending map[grant]*flight[V]
}

// flight is a question on its way; value and err are set before done is closed.
type flight[V any] struct {
	done    chan struct{}
	value   V
	err     error
	askers  int // guarded by flights.mu
	abandon context.CancelFunc
}

func newFlights[V any]() *flights[V] { return &flights[V]{pending: map[grant]*flight[V]{}} }

// do asks, or waits for the answer to the same question that somebody else has asked. A denial is not taken from others:
// it may be older than the permission that the caller was given meanwhile, so then the question is asked once more. The
// question goes on as long as somebody waits for it, in a context with the values of the first.
func (fs *flights[V]) do(ctx context.Context, k grant, ask func(context.Context) (V, error)) (V, error) {
	v, joined, err := fs.once(ctx, k, ask)
	if joined && (problem.Is(err, problem.NotFound) || problem.Is(err, problem.Forbidden)) {
		v, _, err = fs.once(ctx, k, ask) // whoever asks this one began after the call
	}
	return v, err
}

func (fs *flights[V]) once(ctx context.Context, k grant, ask func(context.Context) (V, error)) (v V, joined bool, err error) {
	fs.mu.Lock()
	f := fs.pending[k]
	joined = f != nil
	if !joined {
		asking, abandon := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight[V]{done: make(chan struct{}), abandon: abandon}
		fs.pending[k] = f
		go fs.fly(asking, k, f, ask)
	}
	f.askers++
	fs.mu.Unlock()
	select {
	case <-f.done:
		return f.value, joined, f.err
	case <-ctx.Done():
		fs.mu.Lock()
		defer fs.mu.Unlock()
		if f.askers--; f.askers == 0 {
			f.abandon()
			fs.end(k, f)
		}
		return v, joined, fmt.Errorf("failed to check authorization: %w", ctx.Err())
	}
}

func (fs *flights[V]) fly(ctx context.Context, k grant, f *flight[V], ask func(context.Context) (V, error)) {
	defer f.abandon()
	f.err = errors.New("authz: a check failed")
	defer func() {
		if p := recover(); p != nil {
			f.err = fmt.Errorf("authz: panic in a check: %v", p)
		}
		fs.mu.Lock()
		fs.end(k, f)
		fs.mu.Unlock()
		close(f.done)
	}()
	f.value, f.err = ask(ctx)
}

// end is for holders of the lock.
func (fs *flights[V]) end(k grant, f *flight[V]) {
	if fs.pending[k] == f {
		delete(fs.pending, k)
	}
}
