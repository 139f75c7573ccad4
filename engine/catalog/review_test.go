package catalog

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/harness"
)

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
	tools := func(approval harness.Level) func(*Policy, *adapter) {
		return func(_ *Policy, a *adapter) {
			a.descriptor.Capabilities[harness.ToolMCP], a.descriptor.Capabilities[harness.InterruptToolApproval] = harness.Native, approval
		}
	}
	approval := func(p harness.ApprovalPolicy) func(*agent.Blueprint) {
		return func(b *agent.Blueprint) { b.Tools.Approval = p }
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
		{name: "no tools, nothing to ask about", draft: approval(harness.ApproveAlways), valid: true},
		{name: "asks", setup: tools(harness.Native), draft: approval(harness.ApproveAlways), valid: true},
		{name: "cannot ask, always", setup: tools(harness.Unsupported), draft: approval(harness.ApproveAlways),
			issues: "tools.approval CAPABILITY_UNSUPPORTED ERROR", fix: `tools.approval="NEVER"`},
		{name: "cannot ask, sensitive", setup: tools(harness.Unsupported), draft: approval(harness.ApproveSensitive),
			issues: "tools.approval CAPABILITY_UNSUPPORTED ERROR", fix: `tools.approval="NEVER"`},
		{name: "cannot ask, by default", setup: tools(harness.Unsupported), issues: "tools.approval CAPABILITY_UNSUPPORTED ERROR"},
		{name: "cannot ask, never", setup: tools(harness.Unsupported), draft: approval(harness.ApproveNever), valid: true},
		{name: "asks by emulation", setup: tools(harness.Emulated), issues: "tools.approval CAPABILITY_EMULATED INFO", valid: true},
		{name: "asks by emulation, never", setup: tools(harness.Emulated), draft: approval(harness.ApproveNever), valid: true},
		{name: "built-in tools count", setup: func(_ *Policy, a *adapter) { a.descriptor.Capabilities[harness.ToolBuiltin] = harness.Emulated },
			issues: "tools.approval CAPABILITY_UNSUPPORTED ERROR"},
		{name: "tools that cannot run ask nobody", setup: func(p *Policy, a *adapter) { tools(harness.Native)(p, a); a.is(harness.DependencyMissing) },
			issues: "harness.id HARNESS_UNAVAILABLE ERROR"},
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
