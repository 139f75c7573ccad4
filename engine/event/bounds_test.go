package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// begun is a validator with what most events need open: message m, reasoning r, tool t, and namespace a under tool t.
func begun(t testing.TB, b Bounds) *Validator {
	t.Helper()
	v := NewValidator(b)
	for _, e := range []Event{
		{Data: RunStarted{Harness: "h"}},
		{Data: TextStarted{MessageID: "m", Role: "assistant"}},
		{Data: ReasoningStarted{MessageID: "r"}},
		{Data: ToolStarted{ToolCallID: "t", Name: "n"}},
		{Data: NamespaceEntered{ID: "a", Name: "n", ParentToolCallID: "t"}},
	} {
		if _, err := v.Accept(e); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

func TestBoundsRepair(t *testing.T) {
	cost := strings.Repeat("x", 5000)
	for name, tc := range map[string]struct {
		in   Data
		want []Data
	}{
		"empty text delta":      {TextDelta{MessageID: "m"}, nil},
		"empty reasoning delta": {ReasoningDelta{MessageID: "r"}, nil},
		"empty arguments delta": {ToolArgumentsDelta{ToolCallID: "t"}, nil},
		"empty delta of nobody": {TextDelta{MessageID: "nobody"}, nil},
		"text on a bound": {
			TextDelta{MessageID: "m", Delta: strings.Repeat("x", 16<<10)},
			[]Data{TextDelta{MessageID: "m", Delta: strings.Repeat("x", 16<<10)}},
		},
		"text one above the bound": {
			TextDelta{MessageID: "m", Delta: strings.Repeat("x", 16<<10) + "y"},
			[]Data{TextDelta{MessageID: "m", Delta: strings.Repeat("x", 16<<10)}, TextDelta{MessageID: "m", Delta: "y"}},
		},
		"text split before a rune": {
			TextDelta{MessageID: "m", Delta: strings.Repeat("x", 16<<10-1) + "漢"},
			[]Data{TextDelta{MessageID: "m", Delta: strings.Repeat("x", 16<<10-1)}, TextDelta{MessageID: "m", Delta: "漢"}},
		},
		"long arguments fragment": {
			ToolArgumentsDelta{ToolCallID: "t", Delta: strings.Repeat("x", 16<<10) + "y"},
			[]Data{ToolArgumentsDelta{ToolCallID: "t", Delta: strings.Repeat("x", 16<<10)}, ToolArgumentsDelta{ToolCallID: "t", Delta: "y"}},
		},
		"controls in text": {
			TextDelta{MessageID: "m", Delta: "a\r\nb\rc\x00d\x1b[0m\te\x7f\u0085f\xff\xfeg\n"},
			[]Data{TextDelta{MessageID: "m", Delta: "a\nb\nc␀d␛[0m\te␡\ufffdf\ufffd\ufffdg\n"}},
		},
		"controls in reasoning": {ReasoningDelta{MessageID: "r", Delta: "\x07"}, []Data{ReasoningDelta{MessageID: "r", Delta: "␇"}}},
		"controls in a result":  {ToolFinished{ToolCallID: "t", Result: "\x07"}, []Data{ToolFinished{ToolCallID: "t", Result: "␇"}}},
		"controls in a title": {
			ToolStarted{ToolCallID: "t2", Name: "n", Title: "\x07"}, []Data{ToolStarted{ToolCallID: "t2", Name: "n", Title: "␇"}},
		},
		"long title": {
			ToolStarted{ToolCallID: "t2", Name: "n", Title: strings.Repeat("é", 600)},
			[]Data{ToolStarted{ToolCallID: "t2", Name: "n", Title: strings.Repeat("é", 510) + "…"}},
		},
		"long message": {
			ToolError{ToolCallID: "t", Code: "c", Message: cost}, []Data{ToolError{ToolCallID: "t", Code: "c", Message: cost[:4093] + "…"}},
		},
		"arguments in canonical form": {
			ToolStarted{ToolCallID: "t2", Name: "n", Arguments: json.RawMessage(" {\n\"a\" : [ 1 , \"\x7f\u0085\\ud800\\ud83d\\ude00\" ] } ")},
			[]Data{ToolStarted{ToolCallID: "t2", Name: "n", Arguments: json.RawMessage(`{"a":[1,"\u007f\u0085\ufffd\ud83d\ude00"]}`)}},
		},
		"details": {
			Warning{Code: "c", Message: "m", Details: map[string]any{"i": 1, "u": uint8(2), "f": float32(0.5), "n": json.Number("7"), "s": "\x07", "nil": nil, "b": true}},
			[]Data{Warning{Code: "c", Message: "m", Details: map[string]any{"i": int64(1), "u": int64(2), "f": 0.5, "n": int64(7), "s": "␇", "nil": nil, "b": true}}},
		},
		"empty plan": {PlanUpdated{}, []Data{PlanUpdated{Entries: []PlanEntry{}}}},
		"pointer":    {&TextDelta{MessageID: "m", Delta: "x"}, []Data{TextDelta{MessageID: "m", Delta: "x"}}},
		"side effects absent": {
			RunError{Code: "c", Category: CategoryInternal},
			[]Data{
				TextFinished{MessageID: "m"}, ReasoningFinished{MessageID: "r"},
				ToolError{ToolCallID: "t", Code: CodeRunEnded, Message: messageRunEnded},
				NamespaceExited{ID: "a", Outcome: "error"},
				RunError{Code: "c", Category: CategoryInternal, SideEffects: SideEffectsPossible},
			},
		},
		"side effects understated": {
			RunCancelled{Reason: CancelShutdown, SideEffects: SideEffectsNone},
			[]Data{
				TextFinished{MessageID: "m"}, ReasoningFinished{MessageID: "r"},
				ToolError{ToolCallID: "t", Code: CodeRunEnded, Message: messageRunEnded},
				NamespaceExited{ID: "a", Outcome: "cancelled"},
				RunCancelled{Reason: CancelShutdown, SideEffects: SideEffectsPossible},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := begun(t, Bounds{}).Accept(Event{Data: tc.in})
			if err != nil {
				t.Fatal(err)
			}
			var got []Data
			for _, e := range out {
				got = append(got, e.Data)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got\n%+v, want\n%+v", got, tc.want)
			}
		})
	}
}

func TestLongArgumentsBecomeDeltas(t *testing.T) {
	v := begun(t, Bounds{})
	arguments := `{"text":"` + strings.Repeat("漢\x7f\\\"", 10_000) + `"}`
	want, err := canonicalObject([]byte(arguments))
	if err != nil {
		t.Fatal(err)
	}
	out, err := v.Accept(Event{Namespace: []string{"a"}, Data: ToolStarted{ToolCallID: "t2", Name: "write", Arguments: json.RawMessage(arguments)}})
	if err != nil {
		t.Fatal(err)
	}
	if d := out[0].Data.(ToolStarted); d.Arguments != nil || d.Name != "write" {
		t.Errorf("start = %+v", d)
	}
	var got strings.Builder
	for _, e := range out[1:] {
		d := e.Data.(ToolArgumentsDelta)
		if d.ToolCallID != "t2" || len(d.Delta) > DefaultBounds().DeltaBytes || !reflect.DeepEqual(e.Namespace, []string{"a"}) {
			t.Fatalf("delta of %d bytes for %s in %v", len(d.Delta), d.ToolCallID, e.Namespace)
		}
		got.WriteString(d.Delta)
	}
	if got.String() != string(want) || len(out) < 3 {
		t.Errorf("%d events, %d bytes, want %d", len(out), got.Len(), len(want))
	}
}

func TestResultIsCutToTheEvent(t *testing.T) {
	for _, unit := range []string{"x", `"`, "漢", "\u2028", "🎉", "\t", "\x00"} {
		v := begun(t, Bounds{})
		whole := strings.Repeat(unit, (80<<10)/len(unit))
		out, err := v.Accept(Event{Data: ToolFinished{ToolCallID: "t", Result: whole, ResultRef: "ref"}})
		if err != nil {
			t.Fatal(err)
		}
		d := out[0].Data.(ToolFinished)
		raw, err := Encode(Event{Time: testTime, Data: d})
		if err != nil {
			t.Fatal(err)
		}
		most := DefaultBounds().EventBytes
		if !d.Truncated || len(raw) > most || len(raw) < most-8 || d.ResultRef != "ref" {
			t.Errorf("%q: %d bytes, truncated %v", unit, len(raw), d.Truncated)
		}
		if !strings.HasPrefix(cleanText(whole), d.Result) || !utf8.ValidString(d.Result) {
			t.Errorf("%q: the result is not a prefix", unit)
		}
	}
	out, err := begun(t, Bounds{}).Accept(Event{Data: ToolFinished{ToolCallID: "t", Result: "short", Truncated: false}})
	if err != nil || out[0].Data.(ToolFinished).Truncated {
		t.Errorf("a short result: %+v, %v", out, err)
	}
}

func TestDriverTruncationIsKept(t *testing.T) {
	out, err := begun(t, Bounds{}).Accept(Event{Data: ToolFinished{ToolCallID: "t", Result: "cut by the harness", Truncated: true}})
	if err != nil || !out[0].Data.(ToolFinished).Truncated {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestBoundsRefuse(t *testing.T) {
	long := strings.Repeat("x", 129)
	form := func(f ...FormField) InterruptRequested {
		return InterruptRequested{InterruptID: "i", Kind: InterruptForm, Prompt: "p", Fields: f}
	}
	approval := func(c ...ApprovalCall) InterruptRequested {
		return InterruptRequested{InterruptID: "i", Kind: InterruptApproval, Calls: c}
	}
	arguments := func(s string) ToolStarted {
		return ToolStarted{ToolCallID: "t2", Name: "n", Arguments: json.RawMessage(s)}
	}
	call := ApprovalCall{ToolCallID: "t", Name: "n", Allowed: []string{"approve"}}
	for name, tc := range map[string]struct {
		e     Event
		field string
	}{
		"nil data":                {Event{}, "type"},
		"foreign data":            {Event{Data: foreign{}}, "type"},
		"empty id":                {Event{Data: TextDelta{Delta: "x"}}, "messageId"},
		"empty id, empty delta":   {Event{Data: TextDelta{}}, "messageId"},
		"long id":                 {Event{Data: TextDelta{MessageID: long, Delta: "x"}}, "messageId"},
		"newline in an id":        {Event{Data: TextFinished{MessageID: "m\n"}}, "messageId"},
		"NUL in an id":            {Event{Data: TextFinished{MessageID: "m\x00"}}, "messageId"},
		"C1 in an id":             {Event{Data: TextFinished{MessageID: "m\u009b"}}, "messageId"},
		"invalid UTF-8 in an id":  {Event{Data: TextFinished{MessageID: "m\xff"}}, "messageId"},
		"no name":                 {Event{Data: ToolStarted{ToolCallID: "t2"}}, "name"},
		"control in a name":       {Event{Data: ToolStarted{ToolCallID: "t2", Name: "n\x1b"}}, "name"},
		"control in a code":       {Event{Data: Warning{Code: "c\r"}}, "code"},
		"control in a fragment":   {Event{Data: ToolArgumentsDelta{ToolCallID: "t", Delta: "{\r"}}, "delta"},
		"broken fragment":         {Event{Data: ToolArgumentsDelta{ToolCallID: "t", Delta: "\xe6\xbc"}}, "delta"},
		"deep namespace":          {Event{Namespace: make([]string, 17), Data: PlanUpdated{}}, "namespace"},
		"empty namespace id":      {Event{Namespace: []string{""}, Data: PlanUpdated{}}, "namespace"},
		"control in a namespace":  {Event{Namespace: []string{"\n"}, Data: PlanUpdated{}}, "namespace"},
		"too deep a child":        {Event{Namespace: strings.Split(strings.Repeat("a", 16), ""), Data: NamespaceEntered{ID: "b", Name: "n", ParentToolCallID: "t"}}, "namespace"},
		"unknown role":            {Event{Data: TextStarted{MessageID: "m2", Role: "user"}}, "role"},
		"unknown stop reason":     {Event{Data: RunFinished{Outcome: "success", StopReason: "tired"}}, "stopReason"},
		"unknown outcome":         {Event{Data: RunFinished{Outcome: "failure", StopReason: "end_turn"}}, "outcome"},
		"unknown durability":      {Event{Data: RunFinished{Outcome: "success", StopReason: "end_turn", Thread: ThreadState{Durability: "X"}}}, "thread.durability"},
		"unknown category":        {Event{Data: RunError{Code: "c", Category: "x"}}, "category"},
		"unknown reason":          {Event{Data: RunCancelled{Reason: "x"}}, "reason"},
		"unknown side effects":    {Event{Data: RunCancelled{Reason: CancelDeadline, SideEffects: "x"}}, "sideEffects"},
		"unknown status":          {Event{Data: PlanUpdated{Entries: []PlanEntry{{Status: "x"}}}}, "entries.0.status"},
		"unknown priority":        {Event{Data: PlanUpdated{Entries: []PlanEntry{{Status: "pending", Priority: "x"}}}}, "entries.0.priority"},
		"too many entries":        {Event{Data: PlanUpdated{Entries: make([]PlanEntry, 129)}}, "entries"},
		"too large a plan":        {Event{Data: PlanUpdated{Entries: entries(128, 1000)}}, ""},
		"arguments not an object": {Event{Data: arguments(`[]`)}, "arguments"},
		"arguments empty":         {Event{Data: arguments(``)}, "arguments"},
		"arguments cut":           {Event{Data: arguments(`{"a":`)}, "arguments"},
		"arguments twice":         {Event{Data: arguments(`{}{}`)}, "arguments"},
		"arguments duplicate key": {Event{Data: arguments(`{"a":1,"a":2}`)}, "arguments"},
		"arguments infinite":      {Event{Data: arguments(`{"a":1e400}`)}, "arguments"},
		"arguments NaN":           {Event{Data: arguments(`{"a":NaN}`)}, "arguments"},
		"arguments not UTF-8":     {Event{Data: arguments("{\"a\":\"\xff\"}")}, "arguments"},
		"arguments deep":          {Event{Data: arguments(`{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`)}, "arguments"},
		"arguments too long":      {Event{Data: arguments(`{"a":"` + strings.Repeat("x", 256<<10) + `"}`)}, "arguments"},
		"negative tokens":         {Event{Data: UsageUpdated{InputTokens: ptr(int64(-1))}}, "inputTokens"},
		"NaN cost":                {Event{Data: UsageUpdated{Cost: ptr(math.NaN())}}, "cost"},
		"infinite cost":           {Event{Data: UsageUpdated{Cost: ptr(math.Inf(1))}}, "cost"},
		"negative cost":           {Event{Data: UsageUpdated{Cost: ptr(-0.01)}}, "cost"},
		"unknown currency":        {Event{Data: UsageUpdated{Currency: "euro"}}, "currency"},
		"too many details":        {Event{Data: Warning{Code: "c", Details: details(33)}}, "details"},
		"nested details":          {Event{Data: Warning{Code: "c", Details: map[string]any{"k": []any{1}}}}, "details"},
		"mapped details":          {Event{Data: Warning{Code: "c", Details: map[string]any{"k": map[string]any{}}}}, "details"},
		"NaN in details":          {Event{Data: Warning{Code: "c", Details: map[string]any{"k": math.NaN()}}}, "details"},
		"infinite in details":     {Event{Data: Warning{Code: "c", Details: map[string]any{"k": math.Inf(-1)}}}, "details"},
		"not a number in details": {Event{Data: Warning{Code: "c", Details: map[string]any{"k": json.Number("x")}}}, "details"},
		"control in a detail key": {Event{Data: Warning{Code: "c", Details: map[string]any{"k\n": 1}}}, "details"},
		"negative generation":     {Event{Data: RunRecovered{Generation: -1}}, "generation"},
		"form without anything":   {Event{Data: InterruptRequested{InterruptID: "i", Kind: InterruptForm}}, "fields"},
		"form with calls":         {Event{Data: InterruptRequested{InterruptID: "i", Kind: InterruptForm, Prompt: "p", Calls: []ApprovalCall{call}}}, "calls"},
		"too many fields":         {Event{Data: form(make([]FormField, 65)...)}, "fields"},
		"field without a name":    {Event{Data: form(FormField{Kind: "string"})}, "fields.0.name"},
		"field twice":             {Event{Data: form(FormField{Name: "a", Kind: "string"}, FormField{Name: "a", Kind: "string"})}, "fields.1.name"},
		"unknown field kind":      {Event{Data: form(FormField{Name: "a", Kind: "x"})}, "fields.0.kind"},
		"too many choices":        {Event{Data: form(FormField{Name: "a", Kind: "choice", Choices: make([]string, 65)})}, "fields.0.choices"},
		"control in a choice":     {Event{Data: form(FormField{Name: "a", Kind: "choice", Choices: []string{"\x00"}})}, "fields.0.choices"},
		"unknown interrupt":       {Event{Data: InterruptRequested{InterruptID: "i", Kind: "x"}}, "kind"},
		"approval without calls":  {Event{Data: approval()}, "calls"},
		"too many calls":          {Event{Data: approval(make([]ApprovalCall, 33)...)}, "calls"},
		"call twice":              {Event{Data: approval(call, call)}, "calls.1.toolCallId"},
		"nothing allowed":         {Event{Data: approval(ApprovalCall{ToolCallID: "t", Name: "n"})}, "calls.0.allowed"},
		"unknown decision":        {Event{Data: approval(ApprovalCall{ToolCallID: "t", Name: "n", Allowed: []string{"maybe"}})}, "calls.0.allowed"},
		"call with a bad schema":  {Event{Data: approval(ApprovalCall{ToolCallID: "t", Name: "n", Schema: json.RawMessage(`true`), Allowed: []string{"edit"}})}, "calls.0.schema"},
		"call with a torn schema": {Event{Data: approval(ApprovalCall{ToolCallID: "t", Name: "n", Schema: json.RawMessage(`{`), Allowed: []string{"edit"}})}, "calls.0.schema"},
		"call with a long schema": {Event{Data: approval(call, schemaCall("u", 8<<10+1))}, "calls.1.schema"},
		"call with endless space": {Event{Data: approval(ApprovalCall{ToolCallID: "t", Name: "n", Schema: json.RawMessage("{" + strings.Repeat(" ", 16<<10) + "}"), Allowed: []string{"edit"}})}, "calls.0.schema"},
		"schemas above the event": {Event{Data: approval(schemaCalls(8, 8<<10)...)}, ""},
		"call with bad arguments": {Event{Data: approval(ApprovalCall{ToolCallID: "t", Name: "n", Arguments: json.RawMessage(`1`), Allowed: []string{"edit"}})}, "calls.0.arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			v := begun(t, Bounds{})
			was := v.clone()
			out, err := v.Accept(tc.e)
			var invalid *InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("accepted as %+v, error %v", out, err)
			}
			if invalid.Rule != 0 || invalid.Field != tc.field || invalid.Code == "" || invalid.Shape == "" {
				t.Errorf("got %+v, want field %q", invalid, tc.field)
			}
			if !sameState(v, was) {
				t.Error("the refusal changed the state")
			}
		})
	}
}

// schemaCall is a call whose schema has size bytes.
func schemaCall(id string, size int) ApprovalCall {
	const head, tail = `{"description":"`, `"}`
	text := head + strings.Repeat("x", size-len(head)-len(tail)) + tail
	return ApprovalCall{ToolCallID: id, Name: "n", Allowed: []string{"edit"}, Schema: json.RawMessage(text)}
}

func schemaCalls(n, size int) []ApprovalCall {
	out := make([]ApprovalCall, n)
	for i := range out {
		out[i] = schemaCall(fmt.Sprint("t", i), size)
	}
	return out
}

// TestSchemaOfACall: a schema at its bound passes, in canonical form, and as many as fit into the event.
func TestSchemaOfACall(t *testing.T) {
	spaced := schemaCall("spaced", 64)
	spaced.Schema = json.RawMessage("{ \"type\" :\n\"object\" }")
	v := begun(t, Bounds{})
	out, err := v.Accept(Event{Data: InterruptRequested{InterruptID: "i", Kind: InterruptApproval, Calls: append(schemaCalls(7, 8<<10), spaced)}})
	if err != nil {
		t.Fatal(err)
	}
	calls := out[0].Data.(InterruptRequested).Calls
	if got := string(calls[7].Schema); got != `{"type":"object"}` {
		t.Errorf("schema %s", got)
	}
	raw, err := Encode(out[0])
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(raw)
	if err != nil || !reflect.DeepEqual(got, out[0]) {
		t.Errorf("decoded as %+v, %v", got, err)
	}
}

func entries(n, size int) []PlanEntry {
	out := make([]PlanEntry, n)
	for i := range out {
		out[i] = PlanEntry{Content: strings.Repeat("x", size), Status: "pending"}
	}
	return out
}

func details(n int) map[string]any {
	out := map[string]any{}
	for i := range n {
		out[fmt.Sprint("k", i)] = i
	}
	return out
}

func TestInvalidErrorShowsNoValue(t *testing.T) {
	v := begun(t, Bounds{})
	_, err := v.Accept(Event{Namespace: []string{"secret"}, Data: Warning{Code: "secret\x00", Message: "secret", Details: map[string]any{"secret": "secret"}}})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error = %v", err)
	}
	if want := "warning ns=1 code=7B message=6B details[1]"; err.(*InvalidError).Shape != want {
		t.Errorf("shape = %q, want %q", err.(*InvalidError).Shape, want)
	}
}

func TestOpenAndIDLimits(t *testing.T) {
	accept := func(v *Validator, d Data) error { _, err := v.Accept(Event{Data: d}); return err }
	for name, start := range map[string]func(id string) Data{
		"spans":      func(id string) Data { return TextStarted{MessageID: id, Role: "assistant"} },
		"tools":      func(id string) Data { return ToolStarted{ToolCallID: id, Name: "n"} },
		"namespaces": func(id string) Data { return NamespaceEntered{ID: id, Name: "n", ParentToolCallID: "t"} },
	} {
		v := begun(t, Bounds{OpenSpans: 5, OpenTools: 4, OpenNamespaces: 4})
		for i := range 3 {
			if err := accept(v, start(fmt.Sprint(i))); err != nil {
				t.Fatalf("%s %d: %v", name, i, err)
			}
		}
		var invalid *InvalidError
		if err := accept(v, start("3")); !errors.As(err, &invalid) || invalid.Code != "too_many_open" {
			t.Errorf("%s: %v", name, err)
		}
	}
	v := begun(t, Bounds{RunIDs: 4}) // m, r and t are taken
	for i, want := range []bool{true, false, false} {
		id := fmt.Sprint(i)
		err := accept(v, TextStarted{MessageID: id, Role: "assistant"})
		if (err == nil) != want {
			t.Errorf("id %d: %v", i, err)
		}
		if err == nil {
			if err := accept(v, TextFinished{MessageID: id}); err != nil {
				t.Errorf("id %d: %v", i, err)
			}
		}
	}
}

// TestFullRunFitsItsTerminal: with everything open that may be, in the deepest namespace and with the longest ids, the
// closings and the terminal fit into one chunk.
func TestFullRunFitsItsTerminal(t *testing.T) {
	b := DefaultBounds()
	v := NewValidator(b)
	id := func(n int) string {
		s := fmt.Sprint(n)
		return strings.Repeat(`"`, b.IDBytes-len(s)) + s
	}
	must := func(e Event) {
		t.Helper()
		if _, err := v.Accept(e); err != nil {
			t.Fatal(err)
		}
	}
	must(Event{Data: RunStarted{Harness: "h"}})
	var ns []string
	n := 0
	for len(v.OpenNamespaces()) < b.OpenNamespaces {
		n++
		must(Event{Namespace: ns, Data: ToolStarted{ToolCallID: id(n), Name: "n"}})
		must(Event{Namespace: ns, Data: NamespaceEntered{ID: id(n), Name: "n", ParentToolCallID: id(n)}})
		if len(ns) < b.NamespaceDepth-1 {
			ns = append(ns, id(n))
		}
	}
	for len(v.OpenTools()) < b.OpenTools {
		n++
		must(Event{Namespace: ns, Data: ToolStarted{ToolCallID: id(n), Name: "n"}})
	}
	for range b.OpenSpans {
		n++
		must(Event{Namespace: ns, Data: TextStarted{MessageID: id(n), Role: "assistant"}})
	}
	out, err := v.Accept(Event{Data: RunError{Code: id(0), Message: strings.Repeat(`"`, 1<<20), Category: CategoryInternal}})
	if err != nil {
		t.Fatal(err)
	}
	if want := b.OpenNamespaces + b.OpenTools + b.OpenSpans + 1; len(out) != want {
		t.Errorf("%d events, want %d", len(out), want)
	}
	c, err := NewChunk(ChunkHeader{RunID: "r", SessionID: "s", First: 1, Gen: 1, Writer: "w"}, out)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d events, %d bytes", c.Len(), len(c.Body))
}

func TestNormalisedBounds(t *testing.T) {
	if got := (Bounds{}).normalised(); got != DefaultBounds() {
		t.Errorf("zero bounds become %+v", got)
	}
	huge := Bounds{EventBytes: 1 << 40, IDBytes: 1 << 40, DeltaBytes: 1 << 40, OpenSpans: 1 << 40, NamespaceDepth: 1 << 40}.normalised()
	if huge.EventBytes > MaxChunkBytes/2 || huge.IDBytes != 128 || huge.DeltaBytes > huge.EventBytes/4 || huge.OpenSpans != 64 || huge.NamespaceDepth != 16 {
		t.Errorf("huge bounds become %+v", huge)
	}
	tiny := Bounds{EventBytes: 1, DeltaBytes: 1}.normalised()
	if tiny.EventBytes != minEventBytes || tiny.DeltaBytes != minDeltaBytes {
		t.Errorf("tiny bounds become %+v", tiny)
	}
}
