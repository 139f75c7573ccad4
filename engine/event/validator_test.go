package event

import (
	"errors"
	"reflect"
	"testing"
)

// TestRuleCodes: each rule that a stream can break, by the shortest stream that breaks it.
func TestRuleCodes(t *testing.T) {
	root := func(d Data) Event { return Event{Data: d} }
	in := func(id string, d Data) Event { return Event{Namespace: []string{id}, Data: d} }
	start := root(RunStarted{Harness: "h"})
	text := root(TextStarted{MessageID: "m", Role: "assistant"})
	textDone := root(TextFinished{MessageID: "m"})
	tool := root(ToolStarted{ToolCallID: "t", Name: "n"})
	toolDone := root(ToolFinished{ToolCallID: "t"})
	enter := root(NamespaceEntered{ID: "a", Name: "n", ParentToolCallID: "t"})
	exit := root(NamespaceExited{ID: "a", Outcome: "success"})
	ask := root(InterruptRequested{InterruptID: "i", Kind: InterruptForm, Prompt: "?"})
	paused := root(RunInterrupted{InterruptID: "i"})
	done := root(RunFinished{Outcome: "success", StopReason: "end_turn"})
	fail := root(RunError{Code: "c", Category: CategoryInternal})
	cut := root(ToolError{ToolCallID: "t", Code: CodeRunEnded})
	for _, tc := range []struct {
		name string
		in   []Event
		rule int
		code string
	}{
		{"anything first", []Event{text}, 1, "not_started"},
		{"empty delta first", []Event{root(TextDelta{MessageID: "m"})}, 1, "not_started"},
		{"terminal first", []Event{fail}, 1, "not_started"},
		{"started twice", []Event{start, start}, 1, "started_twice"},
		{"after the end", []Event{start, done, text}, 1, "after_terminal"},
		{"empty delta after the end", []Event{start, done, root(TextDelta{MessageID: "m"})}, 1, "after_terminal"},
		{"two terminals", []Event{start, fail, fail}, 1, "after_terminal"},
		{"recovered after the end", []Event{start, done, root(RunRecovered{Generation: 2})}, 1, "after_terminal"},
		{"recovered first", []Event{root(RunRecovered{Generation: 2})}, 1, "not_started"},
		{"recovered without rise", []Event{start, root(RunRecovered{Generation: 2}), root(RunRecovered{Generation: 2})}, 1, "generation_not_rising"},
		{"terminal in a namespace", []Event{start, tool, enter, in("a", fail.Data)}, 5, "not_at_root"},
		{"delta without start", []Event{start, root(TextDelta{MessageID: "m", Delta: "x"})}, 2, "span_not_started"},
		{"reasoning by a text's id", []Event{start, text, root(ReasoningDelta{MessageID: "m", Delta: "x"})}, 2, "span_not_started"},
		{"delta after finish", []Event{start, text, textDone, root(TextDelta{MessageID: "m", Delta: "x"})}, 2, "span_finished"},
		{"finished twice", []Event{start, text, textDone, textDone}, 2, "span_finished"},
		{"started again", []Event{start, text, textDone, text}, 2, "id_used_twice"},
		{"delta elsewhere", []Event{start, text, tool, enter, in("a", TextDelta{MessageID: "m", Delta: "x"})}, 5, "other_namespace"},
		{"result without start", []Event{start, toolDone}, 3, "tool_not_started"},
		{"arguments without start", []Event{start, root(ToolArgumentsDelta{ToolCallID: "t", Delta: "{"})}, 3, "tool_not_started"},
		{"result twice", []Event{start, tool, toolDone, toolDone}, 3, "tool_ended"},
		{"error after result", []Event{start, tool, toolDone, root(ToolError{ToolCallID: "t", Code: "c"})}, 3, "tool_ended"},
		{"arguments after result", []Event{start, tool, toolDone, root(ToolArgumentsDelta{ToolCallID: "t", Delta: "{"})}, 3, "tool_ended"},
		{"call again", []Event{start, tool, toolDone, tool}, 3, "id_used_twice"},
		{"result elsewhere", []Event{start, tool, enter, in("a", toolDone.Data)}, 5, "other_namespace"},
		{"after a cut", []Event{start, tool, cut, text}, 1, "after_cut_off"},
		{"finished after a cut", []Event{start, tool, cut, done}, 1, "after_cut_off"},
		{"interrupt twice", []Event{start, ask, ask}, 4, "interrupt_twice"},
		{"text after an interrupt", []Event{start, ask, text}, 4, "after_interrupt"},
		{"result after an interrupt", []Event{start, tool, ask, toolDone}, 4, "after_interrupt"},
		{"finished after an interrupt", []Event{start, ask, done}, 4, "after_interrupt"},
		{"interrupted without one", []Event{start, paused}, 4, "interrupt_not_requested"},
		{"interrupted by another", []Event{start, ask, root(RunInterrupted{InterruptID: "j"})}, 4, "interrupt_not_requested"},
		{"unknown namespace", []Event{start, in("a", text.Data)}, 5, "namespace_not_entered"},
		{"exit of the unknown", []Event{start, exit}, 5, "namespace_not_entered"},
		{"exited twice", []Event{start, tool, enter, exit, exit}, 5, "namespace_not_entered"},
		{"entered twice", []Event{start, tool, enter, enter}, 5, "namespace_entered_twice"},
		{"entered without a call", []Event{start, enter}, 5, "parent_tool_not_open"},
		{"entered under an ended call", []Event{start, tool, toolDone, enter}, 5, "parent_tool_not_open"},
		{"exit with a child", []Event{start, tool, enter, in("a", ToolStarted{ToolCallID: "u", Name: "n"}), in("a", NamespaceEntered{ID: "b", Name: "n", ParentToolCallID: "u"}), exit}, 5, "child_namespace_open"},
		{"exit with a span", []Event{start, tool, enter, in("a", text.Data), exit}, 5, "span_open_in_namespace"},
		{"exit with a call", []Event{start, tool, enter, in("a", ToolStarted{ToolCallID: "u", Name: "n"}), exit}, 5, "tool_open_in_namespace"},
		{"finished with a call", []Event{start, tool, done}, 5, "tools_open"},
		{"finished in a namespace", []Event{start, tool, enter, toolDone, done}, 5, "namespaces_open"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := NewValidator(Bounds{})
			last := len(tc.in) - 1
			for i, e := range tc.in[:last] {
				if _, err := v.Accept(e); err != nil {
					t.Fatalf("event %d: %v", i, err)
				}
			}
			var invalid *InvalidError
			if _, err := v.Accept(tc.in[last]); !errors.As(err, &invalid) {
				t.Fatalf("accepted, error %v", err)
			}
			if invalid.Rule != tc.rule || invalid.Code != tc.code || invalid.Shape == "" {
				t.Errorf("got %+v, want rule %d %s", invalid, tc.rule, tc.code)
			}
		})
	}
}

