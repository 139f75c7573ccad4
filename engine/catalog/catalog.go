// Package catalog is what agents may run on: the registered harnesses under the operator's policy, what was found of
// them on this machine, a revision of everything that can change a validation, and the report of a draft.
package catalog

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// Defaults of Options.
const (
	DefaultProbeInterval = 30 * time.Second
	DefaultProbeTimeout  = 15 * time.Second
)

// Policy is the operator's word. The zero value lets nothing run that is not certified.
type Policy struct {
	// AllowExperimental lets agents use harnesses without certification evidence.
	AllowExperimental bool
	// Allowed lists the harnesses that agents may use; empty: all that are registered.
	Allowed []string
	// Disabled lists harnesses that agents may not use. It wins over Allowed.
	Disabled []string
	// Providers lists the model providers that have an upstream; nil: not known, nothing is refused for it.
	Providers []string
	// ExtraModels adds models to those of a harness's descriptor, by harness id: a gateway's own names, for instance.
	ExtraModels map[string][]harness.Model
}

// Options configure a Catalog. Adapters are required.
type Options struct {
	Adapters      []harness.Adapter
	Policy        Policy
	ProbeInterval time.Duration    // 0: DefaultProbeInterval
	ProbeTimeout  time.Duration    // of one probe; 0: DefaultProbeTimeout
	Now           func() time.Time // nil: time.Now
	Logger        *slog.Logger     // nil: slog.Default()
}

// Entry is one harness as the catalog shows it. Its maps and slices are shared: read only.
type Entry struct {
	Descriptor     harness.Descriptor // with the operator's extra models
	Availability   harness.Availability
	Detail         string // for an admin: what is missing and how to get it
	HarnessVersion string // as found on this machine; empty where unknown
	Certification  harness.Certification
	Enabled        bool   // the policy lets agents use it
	Reason         string // why it is not enabled
	Revision       string // of everything about it that can change a validation
	ProbedAt       time.Time
}

// registered is one adapter with what never changes about it.
type registered struct {
	adapter harness.Adapter
	entry   Entry // without what a probe finds
	options *optionsSchema
}

// Catalog is safe for concurrent use.
type Catalog struct {
	policy   Policy
	interval time.Duration
	timeout  time.Duration
	now      func() time.Time
	logger   *slog.Logger
	ids      []string // in order of registration
	known    map[string]*registered

	mu      sync.RWMutex
	entries map[string]Entry
	overall string
	latest  Change
	watches map[*func()]struct{}
}

// New registers the adapters and probes them once. A descriptor that breaks its contract is an error: it is a mistake
// of the build, not of the machine.
func New(ctx context.Context, o Options) (*Catalog, error) {
	c := &Catalog{
		policy: o.Policy, interval: o.ProbeInterval, timeout: o.ProbeTimeout, now: o.Now, logger: o.Logger,
		known: map[string]*registered{}, watches: map[*func()]struct{}{},
	}
	if c.interval <= 0 {
		c.interval = DefaultProbeInterval
	}
	if c.timeout <= 0 {
		c.timeout = DefaultProbeTimeout
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	for _, a := range o.Adapters {
		r, err := c.register(a)
		if err != nil {
			return nil, err
		}
		c.known[r.entry.Descriptor.ID] = r
		c.ids = append(c.ids, r.entry.Descriptor.ID)
	}
	for _, name := range slices.Concat(o.Policy.Allowed, o.Policy.Disabled, slices.Sorted(maps.Keys(o.Policy.ExtraModels))) {
		if c.known[name] == nil {
			c.logger.WarnContext(ctx, "the policy names a harness that is not registered", "harness", name)
		}
	}
	c.Refresh(ctx)
	return c, nil
}

func (c *Catalog) register(a harness.Adapter) (*registered, error) {
	d := a.Descriptor()
	if err := checkDescriptor(d); err != nil {
		return nil, fmt.Errorf("failed to register harness %q: %w", d.ID, err)
	}
	if c.known[d.ID] != nil {
		return nil, fmt.Errorf("failed to register harness %q: the id is registered twice", d.ID)
	}
	options, err := compileOptions(d.OptionsSchema)
	if err != nil {
		return nil, fmt.Errorf("failed to register harness %q: %w", d.ID, err)
	}
	d.Models = append(slices.Clone(d.Models), c.policy.ExtraModels[d.ID]...)
	if _, err := canonical(d); err != nil {
		return nil, fmt.Errorf("failed to register harness %q: its descriptor has no canonical form: %w", d.ID, err)
	}
	e := Entry{Descriptor: d, Certification: harness.Experimental}
	e.Enabled, e.Reason = c.policy.admits(d.ID, e.Certification)
	return &registered{adapter: a, entry: e, options: options}, nil
}

// admits says whether agents may use the harness, and why not.
func (p Policy) admits(id string, c harness.Certification) (bool, string) {
	switch {
	case slices.Contains(p.Disabled, id):
		return false, "the operator disabled it"
	case len(p.Allowed) > 0 && !slices.Contains(p.Allowed, id):
		return false, "the operator allows only other harnesses"
	case c == harness.Blocked:
		return false, "its certification is blocked"
	case c == harness.Experimental && !p.AllowExperimental:
		return false, "it is experimental, and the operator allows only certified harnesses"
	}
	return true, ""
}

// Run refreshes on a timer until ctx ends.
func (c *Catalog) Run(ctx context.Context) {
	ticker := time.NewTicker(c.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.Refresh(ctx)
		}
	}
}

