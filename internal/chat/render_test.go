package chat

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/internal/client"
)

// drawn draws events on one sheet without colours.
func drawn(columns int, events ...client.Event) string {
	var out strings.Builder
	sheet := newSheet(&out, false)
	r := newRenderer(sheet, sheet, func() int { return columns })
	for _, e := range events {
		r.event(e)
	}
	r.close()
	_ = r.flush() // to memory
	return out.String()
}

func number(n int64) *int64 { return &n }

func TestRender(t *testing.T) {
	begin := time.Date(2026, 5, 4, 12, 30, 0, 0, time.UTC)
	text := func(id, delta string) client.Event {
		return client.Event{Type: client.TextDelta, MessageID: id, Delta: delta}
	}
	started := func(id, name, arguments string) client.Event {
		return client.Event{Type: client.ToolStarted, ToolCallID: id, Name: name, Arguments: json.RawMessage(arguments)}
	}
	finished := func(id, result string) client.Event {
		return client.Event{Type: client.ToolFinished, ToolCallID: id, Result: result}
	}
	cost := 0.0123
	for _, tc := range []struct {
		name   string
		events []client.Event
		want   string
	}{
		{"text in deltas", []client.Event{text("m", "Hel"), text("m", "lo\n"), text("m", "you")}, "Hello\nyou\n"},
		{"two messages", []client.Event{text("m", "one"), {Type: client.TextFinished, MessageID: "m"}, text("n", "two")}, "one\ntwo\n"},
		{"return cut between deltas", []client.Event{text("m", "a\r"), text("m", "\nb\r"), text("m", "c\r")}, "a\nb␍c␍\n"},
		{"escape cut between deltas", []client.Event{text("m", "\x1b"), text("m", "[2J")}, "␛[2J\n"},
		{"reasoning before text", []client.Event{{Type: client.ReasoningDelta, MessageID: "m", Delta: "hm"}, text("m", "yes")}, "hm\nyes\n"},
		{"tool on one line", []client.Event{started("c", "ls", `{"path":"/a","n":[1, 2]}`), finished("c", "x\ny")}, "● ls(path: \"/a\", n: [1,2]) → x y\n"},
		{"tool with text between", []client.Event{started("c", "ls", `{"path":"/a"}`), text("m", "wait"), finished("c", "x")}, "● ls(path: \"/a\")\nwait\n● ls → x\n"},
		{"two tools at once", []client.Event{started("c", "a", `{}`), started("d", "b", `{}`), finished("c", "1"), finished("d", "2")}, "● a()\n● b()\n● a → 1\n● b → 2\n"},
		{"streamed arguments", []client.Event{started("c", "ls", ``), {Type: client.ToolArgumentsDelta, ToolCallID: "c", Delta: `{"a":{"b":1}`},
			{Type: client.ToolArgumentsDelta, ToolCallID: "c", Delta: `}`}, finished("c", "x")}, "● ls(a: {\"b\":1}) → x\n"},
		{"streamed arguments that are cut off", []client.Event{started("c", "ls", ``), {Type: client.ToolArgumentsDelta, ToolCallID: "c", Delta: `{"a":`}, finished("c", "x")}, "● ls({\"a\":) → x\n"},
		{"tool without arguments", []client.Event{started("c", "ls", `null`), finished("c", "x")}, "● ls() → x\n"},
		{"arguments that are no object", []client.Event{started("c", "ls", `[1,"a"]`), finished("c", "")}, "● ls([1,\"a\"]) → \n"},
		{"tool error", []client.Event{started("c", "rm", `{}`), {Type: client.ToolError, ToolCallID: "c", Code: "denied", Message: "No."}}, "● rm() → ERROR denied: No.\n"},
		{"result of a call from before", []client.Event{finished("z", "x")}, "● tool() → x\n"},
		{"cut result", []client.Event{started("c", "ls", `{}`), {Type: client.ToolFinished, ToolCallID: "c", Result: "x", Truncated: true}}, "● ls() → x…\n"},
		{"long line", []client.Event{started("c", "ls", `{"path":"`+strings.Repeat("p", 200)+`"}`), finished("c", strings.Repeat("r", 200))},
			"● ls(path: \"" + strings.Repeat("p", 40) + "… → " + strings.Repeat("r", 22) + "…\n"},
		{"plan", []client.Event{{Type: client.PlanUpdated, Entries: []client.PlanEntry{{Content: "a", Status: "completed"}, {Content: "b", Status: "in_progress"}, {Content: "c", Status: "pending"}, {Content: "d", Status: "odd"}}}},
			"plan\n  ✓ a\n  ▸ b\n  ○ c\n  ? d\n"},
		{"plan again", []client.Event{{Type: client.PlanUpdated, Entries: []client.PlanEntry{{Content: "a", Status: "pending"}}}, {Type: client.PlanUpdated, Entries: []client.PlanEntry{{Content: "a", Status: "pending"}}}}, "plan\n  ○ a\n"},
		{"warning", []client.Event{text("m", "x"), {Type: client.Warning, Code: "w", Message: "careful"}}, "x\n! w: careful\n"},
		{"delegated agent", []client.Event{
			{Type: client.NamespaceEntered, ChildID: "k", Name: "helper"},
			{Type: client.TextDelta, MessageID: "m", Delta: "a\nb", Namespace: []string{"k"}},
			{Type: client.ToolStarted, ToolCallID: "c", Name: "ls", Arguments: json.RawMessage(`{}`), Namespace: []string{"k"}},
			{Type: client.ToolFinished, ToolCallID: "c", Result: "x", Namespace: []string{"k"}},
			{Type: client.NamespaceExited, ChildID: "k", Outcome: "success"},
		}, "↳ helper\n  a\n  b\n  ● ls() → x\n↳ helper success\n"},
		{"usage and duration", []client.Event{
			{Type: client.RunStarted, Time: begin}, text("m", "x"),
			{Type: client.UsageUpdated, Usage: &client.Usage{InputTokens: number(12), OutputTokens: number(3), Cost: &cost, Currency: "USD"}},
			{Type: client.RunFinished, Time: begin.Add(2345 * time.Millisecond), StopReason: "end_turn"},
		}, "x\n— 12 in · 3 out · 0.0123 USD · 2.3s\n"},
		{"nothing known", []client.Event{text("m", "x"), {Type: client.RunFinished, StopReason: "end_turn"}}, "x\n"},
		{"stopped early", []client.Event{text("m", "x"), {Type: client.RunFinished, StopReason: "max_tokens"}}, "x\n! stopped: max_tokens\n"},
		{"cancelled", []client.Event{text("m", "x"), {Type: client.RunCancelled, Reason: "client_request", SideEffects: "none"}}, "x\n■ cancelled (client_request); side effects: none\n"},
		{"failed", []client.Event{{Type: client.RunFailed, Failure: &client.Failure{Code: "c", Message: "m", Retryable: true, SideEffects: "possible"}}},
			"✗ c: m (side effects: possible) (it may work when tried again)\n"},
		{"engine started again", []client.Event{text("m", "x"), {Type: client.RunRecovered}, text("m", "y")}, "x\n(the engine was started again; the run goes on)\ny\n"},
		{"unknown type", []client.Event{{Type: "moon.rose"}}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := drawn(80, tc.events...); got != tc.want {
				t.Errorf("got\n%q, want\n%q", got, tc.want)
			}
		})
	}
}

