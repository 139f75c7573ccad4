package deepagents

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// agentDir is the folder of the Node agent in this source tree.
var agentDir = filepath.Join("..", "..", "worker", "node")

func TestDescriptorIsComplete(t *testing.T) {
	d := New(Options{}).Descriptor()
	if !harness.IDPattern.MatchString(d.ID) || d.ID != harness.Default {
		t.Errorf("id %q", d.ID)
	}
	for _, c := range harness.Capabilities {
		if d.Capabilities[c] == "" {
			t.Errorf("nothing is said about %s", c)
		}
	}
	if len(d.Capabilities) != len(harness.Capabilities) {
		t.Errorf("%d capabilities, the vocabulary has %d", len(d.Capabilities), len(harness.Capabilities))
	}
}

// TestThePackagesAreThoseThatAreLocked compares the supply-chain record with package.json and the lock file.
func TestThePackagesAreThoseThatAreLocked(t *testing.T) {
	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	readJSON(t, "package.json", &manifest)
	var lock struct {
		Packages map[string]struct {
			Version   string `json:"version"`
			Resolved  string `json:"resolved"`
			Integrity string `json:"integrity"`
		} `json:"packages"`
	}
	readJSON(t, "package-lock.json", &lock)
	recorded := map[string]string{}
	for _, p := range packages {
		at := strings.LastIndex(p, "@")
		recorded[p[:at]] = p[at+1:]
	}
	if !reflect.DeepEqual(recorded, manifest.Dependencies) {
		t.Errorf("recorded %v\npackage.json %v", recorded, manifest.Dependencies)
	}
	for name, version := range recorded {
		if locked := lock.Packages["node_modules/"+name].Version; locked != version {
			t.Errorf("%s is locked at %q, recorded as %q", name, locked, version)
		}
	}
	for name, p := range lock.Packages {
		if name != "" && (p.Resolved != "" || p.Integrity == "") {
			t.Errorf("%s: resolved %q, integrity %q: a lock file holds digests and no registry", name, p.Resolved, p.Integrity)
		}
	}
}

func readJSON(t *testing.T, name string, v any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(agentDir, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatal(err)
	}
}

func compileOptions(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(optionsSchema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("options.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("options.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOptionsSchema(t *testing.T) {
	schema := compileOptions(t)
	for options, valid := range map[string]bool{
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
	} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(options))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); (err == nil) != valid {
			t.Errorf("%s: %v, want valid %v", options, err, valid)
		}
	}
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
	program := func(t *testing.T, output string) string {
		path := filepath.Join(t.TempDir(), "node")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+output+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	installed := func(t *testing.T, manifest string) string {
		dir := t.TempDir()
		for name, content := range map[string]string{"deepagents/main.mjs": "", "node_modules/deepagents/package.json": manifest} {
			path := filepath.Join(dir, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	right := `{"version":"` + LibraryVersion + `"}`
	for name, tc := range map[string]struct {
		dir, node string
		want      harness.Availability
		detail    string
	}{
		"all there":       {installed(t, right), program(t, "echo v22.1.0"), harness.Available, ""},
		"oldest node":     {installed(t, right), program(t, "echo v20.0.0"), harness.Available, ""},
		"old node":        {installed(t, right), program(t, "echo v18.20.1"), harness.DependencyMissing, "18"},
		"no node":         {installed(t, right), filepath.Join(t.TempDir(), "none"), harness.DependencyMissing, "npm ci"},
		"node fails":      {installed(t, right), program(t, "exit 3"), harness.DependencyMissing, "npm ci"},
		"node babbles":    {installed(t, right), program(t, "echo hello"), harness.DependencyMissing, "npm ci"},
		"nothing there":   {t.TempDir(), program(t, "echo v22.1.0"), harness.DependencyMissing, "npm ci"},
		"other version":   {installed(t, `{"version":"1.13.0"}`), program(t, "echo v22.1.0"), harness.DependencyMissing, "1.13.0"},
		"broken manifest": {installed(t, `{`), program(t, "echo v22.1.0"), harness.DependencyMissing, "npm ci"},
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
