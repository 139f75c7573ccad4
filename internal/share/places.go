// Package share divides what there is little of among those who want it, so that nobody can take all of it: places at
// which something is done, and bytes that are held.
package share

import (
	"context"
	"sync"
)

// Places are a number of places at which something is done, of which each key has at most so many at once. Who finds none
// waits; keys take turns, however much one of them wants. How many wait is bounded by those who come. It is safe for
// concurrent use, and has no goroutine of its own.
type Places[K comparable] struct {
	most, each int

	mu    sync.Mutex
	taken int
	of    map[K]*holder[K] // those who have places or wait
	line  []*holder[K]     // those who wait and may have one more, in turn
}

// holder is what one key has and wants.
type holder[K comparable] struct {
	key    K
	taken  int
	wants  []*want
	inLine bool
}

// want is one who waits for a place.
type want struct {
	begin func() // must not block; called with the lock held
}

// NewPlaces returns places: so many in all, and of them at most each for one key. Both are at least one.
func NewPlaces[K comparable](most, each int) *Places[K] {
	return &Places[K]{most: max(most, 1), each: max(each, 1), of: map[K]*holder[K]{}}
}

// Go runs the task on a goroutine as soon as there is a place for the key, in the order in which its tasks come.
func (p *Places[K]) Go(key K, task func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want(key, &want{begin: func() {
		go func() {
			defer p.leave(key)
			task()
		}()
	}})
}

// Enter waits for a place for the key; leave gives it back, once. The error is the context's cause.
func (p *Places[K]) Enter(ctx context.Context, key K) (leave func(), err error) {
	begun := make(chan struct{})
	w := &want{begin: func() { close(begun) }}
	p.mu.Lock()
	p.want(key, w)
	p.mu.Unlock()
	leave = sync.OnceFunc(func() { p.leave(key) })
	select {
	case <-begun:
		return leave, nil
	default:
	}
	select {
	case <-begun:
		return leave, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	select {
	case <-begun: // meanwhile
		p.mu.Unlock()
		leave()
	default:
		p.quit(key, w)
		p.mu.Unlock()
	}
	return nil, context.Cause(ctx)
}

// Taken is how many places are taken, and by how many keys.
func (p *Places[K]) Taken() (places, keys int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken, len(p.of)
}

// want takes a place, or stands in line. mu is held.
func (p *Places[K]) want(key K, w *want) {
	h := p.of[key]
	if h == nil {
		h = &holder[K]{key: key}
		p.of[key] = h
	}
	h.wants = append(h.wants, w)
	p.stand(h)
	p.serve()
}

// stand puts a key in line that may have one more place. mu is held.
func (p *Places[K]) stand(h *holder[K]) {
	if !h.inLine && len(h.wants) > 0 && h.taken < p.each {
		h.inLine = true
		p.line = append(p.line, h)
	}
}

// serve gives the places away that are free, one to each key in its turn. mu is held.
func (p *Places[K]) serve() {
	for p.taken < p.most && len(p.line) > 0 {
		h := p.line[0]
		p.line[0] = nil
		if p.line = p.line[1:]; len(p.line) == 0 {
			p.line = nil
		}
		h.inLine = false
		w := h.next()
		if w == nil {
			p.drop(h)
			continue
		}
		h.taken++
		p.taken++
		p.stand(h)
		w.begin()
	}
}

// next is the first who waits; nil where nobody does.
func (h *holder[K]) next() *want {
	if len(h.wants) == 0 {
		return nil
	}
	w := h.wants[0]
	h.wants[0] = nil
	if h.wants = h.wants[1:]; len(h.wants) == 0 {
		h.wants = nil
	}
	return w
}

// leave gives a place back.
func (p *Places[K]) leave(key K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.of[key]
	h.taken--
	p.taken--
	p.stand(h)
	p.drop(h)
	p.serve()
}

// quit takes one out who waits. mu is held.
func (p *Places[K]) quit(key K, w *want) {
	h := p.of[key]
	for i, other := range h.wants {
		if other == w {
			h.wants = append(h.wants[:i], h.wants[i+1:]...)
			break
		}
	}
	p.drop(h)
}

// drop forgets a key that has nothing and wants nothing; one in line is forgotten at its turn. mu is held.
func (p *Places[K]) drop(h *holder[K]) {
	if h.taken == 0 && len(h.wants) == 0 && !h.inLine {
		delete(p.of, h.key)
	}
}
