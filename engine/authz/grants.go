package authz

import (
	"sync"
	"time"
)

// maxGrants bounds the remembered grants of a Guard, about 200 bytes each.
const maxGrants = 50_000

// grant names an allowed answer.
type grant struct {
	caller     Caller
	permission string
	object     Object
}

// grants remembers allowed answers for a short while, so that the many streams of one caller on one object share a
// check. It never remembers a denial.
type grants struct {
	mu    sync.Mutex
	limit int
	until map[grant]time.Time
	sweep time.Time // when expired entries are next looked for
}

func newGrants(limit int) *grants {
	return &grants{limit: limit, until: map[grant]time.Time{}}
}

// get returns until when k is allowed, if that is after now.
func (g *grants) get(k grant, now time.Time) (time.Time, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	until, ok := g.until[k]
	if !ok || !now.Before(until) {
		return time.Time{}, false
	}
	return until, true
}

// put remembers k until then. A full table is cleared of what has expired, at most once per second; when that frees
// nothing, k is not remembered, which costs a check and no more.
func (g *grants) put(k grant, now, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.until[k]; !ok && len(g.until) >= g.limit {
		if now.Before(g.sweep) {
			return
		}
		g.sweep = now.Add(time.Second)
		for old, t := range g.until {
			if !now.Before(t) {
				delete(g.until, old)
			}
		}
		if len(g.until) >= g.limit {
			return
		}
	}
	if until.After(g.until[k]) {
		g.until[k] = until
	}
}

func (g *grants) forget(k grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.until, k)
}
