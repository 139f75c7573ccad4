package ws

import "sync"

// pool runs tasks on at most a number of goroutines, in the order in which they come. It has no goroutine while there is
// nothing to do. The queue is bounded by those who submit: each has a bounded number of tasks at once.
type pool struct {
	most int

	mu      sync.Mutex
	running int
	queue   []func()
}

func newPool(most int) *pool { return &pool{most: max(most, 1)} }

// submit runs the task soon.
func (p *pool) submit(task func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == p.most {
		p.queue = append(p.queue, task)
		return
	}
	p.running++
	go p.run(task)
}

func (p *pool) run(task func()) {
	for task != nil {
		task()
		task = p.next()
	}
}

// next is the task that has waited longest; nil ends the goroutine.
func (p *pool) next() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.queue = nil
		p.running--
		return nil
	}
	task := p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	return task
}
