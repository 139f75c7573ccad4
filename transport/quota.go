package transport

import (
	"sync"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// quota bounds how many streams are open at once, in all and by one caller: a WebSocket is one, whatever it carries, and
// so is an event stream. It is safe for concurrent use.
type quota struct {
	total, each int // most in all, most of one caller

	mu   sync.Mutex
	open int
	of   map[authz.Caller]int
}

func newQuota(total, each int) *quota {
	return &quota{total: total, each: each, of: map[authz.Caller]int{}}
}

// count is how many streams are open.
func (q *quota) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open
}

// take counts one more stream of the caller, or says why there may be none. Who is not known yet is the zero caller,
// whom only the total bounds. The stream is counted until the returned function is called; further calls do nothing.
func (q *quota) take(who authz.Caller) (release func(), p *problem.Error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	known := who != (authz.Caller{})
	switch {
	case q.open >= q.total:
		return nil, problem.New(problem.Capacity, "too many connections").With("retryAfter", 5)
	case known && q.of[who] >= q.each:
		return nil, problem.New(problem.RateLimited, "a caller has at most %d streams at once", q.each)
	}
	q.open++
	if known {
		q.of[who]++
	}
	return sync.OnceFunc(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.open--
		if known {
			if q.of[who]--; q.of[who] == 0 {
				delete(q.of, who)
			}
		}
	}), nil
}
