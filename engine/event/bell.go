package event

import "sync"

// Bell wakes whoever polls, and loses no ringing: one that comes before there is a function to call is kept for it. The
// zero Bell is ready, and is safe for concurrent use.
type Bell struct {
	mu   sync.Mutex
	call func()
	rung bool // while there was nobody to call
}

// Notify sets the function that Ring calls; it must not block. It is called at once for a ringing that was kept.
func (b *Bell) Notify(f func()) {
	b.mu.Lock()
	b.call = f
	now := b.rung && f != nil
	if now {
		b.rung = false
	}
	b.mu.Unlock()
	if now {
		f()
	}
}

// Ring calls the function, or is kept until there is one.
func (b *Bell) Ring() {
	b.mu.Lock()
	f := b.call
	b.rung = f == nil
	b.mu.Unlock()
	if f != nil {
		f()
	}
}

// Quiet drops a ringing that was kept: what it told of is about to be looked at.
func (b *Bell) Quiet() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rung = false
}

// Take drops the function, which may still be in a call, and a ringing that was kept.
func (b *Bell) Take() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.call, b.rung = nil, false
}
