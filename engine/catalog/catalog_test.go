package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
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

func TestReview(t *testing.T) {
	find := func(issues []agent.Issue, path, code string) *agent.Issue {
		i := slices.IndexFunc(issues, func(i agent.Issue) bool { return i.Path == path && i.Code == code })
		if i < 0 {
			return nil
		}
		return &issues[i]
	}
	options := func(s string) func(*agent.Blueprint) {
		return func(b *agent.Blueprint) { b.Harness.Options = json.RawMessage(s) }
	}
	model := func(provider, id string) func(*agent.Blueprint) {
		return func(b *agent.Blueprint) {
			b.Model = agent.Model{Policy: agent.ModelConfigured, Provider: provider, ID: id}
		}
	}
	without := func(c harness.Capability) func(*Policy, *adapter) {
		return func(_ *Policy, a *adapter) { a.descriptor.Capabilities[c] = harness.Unsupported }
	}
	found := func(v harness.Availability) func(*Policy, *adapter) {
		return func(_ *Policy, a *adapter) { a.is(v) }
	}
	for _, c := range []struct {
		name   string
		setup  func(*Policy, *adapter)
		draft  func(*agent.Blueprint)
		valid  bool
		issues string // path code severity, beside HARNESS_EXPERIMENTAL
		fix    string // a fix of the first of them: path=value
	}{
		{name: "good", valid: true},
		{name: "good options", draft: options(`{"temperature":1,"effort":"low","stop":["a"],"retry":{"times":2},"mode":"a","tag":"x"}`), valid: true},
		{name: "profile", draft: func(b *agent.Blueprint) { b.Harness.ProfileID = "fast" }, valid: true},
		{name: "model", draft: model("anthropic", "claude"), valid: true},
		{name: "operator's model", setup: func(p *Policy, _ *adapter) {
			p.ExtraModels = map[string][]harness.Model{"one": {{Provider: "openai", ID: "house", Name: "House"}}}
		}, draft: model("openai", "house"), valid: true},
		{name: "unknown harness", draft: func(b *agent.Blueprint) { b.Harness.ID = "gone" },
			issues: "harness.id HARNESS_UNKNOWN ERROR", fix: `harness.id="one"`},
		{name: "default that is not registered", draft: func(b *agent.Blueprint) { b.Harness.ID = "" },
			issues: "harness.id HARNESS_UNKNOWN ERROR", fix: `harness.id="one"`},
		{name: "disabled", setup: func(p *Policy, _ *adapter) { p.Disabled = []string{"one"} },
			issues: "harness.id HARNESS_DISABLED ERROR", fix: `harness.id="two"`},
		{name: "missing", setup: found(harness.DependencyMissing), issues: "harness.id HARNESS_UNAVAILABLE ERROR", fix: `harness.id="two"`},
		{name: "unhealthy", setup: found(harness.Unhealthy), issues: "harness.id HARNESS_UNAVAILABLE WARNING", valid: true},
		{name: "profile unknown", draft: func(b *agent.Blueprint) { b.Harness.ProfileID = "slow" },
			issues: "harness.profileId PROFILE_UNKNOWN ERROR", fix: `harness.profileId="fast"`},
		{name: "unknown option", draft: options(`{"temprature":1}`), issues: "harness.options.temprature OPTION_INVALID ERROR", fix: `harness.options.temprature=null`},
		{name: "unknown options, one with dots", draft: options(`{"a.b":1,"z":1}`),
			issues: `harness.options.z OPTION_INVALID ERROR,harness.options["a.b"] OPTION_INVALID ERROR`},
		{name: "unknown option, deep", draft: options(`{"retry":{"times":1,"x":1}}`), issues: "harness.options.retry.x OPTION_INVALID ERROR"},
		{name: "missing option, deep", draft: options(`{"retry":{}}`), issues: "harness.options.retry.times OPTION_INVALID ERROR"},
		{name: "several at once", draft: options(`{"temperature":3,"effort":"medium","stop":["a","toolong"]}`),
			issues: "harness.options.effort OPTION_INVALID ERROR,harness.options.stop[1] OPTION_INVALID ERROR,harness.options.temperature OPTION_INVALID ERROR"},
		{name: "wrong type", draft: options(`{"temperature":"hot"}`), issues: "harness.options.temperature OPTION_INVALID ERROR"},
		{name: "too many items", draft: options(`{"stop":["a","b","c"]}`), issues: "harness.options.stop OPTION_INVALID ERROR"},
		{name: "no form fits", draft: options(`{"mode":"b"}`), issues: "harness.options.mode OPTION_INVALID ERROR"},
		{name: "credential in an option", draft: options(`{"tag":"AKIAIOSFODNN7EXAMPLE"}`),
			issues: "harness.options.tag OPTION_INVALID ERROR,harness.options.tag SECRET_SHAPED ERROR"},
		{name: "provider unknown", draft: model("acme", "x"), issues: "model.provider MODEL_UNKNOWN ERROR",
			fix: `model={"policy":"CONFIGURED","provider":"anthropic","id":"claude"}`},
		{name: "model unknown", draft: model("openai", "x"), issues: "model.id MODEL_UNKNOWN ERROR",
			fix: `model={"policy":"CONFIGURED","provider":"openai","id":"gpt"}`},
		{name: "provider not configured", setup: func(p *Policy, _ *adapter) { p.Providers = []string{"anthropic"} }, draft: model("openai", "gpt"),
			issues: "model.provider MODEL_UNAVAILABLE ERROR", fix: `model={"policy":"CONFIGURED","provider":"anthropic","id":"claude"}`},
		{name: "model that nobody asked for", draft: func(b *agent.Blueprint) { b.Model.ID = "claude" },
			issues: "model.policy MODEL_IGNORED ERROR", fix: `model={"policy":"HARNESS_DEFAULT"}`},
		{name: "cannot stream", setup: without(harness.StreamText), issues: "harness.id CAPABILITY_UNSUPPORTED ERROR"},
		{name: "cannot be stopped, no limit", setup: without(harness.RuntimeCancel), valid: true},
		{name: "cannot be stopped, limit", setup: without(harness.RuntimeCancel), draft: func(b *agent.Blueprint) { b.Limits.MaxRunSeconds = 5 },
			issues: "limits.maxRunSeconds CAPABILITY_UNSUPPORTED ERROR", fix: "limits.maxRunSeconds=null"},
		{name: "forgets", setup: without(harness.SessionMultiTurn), issues: "harness.id CAPABILITY_UNSUPPORTED WARNING", valid: true},
		{name: "keeps locally", setup: without(harness.ThreadDurableCommit), issues: "harness.id CAPABILITY_UNSUPPORTED INFO", valid: true},
		{name: "unknown variable", draft: func(b *agent.Blueprint) { b.Prompt.System = "{{who}}" }, issues: "prompt.system PROMPT_INVALID ERROR"},
		{name: "unused variable", draft: func(b *agent.Blueprint) { b.Prompt.Variables = map[string]string{"who": "x"} },
			issues: "prompt.variables.who VARIABLE_UNUSED INFO", valid: true},
		{name: "direction marks", draft: func(b *agent.Blueprint) { b.Prompt.System = "a\u202eb" }, issues: "prompt.system DIRECTION_MARKS WARNING", valid: true},
		{name: "credential in the prompt", draft: func(b *agent.Blueprint) { b.Prompt.System = "AKIAIOSFODNN7EXAMPLE" }, issues: "prompt.system SECRET_SHAPED ERROR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, one := open, newAdapter("one")
			if c.setup != nil {
				c.setup(&p, one)
			}
			cat := newCatalog(t, p, one, newAdapter("two"))
			b := blueprint(c.draft)
			r := cat.Review(t.Context(), b)
			var got []string
			for _, i := range r.Issues {
				if i.Step == "" || i.Message == "" || strings.Contains(i.Message, "AKIA") {
					t.Errorf("issue %+v", i)
				}
				if i.Code != CodeHarnessExperimental {
					got = append(got, fmt.Sprint(i.Path, " ", i.Code, " ", i.Severity))
				}
			}
			if s := strings.Join(got, ","); s != c.issues || r.Valid != c.valid {
				t.Errorf("got  %s (valid %v)\nwant %s (valid %v)", s, r.Valid, c.issues, c.valid)
			}
			if !reflect.DeepEqual(r.Normalised, b) {
				t.Errorf("the draft was changed: %+v", r.Normalised)
			}
			if r.CatalogRevision != cat.HarnessRevision(b.Harness.ID) {
				t.Error("the report bears another revision")
			}
			if c.fix != "" {
				path, code, _ := strings.Cut(c.issues, " ")
				code, _, _ = strings.Cut(code, " ")
				i := find(r.Issues, path, code)
				if i == nil || !slices.ContainsFunc(i.Fixes, func(f agent.Fix) bool { return f.Path+"="+string(f.Value) == c.fix }) {
					t.Errorf("no fix %s in %+v", c.fix, i)
				}
			}
		})
	}
}

