package share

import "sync"

// Stock is a number of things, bytes above all, that may be held at once, of which each key may hold so many. It is safe for concurrent
// use.
type Stock[K comparable] struct {
	most, each int64

	mu   sync.Mutex
	held int64
	of   map[K]int64
}

// NewStock returns a stock: so many in all, and of them at most each for one key.
func NewStock[K comparable](most, each int64) *Stock[K] {
	return &Stock[K]{most: most, each: each, of: map[K]int64{}}
}

// Take holds n more for the key; false: there is no room for them, and nothing is held. Who holds nothing may
// hold more than its share, so that one thing that is large does not wait for ever; it may not hold more than all.
func (b *Stock[K]) Take(key K, n int) bool {
	if n <= 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	has := b.of[key]
	if b.held+int64(n) > b.most || has > 0 && has+int64(n) > b.each {
		return false
	}
	b.held += int64(n)
	b.of[key] = has + int64(n)
	return true
}

// Give gives n back that the key holds.
func (b *Stock[K]) Give(key K, n int) {
	if n <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= int64(n)
	if b.of[key] -= int64(n); b.of[key] <= 0 {
		delete(b.of, key)
	}
}

// Held is how many are held, and by how many keys.
func (b *Stock[K]) Held() (bytes int64, keys int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held, len(b.of)
}