// Every event type that a client knows has its drawing, or is known to have none.
func TestEveryTypeIsDrawn(t *testing.T) {
	silent := []string{client.TextStarted, client.ReasoningStarted, client.InterruptRequested}
	if got, want := len(drawers)+len(silent), 22; got != want {
		t.Errorf("%d types are drawn or left out, docs/events.md has %d", got, want)
	}
}

// ours are the sequences that a sheet writes.
var ours = regexp.MustCompile(`\x1b\[(?:0|1|2|31|33|36)m`)

// Whatever strings an event has, in whatever order events come, nothing commands the terminal.
func TestRenderIsHarmless(t *testing.T) {
	kinds := make([]string, 0, len(drawers))
	for kind := range drawers {
		kinds = append(kinds, kind)
	}
	text := hostile()
	one := rapid.Custom(func(t *rapid.T) client.Event {
		e := client.Event{Type: rapid.SampledFrom(kinds).Draw(t, "type"), Failure: &client.Failure{}, Usage: &client.Usage{}}
		v := reflect.ValueOf(&e).Elem()
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.String && v.Type().Field(i).Name != "Type" && f.CanSet() {
				f.SetString(text.Draw(t, "value"))
			}
		}
		e.Namespace = rapid.SliceOfN(text, 0, 3).Draw(t, "namespace")
		e.Failure.Code, e.Failure.Message, e.Failure.SideEffects = text.Draw(t, "code"), text.Draw(t, "message"), text.Draw(t, "effects")
		e.Usage.Cost, e.Usage.Currency = new(float64), text.Draw(t, "currency")
		e.Entries = []client.PlanEntry{{Content: text.Draw(t, "content"), Status: text.Draw(t, "status")}}
		if rapid.Bool().Draw(t, "object") {
			e.Arguments, _ = json.Marshal(map[string]string{text.Draw(t, "key"): text.Draw(t, "argument")})
		} else {
			e.Arguments = json.RawMessage(text.Draw(t, "arguments"))
		}
		return e
	})
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOf(one).Draw(t, "events")
		var out strings.Builder
		sheet := newSheet(&out, true)
		r := newRenderer(sheet, sheet, func() int { return 80 })
		for _, e := range events {
			r.event(e)
		}
		r.close()
		_ = r.flush() // to memory
		for _, c := range ours.ReplaceAllString(out.String(), "") {
			if c != '\n' && c != '\t' && !harmless(c) {
				t.Fatalf("%U in %q", c, out.String())
			}
		}
	})
}

func TestFit(t *testing.T) {
	for _, tc := range []struct {
		in   string
		n    int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"日本語", 6, "日本語"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"a", 0, ""}, {"é́é́é́", 3, "é́é́é́"}, {"", 5, ""},
	} {
		if got := fit(tc.in, tc.n); got != tc.want || columnsOf(got) > tc.n {
			t.Errorf("fit(%q, %d) = %q of %d columns, want %q", tc.in, tc.n, got, columnsOf(got), tc.want)
		}
	}
}

func TestSheetEndsStylesWithTheLine(t *testing.T) {
	var out strings.Builder
	s := newSheet(&out, true)
	s.write(faint, "a\nb")
	s.line(red, "c")
	_ = s.flush() // to memory
	if got, want := out.String(), "\x1b[2ma\x1b[0m\n\x1b[2mb\x1b[0m\n\x1b[31mc\x1b[0m\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
