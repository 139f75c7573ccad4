package ws

import (
	"runtime"
	"sync"
	"time"
)

// crewPatience is after how long without a turn the crew grows beyond its size. Its members should wait for nothing, but a
// feed may find that it has to read a store after all.
const crewPatience = 20 * time.Millisecond

// crew writes to the sockets that have something to be written, in turn, each at most once in line. It has as many members
// as there are processors, and no goroutine while there is nothing to do. Thousands of sockets that are woken at once so
// are written without thousands of goroutines that have to be woken, whose stacks no cache holds. Whoever has to wait, for
// a client or a store, leaves the crew before: see batch.leaveCrew.
type crew struct {
	size    int
	batches sync.Pool // *batch

	mu       sync.Mutex
	running  int       // members
	line     []*socket // from head on
	head     int
	turns    uint64 // that were begun
	watching bool
}

func newCrew() *crew {
	c := &crew{size: max(2, runtime.GOMAXPROCS(0))}
	c.batches.New = func() any { return newBatch(c) }
	return c
}

// submit has the socket written soon.
func (c *crew) submit(k *socket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head > len(c.line)/2 && len(c.line) == cap(c.line) { // rather than grow for ever
		n := copy(c.line, c.line[c.head:])
		clear(c.line[n:])
		c.line, c.head = c.line[:n], 0
	}
	c.line = append(c.line, k)
	switch {
	case c.running < c.size:
		c.running++
		go c.run()
	case !c.watching:
		c.watching = true
		c.watch(1)
	}
}

// run is a member of the crew.
func (c *crew) run() {
	b := c.batches.Get().(*batch)
	b.alone, b.now = false, time.Now()
	for k := c.next(); k != nil; k = c.next() {
		if !k.write(b) {
			break
		}
	}
	c.batches.Put(b)
}

// next is the socket that has waited longest; nil: there is none, and one member less.
func (c *crew) next() *socket {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head == len(c.line) {
		if c.line, c.head = c.line[:0], 0; cap(c.line) > 4096 {
			c.line = nil
		}
		c.running--
		return nil
	}
	k := c.line[c.head]
	c.line[c.head] = nil
	c.head++
	c.turns++
	return k
}

// leave takes a member out. Another takes its place where there is a line.
func (c *crew) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head < len(c.line) {
		go c.run()
		return
	}
	c.running--
}

// watch sees to it that those in line have their turn: where none was begun since, so many members more, and twice as many
// the next time. mu is held.
func (c *crew) watch(more int) {
	before := c.turns
	time.AfterFunc(crewPatience, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch waiting := len(c.line) - c.head; {
		case waiting == 0:
			c.watching = false
		case c.turns != before:
			c.watch(1)
		default:
			for range min(more, waiting) {
				c.running++
				go c.run()
			}
			c.watch(2 * more)
		}
	})
}
