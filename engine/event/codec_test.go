package event

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func ptr[T any](v T) *T { return &v }

var testTime = time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.UTC)

// everyData has one full value of every type.
var everyData = []Data{
	RunStarted{Harness: "scripted", AdapterVersion: "1.0.0", AgentVersion: 3, SandboxGeneration: 2, WorkerInstance: "wrk_1", Isolation: IsolationNone, Continues: "run_0"},
	RunRecovered{Generation: 7},
	TextStarted{MessageID: "m1", Role: "assistant"},
	TextDelta{MessageID: "m1", Delta: "a < b & c > d \u2028 \"q\" 漢字 🎉\n\t"},
	TextFinished{MessageID: "m1"},
	ReasoningStarted{MessageID: "r1"},
	ReasoningDelta{MessageID: "r1", Delta: "hm"},
	ReasoningFinished{MessageID: "r1"},
	ToolStarted{ToolCallID: "t1", Name: "write_file", Kind: "edit", Title: "Write", Arguments: json.RawMessage(`{"a":[1,{"b":null}]}`), ParentMessageID: "m1"},
	ToolArgumentsDelta{ToolCallID: "t1", Delta: `{"a":`},
	ToolFinished{ToolCallID: "t1", Result: "ok", Truncated: true, ResultRef: "ref"},
	ToolError{ToolCallID: "t1", Code: "failed", Message: "no", Retryable: true},
	InterruptRequested{
		InterruptID: "i1", Kind: InterruptApproval, Prompt: "May I?", Revision: 2, Deadline: ptr(testTime),
		Fields: []FormField{{Name: "n", Label: "N", Kind: "choice", Required: true, Choices: []string{"x"}}},
		Calls:  []ApprovalCall{{ToolCallID: "t1", Name: "rm", Arguments: json.RawMessage(`{}`), Allowed: []string{"approve"}, Schema: json.RawMessage(`{"type":"object"}`)}},
	},
	NamespaceEntered{ID: "child", Name: "researcher", ParentToolCallID: "t1"},
	NamespaceExited{ID: "child", Outcome: "success"},
	PlanUpdated{Entries: []PlanEntry{{Content: "do", Status: "pending", Priority: "high"}}},
	Warning{Code: "w", Message: "careful", Details: map[string]any{"s": "x", "b": true, "i": int64(1) << 60, "f": 1.5, "n": nil}},
	UsageUpdated{InputTokens: ptr(int64(1)), OutputTokens: ptr(int64(0)), CachedInputTokens: ptr(int64(2)), ReasoningTokens: ptr(int64(3)), Cost: ptr(0.25), Currency: "USD", Final: true},
	RunFinished{Outcome: "success", StopReason: "end_turn", Thread: ThreadState{Durability: DurabilityCommitted, Revision: 4}},
	RunInterrupted{InterruptID: "i1", Reason: "approval", Thread: ThreadState{Durability: DurabilityLocal}},
	RunCancelled{Reason: CancelClientRequest, SideEffects: SideEffectsNone, Thread: ThreadState{Durability: DurabilityNone}},
	RunError{Code: "model_error", Message: "no", Category: CategoryConfiguration, Retryable: true, RetryAfterMs: 5, SideEffects: SideEffectsKnown, Thread: ThreadState{Durability: DurabilityUncertain}},
}

func TestEveryTypeRoundTrips(t *testing.T) {
	seen := map[Type]bool{}
	for _, d := range everyData {
		seen[d.Type()] = true
		e := Event{Time: testTime, Namespace: []string{"a", "b"}, Data: d}
		raw, err := Encode(e)
		if err != nil {
			t.Fatalf("%s: %v", d.Type(), err)
		}
		got, err := Decode(raw)
		if err != nil {
			t.Fatalf("%s: %v\n%s", d.Type(), err, raw)
		}
		if !reflect.DeepEqual(got, e) {
			t.Errorf("%s: got %+v, want %+v", d.Type(), got, e)
		}
		// A pointer to the data is the same event.
		p := reflect.New(reflect.TypeOf(d))
		p.Elem().Set(reflect.ValueOf(d))
		again, err := Encode(Event{Time: testTime, Namespace: []string{"a", "b"}, Data: p.Interface().(Data)})
		if err != nil || !bytes.Equal(again, raw) {
			t.Errorf("%s by pointer: %v\n%s\n%s", d.Type(), err, again, raw)
		}
		inner, err := appendJSON(nil, d)
		if err != nil {
			t.Fatal(err)
		}
		data, err := DecodeData(d.Type(), inner)
		if err != nil || !reflect.DeepEqual(data, d) {
			t.Errorf("%s: DecodeData = %+v, %v", d.Type(), data, err)
		}
	}
	for typ := range codecs {
		if !seen[typ] {
			t.Errorf("no example of %s", typ)
		}
	}
}

