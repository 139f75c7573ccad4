package authz

import (
	"context"
	"sync"
)

// Locks serialises work per object. The zero value is ready. An object's lock takes memory only while it is held or
// waited for.
type Locks struct {
	mu   sync.Mutex
	held map[Object]*lock
}

type lock struct {
	turn  chan struct{} // holds one value while the lock is free
	users int
}

// Lock waits for the object's lock until ctx ends. The caller must call unlock once.
func (l *Locks) Lock(ctx context.Context, o Object) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[Object]*lock{}
	}
	k, ok := l.held[o]
	if !ok {
		k = &lock{turn: make(chan struct{}, 1)}
		k.turn <- struct{}{}
		l.held[o] = k
	}
	k.users++
	l.mu.Unlock()

	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.held, o)
		}
	}
	select {
	case <-k.turn:
		return func() { k.turn <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
