package catalog

import (
	"maps"
	"time"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// Change is what the catalog was found to be at a moment.
type Change struct {
	Revision string    // as Revision tells
	At       time.Time // when a probe found it so
}

// Latest returns the newest change, at first what New found; Watch tells when there is a newer one. A change is one of what clients see of a harness and act on: its revision, availability, certification, whether it is
// enabled, and the version found. Health is part of it, though not of the revision. Changes in quick succession may be
// seen as one.
func (c *Catalog) Latest() Change {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.latest
}

// Watch calls f after each change from now on. f must not block, nor call the Catalog. Register, then look, then wait.
// release ends it.
func (c *Catalog) Watch(f func()) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches[&f] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watches, &f)
	}
}

// shown is what a change is told by.
type shown struct {
	revision       string
	availability   harness.Availability
	certification  harness.Certification
	enabled        bool
	harnessVersion string
}

func shownOf(entries map[string]Entry) map[string]shown {
	out := make(map[string]shown, len(entries))
	for id, e := range entries {
		out[id] = shown{e.Revision, e.Availability, e.Certification, e.Enabled, e.HarnessVersion}
	}
	return out
}

// replace makes entries the catalog, and tells whoever waits where that is a change.
func (c *Catalog) replace(entries map[string]Entry) (before map[string]Entry) {
	overall := overallRevision(entries)
	c.mu.Lock()
	defer c.mu.Unlock()
	before = c.entries
	c.entries, c.overall = entries, overall
	if before != nil && maps.Equal(shownOf(before), shownOf(entries)) {
		return before
	}
	c.latest = Change{Revision: overall, At: c.now()}
	for f := range c.watches {
		(*f)()
	}
	return before
}