// Refresh probes every harness at once, each within the probe timeout. A harness that the policy does not admit is
// not probed: nothing of it should run.
func (c *Catalog) Refresh(ctx context.Context) {
	fresh := make([]Entry, len(c.ids))
	var wg sync.WaitGroup
	for i, id := range c.ids {
		wg.Go(func() { fresh[i] = c.probe(ctx, c.known[id]) })
	}
	wg.Wait()
	if ctx.Err() != nil && c.Revision() != "" {
		return // what a cancelled probe says is about the cancel
	}
	entries := make(map[string]Entry, len(fresh))
	for i, e := range fresh {
		e.Revision = entryRevision(e, c.policy)
		entries[c.ids[i]] = e
	}
	before := c.replace(entries)
	for id, e := range entries {
		if old, ok := before[id]; !ok || old.Availability != e.Availability {
			c.logger.InfoContext(ctx, "harness", "id", id, "availability", e.Availability, "enabled", e.Enabled, "detail", e.Detail)
		}
	}
}

// probe asks one adapter. An adapter that panics or does not answer in time is unhealthy.
func (c *Catalog) probe(ctx context.Context, r *registered) (e Entry) {
	e = r.entry
	e.ProbedAt = c.now()
	if !e.Enabled {
		e.Availability, e.Detail = harness.Disabled, e.Reason
		return e
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			c.logger.ErrorContext(ctx, "probe panicked", "harness", e.Descriptor.ID, "panic", p)
			e.Availability, e.Detail = harness.Unhealthy, "the probe failed; see the log"
		}
	}()
	found := r.adapter.Probe(ctx)
	e.Availability, e.Detail, e.HarnessVersion = found.Availability, found.Detail, found.HarnessVersion
	switch {
	case ctx.Err() != nil:
		e.Availability, e.Detail = harness.Unhealthy, fmt.Sprintf("the probe gave no answer within %v", c.timeout)
	case !slices.Contains(availabilities, e.Availability):
		e.Availability, e.Detail = harness.Unhealthy, "the probe gave no known availability"
	}
	return e
}

var availabilities = []harness.Availability{
	harness.Available, harness.Disabled, harness.DependencyMissing, harness.Misconfigured, harness.Unhealthy,
}

// Entries lists every registered harness in order of registration, whatever its state.
func (c *Catalog) Entries() []Entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]Entry, len(c.ids))
	for i, id := range c.ids {
		out[i] = c.entries[id]
	}
	return out
}

// Entry returns one harness; an empty id is the default harness.
func (c *Catalog) Entry(id string) (Entry, bool) {
	if id == "" {
		id = harness.Default
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	e, ok := c.entries[id]
	return e, ok
}

// DefaultModel is what an agent that names no model gets: the first model of the harness whose provider has an
// upstream. It is empty where there is none, and the harness then takes its own default.
func (c *Catalog) DefaultModel(id string) harness.ModelRef {
	e, _ := c.Entry(id)
	for _, m := range e.Descriptor.Models {
		if c.reachable(m.Provider) {
			return harness.ModelRef{Provider: m.Provider, ID: m.ID}
		}
	}
	return harness.ModelRef{}
}

// Descriptor returns false for an unknown harness.
func (c *Catalog) Descriptor(id string) (harness.Descriptor, bool) {
	e, ok := c.Entry(id)
	return e.Descriptor, ok
}
