package catalog

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// Who follows the catalog is told what changes for clients, and nothing else.
func TestLatestTellsWhatChanges(t *testing.T) {
	for _, x := range []struct {
		name    string
		found   harness.Probe
		changes bool
	}{
		{"nothing", harness.Probe{Availability: harness.Available}, false},
		{"the detail", harness.Probe{Availability: harness.Available, Detail: "x"}, false},
		{"health", harness.Probe{Availability: harness.Unhealthy}, true},
		{"missing", harness.Probe{Availability: harness.DependencyMissing}, true},
		{"the version found", harness.Probe{Availability: harness.Available, HarnessVersion: "9"}, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAdapter("one")
				c, err := New(t.Context(), Options{Adapters: []harness.Adapter{a, newAdapter("two")}, Policy: open, ProbeInterval: 10 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); c.Run(ctx) }()
				defer func() { stop(); <-done }()
				first, told := c.Latest(), false
				defer c.Watch(func() { told = true })()
				if first.Revision != c.Revision() || !first.At.Equal(time.Now()) {
					t.Errorf("at first %+v", first)
				}
				a.found.Store(x.found)
				time.Sleep(10*time.Second + time.Millisecond) // the bubble's clock
				synctest.Wait()
				if told != x.changes {
					t.Errorf("told: %v", told)
				}
				latest := c.Latest()
				if latest.Revision != c.Revision() || latest.At.After(first.At) != x.changes {
					t.Errorf("then %+v, first %+v", latest, first)
				}
			})
		})
	}
}
