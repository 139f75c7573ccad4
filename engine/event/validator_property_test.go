package event

import (
	"flag"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const testDelta = minDeltaBytes // bytes; the shortest bound, so that splitting is common

func pathOf(ns string) []string {
	if ns == "" {
		return nil
	}
	return strings.Split(ns, "/")
}

// event makes the real event of a token.
func (k token) event() Event {
	var d Data
	switch Type(k.typ) {
	case TypeRunStarted:
		d = RunStarted{Harness: "h", Continues: k.id}
	case TypeRunRecovered:
		d = RunRecovered{Generation: k.gen}
	case TypeTextStarted:
		d = TextStarted{MessageID: k.id, Role: "assistant"}
	case TypeTextDelta:
		d = TextDelta{MessageID: k.id, Delta: k.text}
	case TypeTextFinished:
		d = TextFinished{MessageID: k.id}
	case TypeReasoningStarted:
		d = ReasoningStarted{MessageID: k.id}
	case TypeReasoningDelta:
		d = ReasoningDelta{MessageID: k.id, Delta: k.text}
	case TypeReasoningFinished:
		d = ReasoningFinished{MessageID: k.id}
	case TypeToolStarted:
		d = ToolStarted{ToolCallID: k.id, Name: "n"}
	case TypeToolArgumentsDelta:
		d = ToolArgumentsDelta{ToolCallID: k.id, Delta: k.text}
	case TypeToolFinished:
		d = ToolFinished{ToolCallID: k.id}
	case TypeToolError:
		d = ToolError{ToolCallID: k.id, Code: k.code}
	case TypeInterruptRequested:
		d = InterruptRequested{InterruptID: k.id, Kind: InterruptForm, Prompt: "?"}
	case TypeNamespaceEntered:
		d = NamespaceEntered{ID: k.id, Name: "n", ParentToolCallID: k.parent}
	case TypeNamespaceExited:
		d = NamespaceExited{ID: k.id, Outcome: "success"}
	case TypePlanUpdated:
		d = PlanUpdated{}
	case TypeWarning:
		d = Warning{Code: "c"}
	case TypeUsageUpdated:
		d = UsageUpdated{}
	case TypeRunFinished:
		d = RunFinished{Outcome: "success", StopReason: "end_turn"}
	case TypeRunInterrupted:
		d = RunInterrupted{InterruptID: k.id}
	case TypeRunCancelled:
		d = RunCancelled{Reason: CancelDeadline, SideEffects: SideEffects(k.stated)}
	case TypeRunError:
		d = RunError{Code: "c", Category: CategoryInternal, SideEffects: SideEffects(k.stated)}
	}
	return Event{Namespace: pathOf(k.ns), Data: d}
}

// spelled is a real event as the reference writes it.
func spelled(e Event) string {
	k := token{typ: string(e.Type()), ns: strings.Join(e.Namespace, "/")}
	switch d := e.Data.(type) {
	case RunStarted:
		k.id = d.Continues
	case RunRecovered:
		k.gen = d.Generation
	case TextStarted:
		k.id = d.MessageID
	case TextDelta:
		k.id, k.text = d.MessageID, d.Delta
	case TextFinished:
		k.id = d.MessageID
	case ReasoningStarted:
		k.id = d.MessageID
	case ReasoningDelta:
		k.id, k.text = d.MessageID, d.Delta
	case ReasoningFinished:
		k.id = d.MessageID
	case ToolStarted:
		k.id = d.ToolCallID
	case ToolArgumentsDelta:
		k.id, k.text = d.ToolCallID, d.Delta
	case ToolFinished:
		k.id = d.ToolCallID
	case ToolError:
		k.id, k.code = d.ToolCallID, d.Code
	case InterruptRequested:
		k.id = d.InterruptID
	case NamespaceEntered:
		k.id = d.ID
	case NamespaceExited:
		k.id = d.ID
	case RunInterrupted:
		k.id = d.InterruptID
	case RunCancelled:
		k.stated = string(d.SideEffects)
	case RunError:
		k.stated = string(d.SideEffects)
	}
	return k.String()
}

var (
	bodyTypes = []string{
		"text.started", "text.delta", "text.finished", "text.started", "text.delta", "text.finished",
		"reasoning.started", "reasoning.delta", "reasoning.finished",
		"tool.started", "tool.arguments.delta", "tool.finished", "tool.error", "tool.started", "tool.finished",
		"namespace.entered", "namespace.exited", "namespace.entered", "namespace.exited",
		"plan.updated", "warning", "usage.updated", "run.recovered",
	}
	endTypes = []string{"run.finished", "run.interrupted", "run.cancelled", "run.error", "interrupt.requested", "run.started"}
	spaces   = []string{"", "", "", "a", "a", "a/b", "c"}
	deltas   = []string{"", "x", "short", strings.Repeat("y", testDelta+1), strings.Repeat("é漢🎉", 9), strings.Repeat("z", testDelta)}
)

// oneIn is true once in n draws; unlike a range of integers its draws are even.
func oneIn(t *rapid.T, n int, what string) bool {
	return rapid.SampledFrom(upTo(n)).Draw(t, what) == n-1
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// drawToken draws mostly plausible tokens; most ids are few, so that they meet.
func drawToken(t *rapid.T) token {
	k := token{typ: rapid.SampledFrom(bodyTypes).Draw(t, "type")}
	if oneIn(t, 30, "end?") {
		k.typ = rapid.SampledFrom(endTypes).Draw(t, "end")
	}
	if !strings.HasPrefix(k.typ, "run.") || oneIn(t, 16, "odd?") {
		k.ns = rapid.SampledFrom(spaces).Draw(t, "ns")
	}
	id := func(pool string) string { return string(rapid.SampledFrom([]byte(pool)).Draw(t, "id")) }
	switch {
	case k.typ == "run.started":
		k.id = rapid.SampledFrom([]string{"", "run_0"}).Draw(t, "continues")
	case k.typ == "run.recovered":
		k.gen = rapid.Int64Range(0, 6).Draw(t, "generation")
	case strings.HasPrefix(k.typ, "tool."):
		k.id = id("123456")
	case strings.HasPrefix(k.typ, "text."), strings.HasPrefix(k.typ, "reasoning."):
		k.id = id("mnopq")
	case strings.HasPrefix(k.typ, "namespace."):
		k.id = map[string]string{"": "a", "a": "b", "a/b": "d", "c": "d"}[k.ns]
		if k.ns == "" {
			k.id = id("aac")
		}
		k.parent = id("123456")
		if k.id == "d" { // the reference has no digit for these paths
			k.ns, k.id = "", "c"
		}
	case k.typ == "interrupt.requested", k.typ == "run.interrupted":
		k.id = id("iij")
	}
	switch k.typ {
	case "tool.error":
		k.code = rapid.SampledFrom([]string{"failed", "failed", "failed", "run_ended"}).Draw(t, "code")
	case "text.delta", "reasoning.delta", "tool.arguments.delta":
		k.text = rapid.SampledFrom(deltas).Draw(t, "delta")
	case "run.error", "run.cancelled":
		k.stated = rapid.SampledFrom([]string{"", "none", "known", "possible"}).Draw(t, "side effects")
	}
	return k
}

// drawLikely draws a token that goes on with something that is open. It only steers the generator: both judges judge.
func drawLikely(t *rapid.T, v *Validator) token {
	k := drawToken(t)
	var open []token
	for _, s := range v.live.spans {
		kind := strings.TrimSuffix(string(s.kind), ".started")
		open = append(open, token{typ: kind + ".delta", id: s.id, ns: strings.Join(s.ns, "/")},
			token{typ: kind + ".finished", id: s.id, ns: strings.Join(s.ns, "/")})
	}
	for _, c := range v.live.tools {
		ns := strings.Join(c.Namespace, "/")
		open = append(open, token{typ: "tool.finished", id: c.ID, ns: ns}, token{typ: "tool.arguments.delta", id: c.ID, ns: ns})
		if child, ok := map[string]string{"": "a", "a": "b"}[ns]; ok {
			open = append(open, token{typ: "namespace.entered", id: child, ns: ns, parent: c.ID})
		}
	}
	for _, ns := range v.live.namespaces {
		parent, id := ns[:len(ns)-1], ns[len(ns)-1]
		open = append(open, token{typ: "namespace.exited", id: id, ns: strings.Join(parent, "/")})
		if strings.HasSuffix(k.typ, ".started") && !strings.HasPrefix(k.typ, "run.") {
			k.ns = strings.Join(ns, "/")
			open = append(open, k)
		}
	}
	if len(open) == 0 {
		return k
	}
	next := rapid.SampledFrom(open).Draw(t, "likely")
	if strings.HasSuffix(next.typ, ".delta") {
		next.text = rapid.SampledFrom(deltas).Draw(t, "delta")
	}
	return next
}

func sameState(a, b *Validator) bool {
	return reflect.DeepEqual(plainLive(a.live), plainLive(b.live)) && maps.Equal(a.seen, b.seen)
}

// plainLive makes empty slices nil, which means the same.
func plainLive(l live) live {
	if len(l.spans) == 0 {
		l.spans = nil
	}
	if len(l.tools) == 0 {
		l.tools = nil
	}
	if len(l.namespaces) == 0 {
		l.namespaces = nil
	}
	return l
}

// TestValidatorAgreesWithReference judges at least 10,000 generated sequences as the reference does, event by event:
// the same verdict and the same repaired output. It also checks what must hold for any sequence: a refusal changes
// nothing, a repaired stream is accepted again unchanged, and folding the log gives the live state.
func TestValidatorAgreesWithReference(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	before := checks.Value.String()
	if before == checks.DefValue {
		if err := flag.Set("rapid.checks", "10000"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = flag.Set("rapid.checks", before) }()
	}
	var sequences, accepted, refused, repaired, ended, deep int
	byRule := map[int]int{}
	rapid.Check(t, func(t *rapid.T) {
		sequences++
		bounds := Bounds{DeltaBytes: testDelta}
		v, ref := NewValidator(bounds), newAutomaton(testDelta)
		var in Inheritance
		if oneIn(t, 10, "inherits?") {
			in = Inheritance{
				Tools:      []OpenTool{{ID: "1"}, {ID: "2", Namespace: []string{"a"}}},
				Namespaces: [][]string{{"a"}},
			}
			if err := v.Inherit(in); err != nil {
				t.Fatal(err)
			}
			ref.inherit(map[string]string{"1": "", "2": "a"}, []string{"1", "2"}, []string{"a"})
		}
		var log []Event
		for i := range rapid.SampledFrom(upTo(60)).Draw(t, "length") {
			if v.Ended() && oneIn(t, 3, "enough?") {
				break
			}
			var k token
			switch {
			case i == 0 && !oneIn(t, 20, "start?"):
				k = token{typ: "run.started"}
				if !in.Empty() {
					k.id = "run_0"
				}
			case rapid.Bool().Draw(t, "likely?"):
				k = drawLikely(t, v)
			default:
				k = drawToken(t)
			}
			if k.typ == "run.started" && k.id == "" && !in.Empty() {
				continue // judged by its data, which the reference does not see
			}
			was := v.clone()
			want, ok := ref.judge(k)
			out, err := v.Accept(k.event())
			if (err == nil) != ok {
				t.Fatalf("token %d, %s: reference says %v, validator %v", i, k, ok, err)
			}
			if err != nil {
				refused++
				byRule[err.(*InvalidError).Rule]++
				if !sameState(v, was) {
					t.Fatalf("token %d, %s: a refusal changed the state", i, k)
				}
				continue
			}
			accepted++
			var got []string
			for _, e := range out {
				got = append(got, spelled(e))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("token %d, %s: wrote\n%v, reference\n%v", i, k, got, want)
			}
			if !slices.Equal(got, []string{k.String()}) {
				repaired++
			}
			if len(k.ns) > 0 {
				deep++
			}
			if string(v.SideEffects()) != ref.shown() {
				t.Fatalf("token %d, %s: side effects %s, reference %s", i, k, v.SideEffects(), ref.shown())
			}
			log = append(log, out...)
		}
		if v.Ended() {
			ended++
		}
		folded, again := NewValidator(Bounds{}), NewValidator(bounds)
		if err := folded.Inherit(in); err != nil {
			t.Fatal(err)
		}
		if err := again.Inherit(in); err != nil {
			t.Fatal(err)
		}
		for i, e := range log {
			if err := folded.fold(e); err != nil {
				t.Fatalf("fold of event %d, %s: %v", i, spelled(e), err)
			}
			out, err := again.Accept(e)
			if err != nil || len(out) != 1 || !reflect.DeepEqual(out[0], e) {
				t.Fatalf("event %d, %s, accepted again: %v, %v", i, spelled(e), out, err)
			}
		}
		if !sameState(folded, v) || !sameState(again, v) || !sameState(v.clone(), v) {
			t.Fatalf("fold of the log differs from the live state:\n%+v\n%+v", folded.live, v.live)
		}
	})
	t.Logf("%d sequences: %d events accepted (%d repaired, %d in a namespace), %d refused %v, %d runs ended",
		sequences, accepted, repaired, deep, refused, byRule, ended)
	if before == checks.DefValue && !t.Failed() {
		for what, n := range map[string]int{
			"sequences": sequences - 9_999, "accepted": accepted - 50_000, "repaired": repaired - 10_000, "in a namespace": deep - 1_000,
			"ended": ended - 2_000, "rule 1": byRule[1], "rule 2": byRule[2], "rule 3": byRule[3], "rule 4": byRule[4], "rule 5": byRule[5],
		} {
			if n <= 0 {
				t.Errorf("too few %s: the generator no longer reaches them", what)
			}
		}
	}
}