func TestEncodedForm(t *testing.T) {
	for _, tc := range []struct {
		e    Event
		want string
	}{
		{
			Event{RunID: "run_1", SessionID: "ses_1", Sequence: 9, Time: testTime, Data: TextDelta{MessageID: "m", Delta: "<&>"}},
			`{"v":1,"type":"text.delta","time":"2026-03-04T05:06:07.089Z","data":{"messageId":"m","delta":"<&>"}}`,
		},
		{
			Event{Namespace: []string{"c"}, Data: PlanUpdated{}},
			`{"v":1,"type":"plan.updated","ns":["c"],"data":{"entries":[]}}`,
		},
		{
			Event{Time: testTime.In(time.FixedZone("x", 3600)).Add(999), Data: UsageUpdated{}},
			`{"v":1,"type":"usage.updated","time":"2026-03-04T05:06:07.089Z","data":{"final":false}}`,
		},
	} {
		got, err := Encode(tc.e)
		if err != nil || string(got) != tc.want {
			t.Errorf("got %s, %v\nwant %s", got, err, tc.want)
		}
		if _, err := Decode(got); err != nil {
			t.Error(err)
		}
	}
}

func TestWireForm(t *testing.T) {
	e := Event{RunID: "run_1", SessionID: "ses_1", Sequence: 9, Time: testTime, Data: TextFinished{MessageID: "m"}}
	const want = `{"version":1,"type":"text.finished","run_id":"run_1","session_id":"ses_1","sequence":9,` +
		`"time":"2026-03-04T05:06:07.089Z","namespace":[],"data":{"messageId":"m"}}`
	got, err := MarshalWire(e)
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}

type foreign struct{}

func (foreign) Type() Type { return TypeTextDelta }

