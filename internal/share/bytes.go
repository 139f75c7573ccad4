package share

import "sync"

// Bytes are a number of bytes that may be held at once, of which each key may hold so many. It is safe for concurrent
// use.
type Bytes[K comparable] struct {
	most, each int64

	mu   sync.Mutex
	held int64
	of   map[K]int64
}

// NewBytes returns bytes: so many in all, and of them at most each for one key.
func NewBytes[K comparable](most, each int64) *Bytes[K] {
	return &Bytes[K]{most: most, each: each, of: map[K]int64{}}
}

// Take holds n more bytes for the key; false: there is no room for them, and nothing is held. Who holds nothing may
// hold more than its share, so that one thing that is large does not wait for ever; it may not hold more than all.
func (b *Bytes[K]) Take(key K, n int) bool {
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

// Give gives n bytes back that the key holds.
func (b *Bytes[K]) Give(key K, n int) {
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

// Held is how many bytes are held, and by how many keys.
func (b *Bytes[K]) Held() (bytes int64, keys int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held, len(b.of)
}
