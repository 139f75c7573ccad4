package sandbox

import (
	"fmt"
	"slices"
	"time"

	"github.com/harness-engine/harness-engine/worker"
)

// Profile is an operator's way to run harnesses: which backend, with which limits. Agents name a profile at most;
// nothing in it is theirs to set.
type Profile struct {
	ID           string
	Harnesses    []string      // that it serves; empty is all
	Backend      string        // name of a backend of the manager
	OrphanTTL    time.Duration // how long a worker lives without an engine; 0 is worker.DefaultOrphanTTL
	ParkedTTL    time.Duration // the same while a person is waited for; 0 is worker.DefaultParkedTTL
	StartTimeout time.Duration // for the worker to listen; 0 is 30 s
	Limits       worker.Limits // of each binding
}

const defaultStartTimeout = 30 * time.Second

func (p Profile) serves(harness string) bool {
	return len(p.Harnesses) == 0 || slices.Contains(p.Harnesses, harness)
}

// normalised fills in defaults and refuses what cannot work.
func (p Profile) normalised(backends map[string]Backend) (Profile, error) {
	switch {
	case p.ID == "":
		return p, fmt.Errorf("failed to read sandbox profile: it has no id")
	case backends[p.Backend] == nil:
		return p, fmt.Errorf("failed to read sandbox profile %s: no backend %q", p.ID, p.Backend)
	case p.OrphanTTL < 0 || p.ParkedTTL < 0 || p.StartTimeout < 0:
		return p, fmt.Errorf("failed to read sandbox profile %s: a time is negative", p.ID)
	}
	if p.OrphanTTL == 0 {
		p.OrphanTTL = worker.DefaultOrphanTTL
	}
	if p.ParkedTTL == 0 {
		p.ParkedTTL = worker.DefaultParkedTTL
	}
	if p.StartTimeout == 0 {
		p.StartTimeout = defaultStartTimeout
	}
	return p, nil
}