func TestEncodeRefuses(t *testing.T) {
	for name, e := range map[string]Event{
		"no data":        {},
		"nil pointer":    {Data: (*TextDelta)(nil)},
		"foreign data":   {Data: foreign{}},
		"infinite cost":  {Data: UsageUpdated{Cost: ptr(math.Inf(1))}},
		"year":           {Time: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), Data: TextFinished{}},
		"bad arguments":  {Data: ToolStarted{Arguments: json.RawMessage(`{`)}},
		"function value": {Data: Warning{Details: map[string]any{"f": func() {}}}},
	} {
		if raw, err := Encode(e); err == nil {
			t.Errorf("%s: encoded as %s", name, raw)
		}
		if raw, err := MarshalWire(e); err == nil && name != "year" {
			t.Errorf("%s: marshalled as %s", name, raw)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	const tail = `"data":{"messageId":"m","delta":"secret-value"}}`
	deep := strings.Repeat("[", maxJSONDepth) + strings.Repeat("]", maxJSONDepth)
	for name, raw := range map[string]string{
		"empty":                     ``,
		"not an object":             `[]`,
		"bare word":                 `secret-value`,
		"no version":                `{"type":"text.delta",` + tail,
		"other version":             `{"v":2,"type":"text.delta",` + tail,
		"version as text":           `{"v":"1","type":"text.delta",` + tail,
		"version as float":          `{"v":1.0,"type":"text.delta",` + tail,
		"no type":                   `{"v":1,` + tail,
		"unknown type":              `{"v":1,"type":"text.secret-value",` + tail,
		"type in another case":      `{"v":1,"type":"Text.Delta",` + tail,
		"no data":                   `{"v":1,"type":"text.delta"}`,
		"data null":                 `{"v":1,"type":"text.delta","data":null}`,
		"data array":                `{"v":1,"type":"text.delta","data":[]}`,
		"unknown envelope field":    `{"v":1,"type":"text.delta","seq":1,` + tail,
		"run in the envelope":       `{"v":1,"type":"text.delta","run_id":"r",` + tail,
		"unknown data field":        `{"v":1,"type":"text.delta","data":{"messageId":"m","delta":"d","x":"secret-value"}}`,
		"field in another case":     `{"v":1,"type":"text.delta","data":{"messageID":"secret-value","delta":"d"}}`,
		"unknown nested field":      `{"v":1,"type":"run.finished","data":{"outcome":"success","stopReason":"end_turn","thread":{"durability":"LOCAL","x":1}}}`,
		"unknown field in a list":   `{"v":1,"type":"plan.updated","data":{"entries":[{"content":"c","status":"pending"},{"x":1}]}}`,
		"duplicate envelope field":  `{"v":1,"v":1,"type":"text.delta",` + tail,
		"duplicate type":            `{"v":1,"type":"text.delta","type":"text.delta",` + tail,
		"duplicate data":            `{"v":1,"type":"text.delta","data":{},` + tail,
		"duplicate field":           `{"v":1,"type":"text.delta","data":{"messageId":"m","messageId":"secret-value"}}`,
		"duplicate escaped field":   `{"v":1,"type":"text.delta","data":{"messageId":"m","\u006dessageId":"secret-value"}}`,
		"duplicate in arguments":    `{"v":1,"type":"tool.started","data":{"toolCallId":"t","name":"n","arguments":{"a":{"b":1,"b":"secret-value"}}}}`,
		"duplicate in details":      `{"v":1,"type":"warning","data":{"code":"c","message":"m","details":{"a":1,"a":2}}}`,
		"duplicate among many":      `{"v":1,"type":"warning","data":{"code":"c","message":"m","details":{` + manyKeys(40) + `,"k7":1}}}`,
		"trailing data":             `{"v":1,"type":"text.delta",` + tail + `{}`,
		"trailing brace":            `{"v":1,"type":"text.delta",` + tail + `}`,
		"trailing comma":            `{"v":1,"type":"text.delta","data":{"messageId":"m",}}`,
		"trailing envelope comma":   `{"v":1,"type":"text.delta","data":{"messageId":"m"},}`,
		"number for text":           `{"v":1,"type":"text.delta","data":{"messageId":1}}`,
		"object for text":           `{"v":1,"type":"text.delta","data":{"messageId":{"secret-value":1}}}`,
		"text for number":           `{"v":1,"type":"run.recovered","data":{"generation":"secret-value"}}`,
		"fraction for whole number": `{"v":1,"type":"run.recovered","data":{"generation":1.5}}`,
		"number too large":          `{"v":1,"type":"run.recovered","data":{"generation":9223372036854775808}}`,
		"infinite number":           `{"v":1,"type":"usage.updated","data":{"cost":1e999,"final":false}}`,
		"infinite in arguments":     `{"v":1,"type":"tool.started","data":{"toolCallId":"t","name":"n","arguments":{"a":-1e999}}}`,
		"NaN":                       `{"v":1,"type":"usage.updated","data":{"cost":NaN,"final":false}}`,
		"null field":                `{"v":1,"type":"text.delta","data":{"messageId":null}}`,
		"null optional":             `{"v":1,"type":"usage.updated","data":{"cost":null,"final":false}}`,
		"null list":                 `{"v":1,"type":"plan.updated","data":{"entries":null}}`,
		"null in a list":            `{"v":1,"type":"plan.updated","data":{"entries":[null]}}`,
		"invalid UTF-8":             "{\"v\":1,\"type\":\"text.delta\",\"data\":{\"messageId\":\"m\",\"delta\":\"\xff\"}}",
		"invalid UTF-8 in a key":    "{\"v\":1,\"type\":\"text.delta\",\"data\":{\"m\xff\":\"m\"}}",
		"raw control character":     "{\"v\":1,\"type\":\"text.delta\",\"data\":{\"messageId\":\"m\",\"delta\":\"a\x00b\"}}",
		"bad escape":                `{"v":1,"type":"text.delta","data":{"messageId":"m","delta":"\x41"}}`,
		"short escape":              `{"v":1,"type":"text.delta","data":{"messageId":"m","delta":"\u12"}}`,
		"deep arguments":            `{"v":1,"type":"tool.started","data":{"toolCallId":"t","name":"n","arguments":{"a":` + deep + `}}}`,
		"time without zone":         `{"v":1,"type":"text.delta","time":"2026-03-04T05:06:07.089",` + tail,
		"time with offset":          `{"v":1,"type":"text.delta","time":"2026-03-04T05:06:07.089+01:00",` + tail,
		"time in nanoseconds":       `{"v":1,"type":"text.delta","time":"2026-03-04T05:06:07.089123Z",` + tail,
		"time in seconds":           `{"v":1,"type":"text.delta","time":"2026-03-04T05:06:07Z",` + tail,
		"time as number":            `{"v":1,"type":"text.delta","time":20260304,` + tail,
		"impossible time":           `{"v":1,"type":"text.delta","time":"2026-02-30T05:06:07.089Z",` + tail,
		"namespace as text":         `{"v":1,"type":"text.delta","ns":"a",` + tail,
		"namespace of numbers":      `{"v":1,"type":"text.delta","ns":[1],` + tail,
		"namespace null":            `{"v":1,"type":"text.delta","ns":null,` + tail,
		"leading zero":              `{"v":01,"type":"text.delta",` + tail,
		"cut":                       `{"v":1,"type":"text.delta","data":{"messageId":"m"`,
	} {
		e, err := Decode([]byte(raw))
		if err == nil {
			t.Errorf("%s: decoded as %+v", name, e)
		} else if strings.Contains(err.Error(), "secret-value") {
			t.Errorf("%s: the error repeats a value: %v", name, err)
		}
	}
}

func manyKeys(n int) string {
	var keys []string
	for i := range n {
		keys = append(keys, `"k`+string(rune('0'+i%10))+strings.Repeat("x", i/10)+`":1`)
	}
	return strings.Join(keys, ",")
}

func TestDecodeAccepts(t *testing.T) {
	for name, raw := range map[string]string{
		"data before the type": `{"data":{"messageId":"m","delta":"d"},"type":"text.delta","v":1}`,
		"white space":          " {\n\"v\" : 1 ,\t\"type\" : \"text.delta\" , \"data\" : { \"messageId\" : \"m\" , \"delta\" : \"d\" } }\r\n",
		"escaped field":        `{"v":1,"type":"text.delta","data":{"\u006dessageId":"m","delta":"d"}}`,
		"empty namespace":      `{"v":1,"type":"text.delta","ns":[],"data":{"messageId":"m","delta":"d"}}`,
	} {
		e, err := Decode([]byte(raw))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := (Event{Data: TextDelta{MessageID: "m", Delta: "d"}}); !reflect.DeepEqual(e, want) {
			t.Errorf("%s: got %+v", name, e)
		}
	}
}

func TestDecodeNamesTheField(t *testing.T) {
	for raw, field := range map[string]string{
		`{"v":1,"type":"text.delta","data":{"messageId":1}}`:                               "messageId",
		`{"v":1,"type":"text.delta","data":{"x":1}}`:                                       `"x"`,
		`{"v":1,"type":"plan.updated","data":{"entries":[{"content":"a"},{"y":1}]}}`:       `entries: 1: unknown field "y"`,
		`{"v":1,"type":"run.finished","data":{"outcome":"","stopReason":"","thread":[1]}}`: "thread",
	} {
		if _, err := Decode([]byte(raw)); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestWarningNumbersKeepTheirValue(t *testing.T) {
	const raw = `{"v":1,"type":"warning","data":{"code":"c","message":"m","details":{"a":9007199254740993,"b":1.25,"c":-0,"d":1e300}}}`
	e, err := Decode([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	d := e.Data.(Warning).Details
	if d["a"] != int64(9007199254740993) || d["b"] != 1.25 || d["d"] != 1e300 || !math.Signbit(d["c"].(float64)) {
		t.Errorf("details = %#v", d)
	}
}

// FuzzDecode: no input makes the codec panic, and what it accepts survives another round unchanged.
func FuzzDecode(f *testing.F) {
	for _, d := range everyData {
		raw, err := Encode(Event{Time: testTime, Namespace: []string{"a"}, Data: d})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"v":1,"type":"tool.started","data":{"toolCallId":"\ud800","name":"n","arguments":{"\udc00":[1e5,-0.1]}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := Decode(raw)
		if err != nil {
			return
		}
		if !json.Valid(raw) {
			t.Fatalf("accepted what is not JSON: %q", raw)
		}
		once, err := Encode(e)
		if err != nil {
			t.Fatalf("decoded but not encodable: %v", err)
		}
		again, err := Decode(once)
		if err != nil {
			t.Fatalf("own encoding refused: %v\n%s", err, once)
		}
		twice, err := Encode(again)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("not stable: %v\n%s\n%s", err, once, twice)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	for _, d := range []Data{TextDelta{MessageID: "msg_01jv8h4tq9k3", Delta: "some tokens of text "}, everyData[8]} {
		b.Run(string(d.Type()), func(b *testing.B) {
			b.ReportAllocs()
			e := Event{Time: testTime, Data: d}
			buf := make([]byte, 0, 4096)
			for b.Loop() {
				buf, _ = appendEvent(buf[:0], e)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, d := range []Data{TextDelta{MessageID: "msg_01jv8h4tq9k3", Delta: "some tokens of text "}, everyData[8]} {
		b.Run(string(d.Type()), func(b *testing.B) {
			b.ReportAllocs()
			raw, err := Encode(Event{Time: testTime, Data: d})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := Decode(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