func TestInterruptedRunIsContinued(t *testing.T) {
	v := NewValidator(Bounds{})
	accept := func(v *Validator, events ...Event) {
		t.Helper()
		for _, e := range events {
			if _, err := v.Accept(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	accept(v,
		Event{Data: RunStarted{Harness: "h"}},
		Event{Data: ToolStarted{ToolCallID: "t", Name: "n"}},
		Event{Data: NamespaceEntered{ID: "a", Name: "n", ParentToolCallID: "t"}},
		Event{Namespace: []string{"a"}, Data: ToolStarted{ToolCallID: "u", Name: "n"}},
		Event{Namespace: []string{"a"}, Data: InterruptRequested{InterruptID: "i", Kind: InterruptApproval, Calls: []ApprovalCall{{ToolCallID: "u", Name: "n", Allowed: []string{"reject"}}}}},
		Event{Data: RunInterrupted{InterruptID: "i"}},
	)
	if !v.Ended() || v.Interrupt() != "i" || v.SideEffects() != SideEffectsPossible {
		t.Errorf("state %+v", v.live)
	}
	next := NewValidator(Bounds{})
	if err := next.Inherit(v.Inheritance()); err != nil {
		t.Fatal(err)
	}
	if got := next.OpenTools(); !reflect.DeepEqual(got, []string{"t", "u"}) {
		t.Errorf("open tools %v", got)
	}
	if got := next.OpenNamespaces(); !reflect.DeepEqual(got, [][]string{{"a"}}) {
		t.Errorf("open namespaces %v", got)
	}
	accept(next,
		Event{Data: RunStarted{Harness: "h", Continues: "run_0"}},
		Event{Namespace: []string{"a"}, Data: ToolError{ToolCallID: "u", Code: "rejected"}},
		Event{Data: NamespaceExited{ID: "a", Outcome: "success"}},
		Event{Data: ToolFinished{ToolCallID: "t"}},
		Event{Data: RunFinished{Outcome: "success", StopReason: "end_turn"}},
	)
	if next.SideEffects() != SideEffectsKnown {
		t.Errorf("side effects %s", next.SideEffects())
	}
}

func TestInheritRefuses(t *testing.T) {
	a := []string{"a"}
	for name, in := range map[string]Inheritance{
		"orphan namespace":      {Namespaces: [][]string{{"a", "b"}}},
		"the root":              {Namespaces: [][]string{{}}},
		"namespace twice":       {Namespaces: [][]string{a, a}},
		"tool in no namespace":  {Tools: []OpenTool{{ID: "t", Namespace: a}}},
		"tool twice":            {Tools: []OpenTool{{ID: "t"}, {ID: "t"}}},
		"tool without an id":    {Tools: []OpenTool{{}}},
		"more than may be open": {Tools: make([]OpenTool, 65)},
	} {
		v := NewValidator(Bounds{})
		var invalid *InvalidError
		if err := v.Inherit(in); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
		if !sameState(v, NewValidator(Bounds{})) {
			t.Errorf("%s: the refusal changed the state", name)
		}
	}
	if err := begun(t, Bounds{}).Inherit(Inheritance{Tools: []OpenTool{{ID: "x"}}}); err == nil {
		t.Error("inherited after the start")
	}
}

// TestClonesAreApart: what happens to a copy does not show in the original, nor the other way round.
func TestClonesAreApart(t *testing.T) {
	v := begun(t, Bounds{})
	for _, id := range []string{"1", "2", "3", "4"} { // spare room behind the slices
		for _, d := range []Data{TextStarted{MessageID: id, Role: "assistant"}, ToolStarted{ToolCallID: id, Name: "n"}} {
			if _, err := v.Accept(Event{Data: d}); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := v.clone()
	for who, id := range map[*Validator]string{v: "v", c: "c"} {
		for _, d := range []Data{TextStarted{MessageID: id, Role: "assistant"}, ToolStarted{ToolCallID: id, Name: "n"}, NamespaceEntered{ID: id, Name: "n", ParentToolCallID: "1"}} {
			if _, err := who.Accept(Event{Data: d}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for who, id := range map[*Validator]string{v: "v", c: "c"} {
		if got := who.OpenText(); !reflect.DeepEqual(got, []string{"m", "1", "2", "3", "4", id}) {
			t.Errorf("%s has messages %v", id, got)
		}
		if got := who.OpenTools(); !reflect.DeepEqual(got, []string{"t", "1", "2", "3", "4", id}) {
			t.Errorf("%s has tools %v", id, got)
		}
		if got := who.OpenNamespaces(); !reflect.DeepEqual(got, [][]string{{"a"}, {id}}) {
			t.Errorf("%s has namespaces %v", id, got)
		}
	}
}

func TestSuppliedTerminals(t *testing.T) {
	thread := ThreadState{Durability: DurabilityLocal}
	for name, tc := range map[string]struct {
		make      func(v *Validator) Event
		category  Category
		code      string
		retryable bool
	}{
		"bad event":    {func(v *Validator) Event { return ErrorTerminal(v, thread) }, CategoryProtocol, CodeEventInvalid, false},
		"stream ended": {func(v *Validator) Event { return MissingTerminal(v, CategoryProtocol, thread) }, CategoryProtocol, CodeTerminalMissing, false},
		"stream lost":  {func(v *Validator) Event { return MissingTerminal(v, CategoryUnavailable, thread) }, CategoryUnavailable, CodeTerminalMissing, true},
	} {
		fresh := NewValidator(Bounds{})
		if _, err := fresh.Accept(Event{Data: RunStarted{Harness: "h"}}); err != nil {
			t.Fatal(err)
		}
		for v, side := range map[*Validator]SideEffects{fresh: SideEffectsNone, begun(t, Bounds{}): SideEffectsPossible} {
			out, err := v.Accept(tc.make(v))
			if err != nil {
				t.Fatal(err)
			}
			d := out[len(out)-1].Data.(RunError)
			want := tc.retryable && side == SideEffectsNone
			if d.Category != tc.category || d.Code != tc.code || d.SideEffects != side || d.Retryable != want || d.Thread != thread || d.Message == "" {
				t.Errorf("%s: %+v", name, d)
			}
		}
	}
}
