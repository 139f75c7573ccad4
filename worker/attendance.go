package worker

import (
	"context"
	"sync"
	"time"
)

// attendance watches whether anybody still looks after the worker: an engine that calls, or one that holds an event
// stream open. A worker whose engine is dead goes on with its run, but not for ever.
type attendance struct {
	ttl       time.Duration
	parkedTTL time.Duration // at least ttl: what holds while a person is waited for
	parked    func() bool

	mu    sync.Mutex
	open  int       // event streams that are open
	last  time.Time // end of the last call or stream
	moved chan struct{}
}

func newAttendance(ttl, parkedTTL time.Duration, parked func() bool) *attendance {
	return &attendance{ttl: ttl, parkedTTL: parkedTTL, parked: parked, last: time.Now(), moved: make(chan struct{}, 1)}
}

// touch notes a call.
func (a *attendance) touch() { a.enter()() }

// enter notes the begin of a stream; the result notes its end.
func (a *attendance) enter() (leave func()) {
	a.step(1)
	return sync.OnceFunc(func() { a.step(-1) })
}

func (a *attendance) step(n int) {
	a.mu.Lock()
	a.open += n
	a.last = time.Now()
	a.mu.Unlock()
	select {
	case a.moved <- struct{}{}:
	default:
	}
}

// idle is for how long nobody has come.
func (a *attendance) idle() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open > 0 {
		return 0
	}
	return time.Since(a.last)
}

// left is how long the worker may still be alone, or 0 when nobody came for the whole time. Durations are taken from
// the monotonic clock, so setting the machine's clock changes nothing.
func (a *attendance) left() (time.Duration, bool) {
	ttl := a.ttl
	if a.parked() { // asked before the lock is taken: whoever answers may note a call here
		ttl = a.parkedTTL
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open > 0 {
		return 0, false
	}
	return max(0, ttl-time.Since(a.last)), true
}

// allowance is how long the worker may be alone from now on, also where it is not alone yet.
func (a *attendance) allowance() time.Duration {
	if left, alone := a.left(); alone {
		return left
	}
	if a.parked() {
		return a.parkedTTL
	}
	return a.ttl
}

// orphaned blocks until nobody came for the whole time, and reports whether that happened before ctx ended.
func (a *attendance) orphaned(ctx context.Context) bool {
	timer := time.NewTimer(a.ttl)
	defer timer.Stop()
	for {
		left, alone := a.left()
		var due <-chan time.Time
		if alone {
			if left == 0 {
				return true
			}
			timer.Reset(min(left, a.ttl)) // what is parked may end without a call
			due = timer.C
		}
		select {
		case <-due:
		case <-a.moved:
		case <-ctx.Done():
			return false
		}
	}
}
