package catalog

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// adapter is a harness of the tests, with whatever probe they want.
type adapter struct {
	descriptor harness.Descriptor
	found      atomic.Value // harness.Probe
	probe      func(ctx context.Context) harness.Probe
	probes     atomic.Int64
}

func (a *adapter) Descriptor() harness.Descriptor { return a.descriptor }

func (a *adapter) Probe(ctx context.Context) harness.Probe {
	a.probes.Add(1)
	if a.probe != nil {
		return a.probe(ctx)
	}
	return a.found.Load().(harness.Probe)
}

func (a *adapter) is(v harness.Availability) { a.found.Store(harness.Probe{Availability: v}) }

const schema = `{"type":"object","additionalProperties":false,"properties":{
	"temperature":{"type":"number","minimum":0,"maximum":2},
	"effort":{"enum":["low","high"]},
	"stop":{"type":"array","maxItems":2,"items":{"type":"string","maxLength":5}},
	"retry":{"type":"object","additionalProperties":false,"required":["times"],"properties":{"times":{"type":"integer"}}},
	"mode":{"anyOf":[{"const":"a"},{"type":"integer"}]},
	"tag":{"type":"string","pattern":"^[a-z]+$"}}}`

func descriptor(id string) harness.Descriptor {
	return harness.Descriptor{
		ID: id, DisplayName: strings.ToUpper(id), AdapterVersion: "1.0.0", HarnessVersion: "1.2.3", ContractVersions: []int{1},
		ExecutionMode: harness.ExecutionSandbox, OptionsSchema: json.RawMessage(schema),
		Profiles: []harness.Profile{{ID: "fast", Name: "Fast"}},
		Models:   []harness.Model{{Provider: "anthropic", ID: "claude", Name: "Claude"}, {Provider: "openai", ID: "gpt", Name: "GPT"}},
		Capabilities: map[harness.Capability]harness.Level{
			harness.StreamText: harness.Native, harness.SessionMultiTurn: harness.Emulated, harness.RuntimeCancel: harness.Native,
			harness.ThreadDurableCommit: harness.Native,
		},
	}
}

func newAdapter(id string) *adapter {
	a := &adapter{descriptor: descriptor(id)}
	a.is(harness.Available)
	return a
}

var open = Policy{AllowExperimental: true}

