package deepagents

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/adapters/adaptertest"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// agentDir is the folder of the Node agent in this source tree.
var agentDir = filepath.Join("..", "..", "worker", "node")

func TestDescriptorIsComplete(t *testing.T) {
	a := New(Options{})
	if unsaid := adaptertest.Describes(t, a); len(unsaid) > 0 || a.Descriptor().ID != harness.Default {
		t.Errorf("id %q, nothing is said about %v", a.Descriptor().ID, unsaid)
	}
}

// TestThePackagesAreThoseThatAreLocked compares the supply-chain record with package.json and the lock file.
func TestThePackagesAreThoseThatAreLocked(t *testing.T) {
	direct, _ := adaptertest.Locked(t, agentDir, packages)
	recorded := map[string]string{}
	for _, p := range packages {
		at := strings.LastIndex(p, "@")
		recorded[p[:at]] = p[at+1:]
	}
	if !reflect.DeepEqual(recorded, direct) {
		t.Errorf("recorded %v\npackage.json %v", recorded, direct)
	}
}

func TestOptionsSchema(t *testing.T) {
	adaptertest.Options(t, optionsSchema, map[string]bool{
		`{}`:                  true,
		`{"temperature":0.5}`: true,
		`{"temperature":2,"maxTokens":200000,"recursionLimit":10,"requestTimeoutSeconds":600,"todoList":false,"requestInput":false}`: true,
		`{"thinkingBudgetTokens":2048,"maxTokens":4096}`: true,
		`{"thinkingBudgetTokens":2048}`:                  false,
		`{"temperature":2.1}`:                            false,
		`{"temperature":"1"}`:                            false,
		`{"maxTokens":0}`:                                false,
		`{"maxTokens":1.5}`:                              false,
		`{"recursionLimit":9}`:                           false,
		`{"command":"sh"}`:                               false,
		`[]`:                                             false,
	})
}

// TestTheAgentKnowsTheSameOptions reads what the Node agent accepts: an option that only one side knows would be
// refused, or ignored.
func TestTheAgentKnowsTheSameOptions(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	script := `import * as o from "./deepagents/options.mjs"; console.log(JSON.stringify(o))`
	cmd := exec.CommandContext(t.Context(), node, "--input-type=module", "-e", script)
	cmd.Dir = agentDir
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	type option struct {
		Type    string   `json:"type"`
		Min     *float64 `json:"min"`
		Max     *float64 `json:"max"`
		Default any      `json:"default"`
	}
	var agent struct {
		Options      map[string]option        `json:"OPTIONS"`
		DefaultModel harness.ModelRef         `json:"DEFAULT_MODEL"`
		Policies     []harness.ApprovalPolicy `json:"POLICIES"`
		Policy       harness.ApprovalPolicy   `json:"DEFAULT_POLICY"`
		Providers    []string                 `json:"PROVIDER_NAMES"`
	}
	if err := json.Unmarshal(out, &agent); err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties map[string]struct {
			Type    string   `json:"type"`
			Minimum *float64 `json:"minimum"`
			Maximum *float64 `json:"maximum"`
			Default any      `json:"default"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(optionsSchema, &schema); err != nil {
		t.Fatal(err)
	}
	shown := map[string]option{}
	for name, p := range schema.Properties {
		shown[name] = option{p.Type, p.Minimum, p.Maximum, p.Default}
	}
	if !reflect.DeepEqual(shown, agent.Options) {
		t.Errorf("schema %+v\nagent %+v", shown, agent.Options)
	}
	if first := (harness.ModelRef{Provider: models[0].Provider, ID: models[0].ID}); first != agent.DefaultModel {
		t.Errorf("first model %v, the agent's default is %v", first, agent.DefaultModel)
	}
	policies := []harness.ApprovalPolicy{harness.ApproveNever, harness.ApproveSensitive, harness.ApproveAlways}
	if !slices.Equal(agent.Policies, policies) || agent.Policy != harness.ApproveSensitive {
		t.Errorf("policies %v, default %s", agent.Policies, agent.Policy)
	}
	for _, m := range models {
		if !strings.Contains(strings.Join(agent.Providers, " "), m.Provider) {
			t.Errorf("the agent does not know the provider of %v", m)
		}
	}
}

func TestProbe(t *testing.T) {
	installed := func(t *testing.T, manifest string) string {
		return adaptertest.Folder(t, map[string]string{"deepagents/main.mjs": "", "node_modules/deepagents/package.json": manifest})
	}
	right := `{"version":"` + LibraryVersion + `"}`
	for name, tc := range map[string]struct {
		dir, node string
		want      harness.Availability
		detail    string
	}{
		"all there":       {installed(t, right), adaptertest.Program(t, "echo v22.1.0"), harness.Available, ""},
		"oldest node":     {installed(t, right), adaptertest.Program(t, "echo v20.0.0"), harness.Available, ""},
		"old node":        {installed(t, right), adaptertest.Program(t, "echo v18.20.1"), harness.DependencyMissing, "18"},
		"no node":         {installed(t, right), filepath.Join(t.TempDir(), "none"), harness.DependencyMissing, "npm ci"},
		"node fails":      {installed(t, right), adaptertest.Program(t, "exit 3"), harness.DependencyMissing, "npm ci"},
		"node babbles":    {installed(t, right), adaptertest.Program(t, "echo hello"), harness.DependencyMissing, "npm ci"},
		"nothing there":   {t.TempDir(), adaptertest.Program(t, "echo v22.1.0"), harness.DependencyMissing, "npm ci"},
		"other version":   {installed(t, `{"version":"1.13.0"}`), adaptertest.Program(t, "echo v22.1.0"), harness.DependencyMissing, "1.13.0"},
		"broken manifest": {installed(t, `{`), adaptertest.Program(t, "echo v22.1.0"), harness.DependencyMissing, "npm ci"},
	} {
		p := New(Options{AgentDir: tc.dir, NodePath: tc.node}).Probe(t.Context())
		if p.Availability != tc.want || !strings.Contains(p.Detail, tc.detail) {
			t.Errorf("%s: %+v", name, p)
		}
		if strings.Contains(p.Detail, tc.dir) {
			t.Errorf("%s: the detail holds a path: %s", name, p.Detail)
		}
	}
}
