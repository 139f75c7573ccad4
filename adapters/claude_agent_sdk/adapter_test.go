package claudeagentsdk

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/harness-engine/harness-engine/adapters/claude_agent_sdk/driver"
	"github.com/harness-engine/harness-engine/engine/catalog"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

// claudeDir is the folder of the bridge in this source tree.
var claudeDir = filepath.Join("..", "..", "worker", "node-claude")

func TestDescriptorIsComplete(t *testing.T) {
	d := New(Options{}).Descriptor()
	if !harness.IDPattern.MatchString(d.ID) {
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
	if _, err := catalog.New(t.Context(), catalog.Options{Adapters: []harness.Adapter{New(Options{})}}); err != nil {
		t.Errorf("the catalog refuses it: %v", err)
	}
}

// TestTheDescriptorSaysWhatTheDriverIs: state that can be committed, and calls that wait in the process.
func TestTheDescriptorSaysWhatTheDriverIs(t *testing.T) {
	d := driver.New(driver.Options{})
	if _, ok := d.(worker.Stateful); ok != (capabilities[harness.ThreadDurableCommit] == harness.Native) {
		t.Error("thread.durable_commit does not fit")
	}
	if _, ok := d.(worker.Parker); ok != (capabilities[harness.InterruptToolApproval] == harness.Emulated) {
		t.Error("interrupt.tool_approval does not fit")
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
	if want := map[string]string{bridgePackage: BridgeVersion}; !reflect.DeepEqual(manifest.Dependencies, want) {
		t.Errorf("package.json %v, want %v", manifest.Dependencies, want)
	}
	for _, p := range packages {
		at := strings.LastIndex(p, "@")
		if locked := lock.Packages["node_modules/"+p[:at]].Version; locked != p[at+1:] {
			t.Errorf("%s is locked at %q", p, locked)
		}
	}
	for name, p := range lock.Packages {
		if name != "" && (p.Resolved != "" || p.Integrity == "") {
			t.Errorf("%s: resolved %q, integrity %q: a lock file holds digests and no registry", name, p.Resolved, p.Integrity)
		}
	}
	for _, platform := range []string{"linux-x64", "linux-arm64"} {
		if lock.Packages["node_modules/"+sdkPackage+"-"+platform].Version != SDKVersion {
			t.Errorf("the native program for %s is not locked", platform)
		}
	}
}

func readJSON(t *testing.T, name string, v any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(claudeDir, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatal(err)
	}
}

func TestOptionsSchema(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(optionsSchema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("options.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("options.json")
	if err != nil {
		t.Fatal(err)
	}
	for options, valid := range map[string]bool{
		`{}`: true,
		`{"tools":["Bash"],"maxTurns":500,"systemPromptMode":"replace"}`: true,
		`{"tools":[]}`:                  true,
		`{"tools":["WebFetch"]}`:        false,
		`{"tools":["Bash","Bash"]}`:     false,
		`{"maxTurns":0}`:                false,
		`{"maxTurns":501}`:              false,
		`{"systemPromptMode":"ignore"}`: false,
		`{"env":{}}`:                    false,
		`[]`:                            false,
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

// TestTheDriverKnowsTheSameOptions: an option that only one side knows would be refused, or ignored. That the driver
// refuses what the schema does is tested there.
func TestTheDriverKnowsTheSameOptions(t *testing.T) {
	var schema struct {
		Properties struct {
			Tools struct {
				Items   struct{ Enum []string }
				Default []string
			}
			MaxTurns         struct{ Maximum int }
			SystemPromptMode struct {
				Enum    []string
				Default string
			}
		}
	}
	if err := json.Unmarshal(optionsSchema, &schema); err != nil {
		t.Fatal(err)
	}
	p := schema.Properties
	if !slices.Equal(p.Tools.Items.Enum, driver.Tools) || !slices.Equal(p.Tools.Default, driver.DefaultTools) || p.MaxTurns.Maximum != driver.MaxTurns ||
		!slices.Equal(p.SystemPromptMode.Enum, []string{driver.PromptAppend, driver.PromptReplace}) || p.SystemPromptMode.Default != driver.PromptAppend {
		t.Errorf("schema %+v", p)
	}
}

func TestProbe(t *testing.T) {
	program := func(output string) string {
		path := filepath.Join(t.TempDir(), "node")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+output+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	installed := func(bridge, sdk string, native bool) string {
		dir := t.TempDir()
		files := map[string]string{bridgePackage + "/package.json": bridge, sdkPackage + "/package.json": sdk}
		if native {
			files[sdkPackage+"-"+runtime.GOOS+"-"+architectures[runtime.GOARCH]+"/claude"] = ""
		}
		for name, content := range files {
			path := filepath.Join(dir, "node_modules", filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	bridge, sdk := `{"version":"`+BridgeVersion+`"}`, `{"version":"`+SDKVersion+`"}`
	node := program("echo v22.1.0")
	for name, tc := range map[string]struct {
		dir, node string
		want      harness.Availability
		detail    string
	}{
		"all there":       {installed(bridge, sdk, true), node, harness.Available, ""},
		"oldest node":     {installed(bridge, sdk, true), program("echo v20.0.0"), harness.Available, ""},
		"old node":        {installed(bridge, sdk, true), program("echo v18.20.1"), harness.DependencyMissing, "18"},
		"no node":         {installed(bridge, sdk, true), filepath.Join(t.TempDir(), "none"), harness.DependencyMissing, "install Node"},
		"node babbles":    {installed(bridge, sdk, true), program("echo hello"), harness.DependencyMissing, "install Node"},
		"nothing there":   {t.TempDir(), node, harness.DependencyMissing, "make node"},
		"no folder":       {"", node, harness.DependencyMissing, "make node"},
		"other bridge":    {installed(`{"version":"0.98.0"}`, sdk, true), node, harness.DependencyMissing, "0.98.0"},
		"other sdk":       {installed(bridge, `{"version":"0.3.1"}`, true), node, harness.DependencyMissing, "0.3.1"},
		"broken manifest": {installed(`{`, sdk, true), node, harness.DependencyMissing, "npm ci"},
		"no program":      {installed(bridge, sdk, false), node, harness.DependencyMissing, "native program"},
	} {
		p := New(Options{ClaudeDir: tc.dir, NodePath: tc.node}).Probe(t.Context())
		if p.Availability != tc.want || !strings.Contains(p.Detail, tc.detail) {
			t.Errorf("%s: %+v", name, p)
		}
		if tc.dir != "" && strings.Contains(p.Detail, tc.dir) {
			t.Errorf("%s: the detail holds a path: %s", name, p.Detail)
		}
	}
}
