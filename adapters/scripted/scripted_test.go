package scripted

import (
	"testing"

	"github.com/harness-engine/harness-engine/adapters/adaptertest"
	"github.com/harness-engine/harness-engine/engine/harness"
)

func TestDescriptor(t *testing.T) {
	d := New().Descriptor()
	if d.ID != ID || !harness.IDPattern.MatchString(d.ID) || d.HarnessVersion != Version {
		t.Fatalf("got %+v", d)
	}
	adaptertest.Describes(t, New()) // what nothing is said about is unsupported
	if p := New().Probe(t.Context()); p.Availability != harness.Available || p.HarnessVersion != d.HarnessVersion {
		t.Errorf("probe %+v", p)
	}
}

// TestOptionsSchema: the schema takes what the grammar knows and nothing else.
func TestOptionsSchema(t *testing.T) {
	adaptertest.Options(t, New().Descriptor().OptionsSchema, map[string]bool{
		`{}`:                                     true,
		`{"steps":[],"chunk":3,"every_ms":10}`:   true,
		`{"steps":[{"text":"x"},{"hang":true}]}`: true,
		`{"steps":[{"text":{"value":"x","until":"go"}},{"tool":{"name":"x","until":"a-1.b","result":"y"}}]}`:                                                                   true,
		`{"steps":[{"text":{"value":"x","until":"a/b"}}]}`:                                                                                                                     false,
		`{"steps":[{"text":{"value":"x","chunk":1}},{"reasoning":"y"},{"facts":{"a":"b"}},{"garbage":"no_data"}]}`:                                                             true,
		`{"steps":[{"tool":{"name":"x","arguments":{"any":[1]},"result":"y"}},{"tool":{"name":"x","error":{"code":"c","message":"m"}}}]}`:                                      true,
		`{"steps":[{"repeat":{"times":3,"steps":[{"repeat":{"times":2,"steps":[{"recall":true}]}}]}},{"finish":"refusal"},{"exit":1}]}`:                                        true,
		`{"steps":[{"error":{"category":"timeout","code":"c","message":"m"}},{"usage":{"input":1,"final":true}},{"plan":[]},{"delay_ms":1}]}`:                                  true,
		`{"steps":[{"approval":{"calls":[{"name":"a","allowed":["edit"],"schema":{"type":"object"},"result":"x"},{"name":"b","error":{"code":"c","message":"m"}}]}}]}`:         true,
		`{"steps":[{"form":{"prompt":"p","fields":[{"name":"a","label":"A","kind":"choice","required":true,"choices":["x"]}]}},{"snapshot_fail":true},{"hang_before_end":1}]}`: true,
		`{"steps":[{"approval":{"calls":[]}}]}`:                                                             false,
		`{"steps":[{"approval":{"calls":[{"name":"a","allowed":["maybe"]}]}}]}`:                             false,
		`{"steps":[{"approval":{"calls":[{"name":"a","result":"x","error":{"code":"c","message":"m"}}]}}]}`: false,
		`{"steps":[{"form":{"fields":[{"name":"a","kind":"date"}]}}]}`:                                      false,
		`{"steps":[{"hang_before_end":5001}]}`:                                                              false,
		`{"more":1}`:                                                                                        false,
		`{"steps":[{}]}`:                                                                                    false,
		`{"steps":[{"text":"x","hang":true}]}`:                                                              false,
		`{"steps":[{"tool":{"name":"x"}}]}`:                                                                 false,
		`{"steps":[{"text":{"value":"x","more":1}}]}`:                                                       false,
		`{"steps":[{"repeat":{"times":0,"steps":[]}}]}`:                                                     false,
		`{"steps":[{"repeat":{"times":1,"steps":[{}]}}]}`:                                                   false,
		`{"steps":[{"delay_ms":600001}]}`:                                                                   false,
		`{"steps":[{"error":{"category":"x","code":"c","message":"m"}}]}`:                                   false,
		`{"chunk":"3"}`: false,
	})
}
