package catalog

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/harness"
)

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
