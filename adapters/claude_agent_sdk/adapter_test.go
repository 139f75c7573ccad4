package claudeagentsdk

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/adapters/adaptertest"
	"github.com/harness-engine/harness-engine/adapters/claude_agent_sdk/driver"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

// claudeDir is the folder of the bridge in this source tree.
var claudeDir = filepath.Join("..", "..", "worker", "node-claude")

func TestDescriptorIsComplete(t *testing.T) {
	if unsaid := adaptertest.Describes(t, New(Options{})); len(unsaid) > 0 {
		t.Errorf("nothing is said about %v", unsaid)
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
	direct, locked := adaptertest.Locked(t, claudeDir, packages)
	if want := map[string]string{bridgePackage: BridgeVersion}; !reflect.DeepEqual(direct, want) {
		t.Errorf("package.json %v, want %v", direct, want)
	}
	for _, platform := range []string{"linux-x64", "linux-arm64"} {
		if locked[sdkPackage+"-"+platform] != SDKVersion {
			t.Errorf("the native program for %s is not locked", platform)
		}
	}
}

func TestOptionsSchema(t *testing.T) {
	adaptertest.Options(t, optionsSchema, map[string]bool{
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
	})
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
	installed := func(bridge, sdk string, native bool) string {
		files := map[string]string{"node_modules/" + bridgePackage + "/package.json": bridge, "node_modules/" + sdkPackage + "/package.json": sdk}
		if native {
			files["node_modules/"+sdkPackage+"-"+runtime.GOOS+"-"+architectures[runtime.GOARCH]+"/claude"] = ""
		}
		return adaptertest.Folder(t, files)
	}
	bridge, sdk := `{"version":"`+BridgeVersion+`"}`, `{"version":"`+SDKVersion+`"}`
	node := adaptertest.Program(t, "echo v22.1.0")
	for name, tc := range map[string]struct {
		dir, node string
		want      harness.Availability
		detail    string
	}{
		"all there":       {installed(bridge, sdk, true), node, harness.Available, ""},
		"oldest node":     {installed(bridge, sdk, true), adaptertest.Program(t, "echo v20.0.0"), harness.Available, ""},
		"old node":        {installed(bridge, sdk, true), adaptertest.Program(t, "echo v18.20.1"), harness.DependencyMissing, "18"},
		"no node":         {installed(bridge, sdk, true), filepath.Join(t.TempDir(), "none"), harness.DependencyMissing, "install Node"},
		"node babbles":    {installed(bridge, sdk, true), adaptertest.Program(t, "echo hello"), harness.DependencyMissing, "install Node"},
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