func newCatalog(t *testing.T, p Policy, adapters ...harness.Adapter) *Catalog {
	t.Helper()
	c, err := New(t.Context(), Options{Adapters: adapters, Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func blueprint(change func(*agent.Blueprint)) agent.Blueprint {
	b := agent.Blueprint{Name: "A", Slug: "a", Harness: agent.Harness{ID: "one"}, Model: agent.Model{Policy: agent.ModelHarnessDefault}}
	if change != nil {
		change(&b)
	}
	return b
}

func TestDefaultModel(t *testing.T) {
	for _, c := range []struct {
		providers []string
		ask       string
		want      harness.ModelRef
	}{
		{nil, "one", harness.ModelRef{Provider: "anthropic", ID: "claude"}},
		{[]string{"anthropic", "openai"}, "one", harness.ModelRef{Provider: "anthropic", ID: "claude"}},
		{[]string{"openai"}, "one", harness.ModelRef{Provider: "openai", ID: "gpt"}},
		{[]string{}, "one", harness.ModelRef{}},
		{nil, "unknown", harness.ModelRef{}},
	} {
		catalog := newCatalog(t, Policy{AllowExperimental: true, Providers: c.providers}, newAdapter("one"))
		if got := catalog.DefaultModel(c.ask); got != c.want {
			t.Errorf("default model of %s with %v: %+v, want %+v", c.ask, c.providers, got, c.want)
		}
	}
}

func TestPolicyAndGate(t *testing.T) {
	for _, c := range []struct {
		name    string
		policy  Policy
		found   harness.Availability
		ask     string
		want    problem.Code // empty: ready
		enabled bool
	}{
		{"open", open, harness.Available, "one", "", true},
		{"unknown", open, harness.Available, "two", problem.HarnessUnknown, true},
		{"nothing certified, experimental not allowed", Policy{}, harness.Available, "one", problem.HarnessDisabled, false},
		{"disabled", Policy{AllowExperimental: true, Disabled: []string{"one"}}, harness.Available, "one", problem.HarnessDisabled, false},
		{"disabled and allowed", Policy{AllowExperimental: true, Allowed: []string{"one"}, Disabled: []string{"one"}}, harness.Available, "one", problem.HarnessDisabled, false},
		{"allowed", Policy{AllowExperimental: true, Allowed: []string{"one"}}, harness.Available, "one", "", true},
		{"not among the allowed", Policy{AllowExperimental: true, Allowed: []string{"two"}}, harness.Available, "one", problem.HarnessDisabled, false},
		{"missing", open, harness.DependencyMissing, "one", problem.HarnessUnavailable, true},
		{"misconfigured", open, harness.Misconfigured, "one", problem.HarnessUnavailable, true},
		{"unhealthy", open, harness.Unhealthy, "one", problem.HarnessUnavailable, true},
		{"says disabled itself", open, harness.Disabled, "one", problem.HarnessDisabled, true},
		{"says nonsense", open, "FINE", "one", problem.HarnessUnavailable, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAdapter("one")
			a.found.Store(harness.Probe{Availability: c.found, Detail: "secret detail"})
			cat := newCatalog(t, c.policy, a)
			err := cat.Ready(t.Context(), c.ask)
			if c.want == "" && err != nil || c.want != "" && !problem.Is(err, c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the detail leaks: %v", err)
			}
			e := cat.Entries()[0]
			if e.Enabled != c.enabled || e.Certification != harness.Experimental || (e.Reason == "") != c.enabled {
				t.Errorf("entry %+v", e)
			}
			if !c.enabled && (a.probes.Load() != 0 || e.Availability != harness.Disabled) {
				t.Errorf("a harness that is not admitted was probed %d times and is %s", a.probes.Load(), e.Availability)
			}
		})
	}
}

func TestAnEmptyIDIsTheDefaultHarness(t *testing.T) {
	c := newCatalog(t, open, newAdapter("one"))
	if err := c.Ready(t.Context(), ""); !problem.Is(err, problem.HarnessUnknown) {
		t.Errorf("the default is not registered, yet: %v", err)
	}
	c = newCatalog(t, open, newAdapter("one"), newAdapter(harness.Default))
	if err := c.Ready(t.Context(), ""); err != nil {
		t.Error(err)
	}
	if d, ok := c.Descriptor(""); !ok || d.ID != harness.Default || c.HarnessRevision("") != c.HarnessRevision(harness.Default) {
		t.Errorf("got %v, %v", d.ID, ok)
	}
}

func TestProbesThatPanicOrHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, slow := newAdapter("broken"), newAdapter("slow")
		broken.probe = func(context.Context) harness.Probe { panic("boom") }
		slow.probe = func(ctx context.Context) harness.Probe {
			<-ctx.Done()
			return harness.Probe{Availability: harness.DependencyMissing, Detail: "killed"} // what a cut probe would say
		}
		began := time.Now()
		c, err := New(t.Context(), Options{Adapters: []harness.Adapter{broken, slow, newAdapter("one")}, Policy: open, ProbeTimeout: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
		for id, want := range map[string]harness.Availability{"broken": harness.Unhealthy, "slow": harness.Unhealthy, "one": harness.Available} {
			if e, _ := c.Entry(id); e.Availability != want {
				t.Errorf("%s is %s: %s", id, e.Availability, e.Detail)
			}
		}
	})
}

func TestRunRefreshesAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdapter("one")
		c, err := New(t.Context(), Options{Adapters: []harness.Adapter{a}, Policy: open, ProbeInterval: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); c.Run(ctx) }()
		a.is(harness.DependencyMissing)
		if err := c.Ready(ctx, "one"); err != nil {
			t.Errorf("before the timer: %v", err)
		}
		time.Sleep(10*time.Second + time.Millisecond) // the bubble's clock
		synctest.Wait()
		if err := c.Ready(ctx, "one"); !problem.Is(err, problem.HarnessUnavailable) {
			t.Errorf("after the timer: %v", err)
		}
		stop()
		<-done
	})
}

