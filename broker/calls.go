package broker

import "sync"

// calls bounds what goes on at once, over all and of each run.
type calls struct {
	mu    sync.Mutex
	most  int
	ofRun int
	all   int
	runs  map[string]int
}

func newCalls(most, ofRun int) *calls {
	return &calls{most: most, ofRun: ofRun, runs: map[string]int{}}
}

// begin reports whether there is room, and then counts the call until end.
func (c *calls) begin(run string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.most || c.runs[run] >= c.ofRun {
		return false
	}
	c.all++
	c.runs[run]++
	return true
}

func (c *calls) end(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.runs[run]--; c.runs[run] == 0 {
		delete(c.runs, run)
	}
}

func (c *calls) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}
