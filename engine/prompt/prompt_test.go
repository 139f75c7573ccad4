package prompt

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/problem"
)

func TestRender(t *testing.T) {
	vars := map[string]string{"name": "Ada", "empty": "", "tricky": "{{name}} {{{{ }}"}
	for _, c := range []struct{ name, system, want, wrong string }{
		{name: "nothing"},
		{name: "plain", system: "Be brief.", want: "Be brief."},
		{name: "variable", system: "Hi {{name}}!", want: "Hi Ada!"},
		{name: "white space", system: "{{ name }}{{\n\tname}}", want: "AdaAda"},
		{name: "empty value", system: "a{{empty}}b", want: "ab"},
		{name: "builtin", system: "You are {{agent.name}}.", want: "You are Bot."},
		{name: "values are not expanded", system: "{{tricky}}", want: "{{name}} {{{{ }}"},
		{name: "escape", system: "{{{{name}} {{name}}", want: "{{name}} Ada"},
		{name: "escape only", system: "{{{{", want: "{{"},
		{name: "closing braces are literal", system: "a }} b", want: "a }} b"},
		{name: "single braces are literal", system: `{"a":{"b":1} }`, want: `{"a":{"b":1} }`},
		{name: "unknown", system: "{{nobody}}", wrong: "{{nobody}} is not a variable of this agent; it has agent.name, empty, name, tricky"},
		{name: "not closed", system: "a {{name", wrong: "not closed"},
		{name: "no name", system: "{{ 1 + 1 }}", wrong: "not a placeholder"},
		{name: "empty name", system: "{{}}", wrong: "not a placeholder"},
		{name: "three braces", system: "{{{name}}}", wrong: "not a placeholder"},
		{name: "upper case", system: "{{Name}}", wrong: "not a placeholder"},
		{name: "dots", system: "{{agent..name}}", wrong: "not a placeholder"},
		{name: "control characters are not repeated", system: "{{\x1b[2J}}", wrong: `{{\x1b[2J}}`},
		{name: "too long", system: strings.Repeat("x", MaxRenderedBytes+1), wrong: "longer than"},
		{name: "longest", system: strings.Repeat("x", MaxRenderedBytes), want: strings.Repeat("x", MaxRenderedBytes)},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Render(c.system, vars, Builtins{AgentName: "Bot"})
			if c.wrong == "" {
				if err != nil || got != c.want {
					t.Fatalf("got %.80q, %v; want %.80q", got, err, c.want)
				}
				return
			}
			p, ok := problem.As(err)
			if !ok || p.Code != problem.BadUserInput || strings.Join(p.Field, ".") != "prompt.system" || !strings.Contains(p.Message, c.wrong) {
				t.Fatalf("got %v, want a problem of prompt.system with %q", err, c.wrong)
			}
		})
	}
}

// A short prompt with long values must be refused before it fills the memory.
func TestRenderDoesNotMultiply(t *testing.T) {
	_, err := Render(strings.Repeat("{{v}}", 40_000), map[string]string{"v": strings.Repeat("x", 4000)}, Builtins{})
	if !problem.Is(err, problem.BadUserInput) {
		t.Fatalf("got %v", err)
	}
}

func TestVariables(t *testing.T) {
	got, err := Variables("{{b}} {{a}} {{b}} {{{{c}}")
	if err != nil || strings.Join(got, ",") != "a,b" {
		t.Fatalf("got %v, %v", got, err)
	}
}

// Whatever is escaped comes out as it was, and whatever is a value comes out once, as it is.
func TestEscapedTextAndValuesSurvive(t *testing.T) {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("a{} \n.é")), 0, 60, -1)
	rapid.Check(t, func(t *rapid.T) {
		before, value, after := text.Draw(t, "before"), text.Draw(t, "value"), text.Draw(t, "after")
		// A brace at the end of a text would join the placeholder's; the escape then needs something between.
		before = strings.TrimRight(before, "{")
		escape := func(s string) string { return strings.ReplaceAll(s, "{{", "{{{{") }
		got, err := Render(escape(before)+"{{v}}"+escape(after), map[string]string{"v": value}, Builtins{})
		if err != nil || got != before+value+after {
			t.Fatalf("got %q, %v; want %q", got, err, before+value+after)
		}
	})
}

func FuzzRender(f *testing.F) {
	for _, s := range []string{"{{v}}", "{{{{", "{{ v }}", "}}{{", "{{{v}}}"} {
		f.Add(s, "x")
	}
	f.Fuzz(func(t *testing.T, system, value string) {
		got, err := Render(system, map[string]string{"v": value}, Builtins{})
		if err != nil {
			if !problem.Is(err, problem.BadUserInput) {
				t.Fatalf("%q: %v", system, err)
			}
			return
		}
		if len(got) > MaxRenderedBytes {
			t.Fatalf("%d bytes", len(got))
		}
	})
}