func TestACancelledRefreshChangesNothing(t *testing.T) {
	a := newAdapter("one")
	a.probe = func(ctx context.Context) harness.Probe {
		if ctx.Err() != nil {
			return harness.Probe{Availability: harness.DependencyMissing}
		}
		return harness.Probe{Availability: harness.Available}
	}
	c := newCatalog(t, open, a)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	c.Refresh(ctx)
	if err := c.Ready(t.Context(), "one"); err != nil {
		t.Error(err)
	}
}

// TestRevisions: what can change a validation changes the revision of its harness and the one over all, and nothing
// else does.
func TestRevisions(t *testing.T) {
	base := func() (Policy, *adapter, *adapter) { return open, newAdapter("one"), newAdapter("two") }
	p, one, two := base()
	c := newCatalog(t, p, one, two)
	oneRev, twoRev, all := c.HarnessRevision("one"), c.HarnessRevision("two"), c.Revision()
	if len(all) != 64 || oneRev == twoRev || c.HarnessRevision("three") == c.HarnessRevision("four") {
		t.Fatalf("revisions %s %s %s", oneRev, twoRev, all)
	}
	for _, x := range []struct {
		name    string
		change  func(p *Policy, one *adapter)
		changes bool
	}{
		{"nothing", func(*Policy, *adapter) {}, false},
		{"health", func(_ *Policy, a *adapter) { a.is(harness.Unhealthy) }, false},
		{"probe detail and found version", func(_ *Policy, a *adapter) {
			a.found.Store(harness.Probe{Availability: harness.Available, Detail: "x", HarnessVersion: "9"})
		}, false},
		{"order of the policy's lists", func(p *Policy, _ *adapter) { p.Allowed = []string{"two", "one"} }, false},
		{"missing", func(_ *Policy, a *adapter) { a.is(harness.DependencyMissing) }, true},
		{"misconfigured", func(_ *Policy, a *adapter) { a.is(harness.Misconfigured) }, true},
		{"disabled", func(p *Policy, _ *adapter) { p.Disabled = []string{"one"} }, true},
		{"capability", func(_ *Policy, a *adapter) { a.descriptor.Capabilities[harness.Skills] = harness.Native }, true},
		{"model", func(_ *Policy, a *adapter) { a.descriptor.Models = a.descriptor.Models[:1] }, true},
		{"operator's model", func(p *Policy, _ *adapter) {
			p.ExtraModels = map[string][]harness.Model{"one": {{Provider: "openai", ID: "x", Name: "X"}}}
		}, true},
		{"schema", func(_ *Policy, a *adapter) { a.descriptor.OptionsSchema = nil }, true},
		{"adapter version", func(_ *Policy, a *adapter) { a.descriptor.AdapterVersion = "2" }, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			p, one, two := base()
			x.change(&p, one)
			c := newCatalog(t, p, one, two)
			if got := c.HarnessRevision("one") != oneRev; got != x.changes {
				t.Errorf("its revision changed: %v", got)
			}
			if got := c.Revision() != all; got != x.changes {
				t.Errorf("the overall revision changed: %v", got)
			}
			if c.HarnessRevision("two") != twoRev {
				t.Error("the other harness's revision changed")
			}
		})
	}
	p, one, two = base()
	p.Providers = []string{"openai", "anthropic"}
	before := newCatalog(t, p, one, two)
	p.Providers = []string{"anthropic", "openai"}
	same := newCatalog(t, p, one, two)
	p.Providers = []string{}
	nothing := newCatalog(t, p, one, two)
	if before.Revision() != same.Revision() || before.Revision() == nothing.Revision() || nothing.Revision() == all {
		t.Error("the providers are not in the revision as they should be")
	}
}