func TestEffectiveCapabilities(t *testing.T) {
	a := newAdapter("one")
	c := newCatalog(t, open, a)
	r := c.Review(t.Context(), blueprint(nil))
	if len(r.Capabilities) != len(harness.Capabilities) || r.Capabilities[harness.StreamText] != harness.Native || r.Capabilities[harness.Skills] != harness.Unsupported {
		t.Errorf("got %v", r.Capabilities)
	}
	a.is(harness.DependencyMissing)
	c.Refresh(t.Context())
	r = c.Review(t.Context(), blueprint(nil))
	if r.Capabilities[harness.StreamText] != harness.Unavailable || r.Capabilities[harness.Skills] != harness.Unsupported {
		t.Errorf("on a machine without it: %v", r.Capabilities)
	}
}

func TestDescriptorsAreChecked(t *testing.T) {
	for name, change := range map[string]func(*harness.Descriptor){
		"id":                func(d *harness.Descriptor) { d.ID = "One" },
		"contract":          func(d *harness.Descriptor) { d.ContractVersions = []int{2} },
		"mode":              func(d *harness.Descriptor) { d.ExecutionMode = "CLOUD" },
		"no version":        func(d *harness.Descriptor) { d.HarnessVersion = "" },
		"markup":            func(d *harness.Descriptor) { d.Description = "<script>alert(1)</script>" },
		"script URL":        func(d *harness.Descriptor) { d.SupplyChain.Licence = "javascript:x" },
		"control character": func(d *harness.Descriptor) { d.DisplayName = "a\x1b[2J" },
		"bidirectional":     func(d *harness.Descriptor) { d.DisplayName = "a\u202eb" },
		"too long":          func(d *harness.Descriptor) { d.Description = strings.Repeat("x", maxTextChars+1) },
		"profile":           func(d *harness.Descriptor) { d.Profiles[0].ID = "/bin/sh" },
		"provider":          func(d *harness.Descriptor) { d.Models[0].Provider = "" },
		"capability":        func(d *harness.Descriptor) { d.Capabilities["fly"] = harness.Native },
		"level":             func(d *harness.Descriptor) { d.Capabilities[harness.Skills] = "SOME" },
		"schema is broken":  func(d *harness.Descriptor) { d.OptionsSchema = json.RawMessage(`{`) },
		"schema has a key twice": func(d *harness.Descriptor) {
			d.OptionsSchema = json.RawMessage(`{"type":"object","type":"object","additionalProperties":false}`)
		},
		"schema of a list": func(d *harness.Descriptor) { d.OptionsSchema = json.RawMessage(`{"type":"array"}`) },
		"schema is open":   func(d *harness.Descriptor) { d.OptionsSchema = json.RawMessage(`{"type":"object"}`) },
		"schema is open, deep": func(d *harness.Descriptor) {
			d.OptionsSchema = json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"a":{"items":{"type":"object","properties":{"b":{}}}}}}`)
		},
		"schema refers to a file": func(d *harness.Descriptor) {
			d.OptionsSchema = json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"a":{"$ref":"file:///etc/passwd"}}}`)
		},
		"schema refers to the network": func(d *harness.Descriptor) {
			d.OptionsSchema = json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"a":{"$ref":"http://127.0.0.1:1/x"}}}`)
		},
		"schema type": func(d *harness.Descriptor) {
			d.OptionsSchema = json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"a":{"type":"text"}}}`)
		},
	} {
		a := newAdapter("one")
		change(&a.descriptor)
		if _, err := New(t.Context(), Options{Adapters: []harness.Adapter{a}, Policy: open}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := New(t.Context(), Options{Adapters: []harness.Adapter{newAdapter("one"), newAdapter("one")}}); err == nil {
		t.Error("the same id twice: accepted")
	}
	a := newAdapter("one")
	a.descriptor.OptionsSchema = nil
	c := newCatalog(t, open, a)
	if r := c.Review(t.Context(), blueprint(func(b *agent.Blueprint) { b.Harness.Options = json.RawMessage(`{"x":1}`) })); r.Valid {
		t.Error("a harness without a schema takes options")
	}
}

func FuzzOptionsReview(f *testing.F) {
	s, err := compileOptions(json.RawMessage(schema))
	if err != nil {
		f.Fatal(err)
	}
	for _, o := range []string{`{}`, `{"retry":{"times":"x"}}`, `{"stop":[1,{"a":[]}]}`, `{"mode":null,"x":1}`, `[]`, `{"temperature":1e400}`, `{"temperature":1e-999999999}`} {
		f.Add([]byte(o))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, i := range s.review(raw) {
			if !strings.HasPrefix(i.Path, optionsPath) || i.Message == "" {
				t.Fatalf("%q: %+v", raw, i)
			}
		}
	})
}
