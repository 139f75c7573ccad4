package event

import "slices"

const (
	// CodeRunEnded is the code of the tool.error that the engine writes for a call that is open when its run ends.
	CodeRunEnded = "run_ended"
	// CodeOutcomeUnknown is the code of the tool.error of a call that may have had its effects: it was begun, and nobody can
	// tell how it ended.
	CodeOutcomeUnknown = "outcome_unknown"
	// CodeTerminalMissing is the code of the run.error of a run whose stream ended without a terminal.
	CodeTerminalMissing = "terminal_missing"

	messageRunEnded = "The run ended before the tool answered."
)

// Validator is the state machine of one run's stream. The worker runs it over what a driver yields, and the Writer
// runs it again before anything is appended.
//
// The rules that a stream can show (docs/events.md):
//
//  1. run.started first and once; exactly one terminal, at the root; nothing after it. run.recovered only between
//     the two, with rising generations.
//  2. Text and reasoning: started before delta, finished once, ids never reused.
//  3. Tools: started before arguments, result or error; one of finished or error, once; ids never reused.
//  4. interrupt.requested at most once, followed only by span closings and a run.interrupted that names it. The
//     engine may still end such a run by run.error or run.cancelled, and fence it by run.recovered.
//  5. Namespaces balance: entered under an open tool call, exited with nothing open inside; every event names an
//     entered namespace, and a span's or call's events the one it was started in. At run.finished no tool and no
//     namespace is open; at run.interrupted they may be, and the run that continues it inherits them.
//
// What is repaired; everything else that breaks a rule or a bound is an *InvalidError:
//
//	empty delta                                            dropped
//	delta above Bounds.DeltaBytes                          split, never inside a rune
//	tool.started arguments above Bounds.DeltaBytes         follow as tool.arguments.delta
//	tool result that does not fit into Bounds.EventBytes   cut, truncated = true
//	display text with controls or invalid UTF-8            replaced, by the table of cleanText
//	display text above its bound                           cut, with an ellipsis
//	spans open at a terminal                               text.finished or reasoning.finished before it
//	tools open at run.error or run.cancelled               tool.error with code run_ended before it
//	namespaces open at run.error or run.cancelled          namespace.exited before it, innermost first
//	side effects absent or stated lower than the stream    set to what the stream shows
//
// The zero Validator is not usable. A Validator is not safe for concurrent use.
type Validator struct {
	bounds Bounds
	live   live
	seen   map[string]struct{} // every id of the run, with its kind before it
	added  []string            // ids that the call in progress added, for rollback
}

// live is the part of the state that is small. Its slices are replaced and never written to in place, so a copy of
// the struct is a snapshot.
type live struct {
	begun, ended bool
	generation   int64 // highest of run.recovered
	spans        []openSpan
	tools        []OpenTool
	namespaces   [][]string
	interrupt    string // id of the requested interrupt
	lastText     string // id of the message started last at the root
	toolsRan     bool
	toolsCut     bool // a tool was closed by the engine
	inherited    bool
	cutting      bool // tools or namespaces were cut off: only the terminal may follow
}

type openSpan struct {
	kind Type // TypeTextStarted or TypeReasoningStarted
	id   string
	ns   []string
}

// OpenTool is a tool call without its end, and the namespace in which it was started.
type OpenTool struct {
	ID        string   `json:"id"`
	Namespace []string `json:"namespace,omitempty"` // absent at the root
}

// Inheritance is what a run that continues an interrupted one finds open. Its JSON is part of the worker protocol and
// gives back the same value.
type Inheritance struct {
	Tools      []OpenTool `json:"tools,omitempty"`      // in the order in which they were started
	Namespaces [][]string `json:"namespaces,omitempty"` // parents before children
}

// Empty reports whether nothing is inherited.
func (i Inheritance) Empty() bool { return len(i.Tools) == 0 && len(i.Namespaces) == 0 }

// NewValidator returns the state before run.started. Zero fields of b mean the defaults.
func NewValidator(b Bounds) *Validator {
	return &Validator{bounds: b.normalised(), seen: map[string]struct{}{}}
}

// Inherit gives a run what the run that it continues left open. It comes before run.started, which must then name
// the continued run.
func (v *Validator) Inherit(in Inheritance) error {
	if v.live.begun || v.live.inherited {
		return &InvalidError{Rule: 5, Code: "inherits_late"}
	}
	if len(in.Tools) > v.bounds.OpenTools || len(in.Namespaces) > v.bounds.OpenNamespaces {
		return &InvalidError{Code: "too_many_open"}
	}
	if in.Empty() {
		return nil
	}
	next := v.live
	next.inherited = true
	for _, ns := range in.Namespaces {
		if len(ns) == 0 || !next.entered(ns[:len(ns)-1]) || next.entered(ns) {
			return &InvalidError{Rule: 5, Code: "namespace_not_entered", Field: "namespace"}
		}
		next.namespaces = with(next.namespaces, slices.Clone(ns))
	}
	for _, t := range in.Tools {
		if t.ID == "" || !next.entered(t.Namespace) || next.toolIndex(t.ID) >= 0 {
			return &InvalidError{Rule: 5, Code: "namespace_not_entered", Field: "namespace"}
		}
		next.tools = with(next.tools, OpenTool{ID: t.ID, Namespace: slices.Clone(t.Namespace)})
	}
	next.toolsRan = len(in.Tools) > 0
	for _, t := range in.Tools {
		v.seen[toolKey(t.ID)] = struct{}{}
	}
	v.live = next
	return nil
}

// Accept judges e after everything accepted before it and returns what is to be written for it, repaired: none for
// an empty delta, several for a long one, the closings before a terminal. It returns an *InvalidError for what the
// table does not repair; the validator is then as it was before the call.
func (v *Validator) Accept(e Event) ([]Event, error) {
	events, _, err := v.accept(e)
	return events, err
}

// accept also returns the ids that it added, which a caller needs to undo it.
func (v *Validator) accept(e Event) ([]Event, []string, error) {
	if v.live.ended {
		return nil, nil, &InvalidError{Rule: 1, Code: "after_terminal", Shape: shapeOf(e)}
	}
	events, err := v.bounds.clean(e)
	if err != nil {
		return nil, nil, err
	}
	if len(events) == 0 && !v.live.begun {
		return nil, nil, &InvalidError{Rule: 1, Code: "not_started", Shape: shapeOf(e)}
	}
	if len(events) == 1 && events[0].Type().Terminal() {
		events = v.closings(events[0])
	}
	point := v.checkpoint()
	for i := range events {
		events[i].Data = v.stated(events[i].Data)
		if err := v.step(events[i]); err != nil {
			v.rollback(point)
			err.Shape = shapeOf(e)
			return nil, nil, err
		}
	}
	return events, v.added, nil
}

// fold takes over one event of a log: the rules hold, but the bounds are those under which it was written.
func (v *Validator) fold(e Event) error {
	v.added = nil
	if err := v.step(e); err != nil {
		err.Shape = shapeOf(e)
		return err
	}
	return nil
}

// closings puts before a terminal what has to be closed for it.
func (v *Validator) closings(terminal Event) []Event {
	if !v.live.begun || len(terminal.Namespace) > 0 {
		return []Event{terminal} // step refuses it
	}
	at := func(ns []string, d Data) Event { return Event{Time: terminal.Time, Namespace: ns, Data: d} }
	var out []Event
	for _, s := range v.live.spans {
		if s.kind == TypeTextStarted {
			out = append(out, at(s.ns, TextFinished{MessageID: s.id}))
		} else {
			out = append(out, at(s.ns, ReasoningFinished{MessageID: s.id}))
		}
	}
	outcome, cut := cutOutcomes[terminal.Type()]
	if !cut {
		return append(out, terminal)
	}
	for _, t := range v.live.tools {
		out = append(out, at(t.Namespace, ToolError{ToolCallID: t.ID, Code: CodeRunEnded, Message: messageRunEnded}))
	}
	for _, ns := range slices.Backward(v.live.namespaces) {
		out = append(out, at(parentOf(ns), NamespaceExited{ID: ns[len(ns)-1], Outcome: outcome}))
	}
	return append(out, terminal)
}

// cutOutcomes names the terminals that cut tools and namespaces off, and how their namespaces then end.
var cutOutcomes = map[Type]string{TypeRunError: "error", TypeRunCancelled: "cancelled"}

func parentOf(ns []string) []string {
	if len(ns) == 1 {
		return nil
	}
	return ns[:len(ns)-1]
}

// stated raises the side effects of a terminal to what the stream shows.
func (v *Validator) stated(d Data) Data {
	switch d := d.(type) {
	case RunError:
		d.SideEffects = atLeast(d.SideEffects, v.SideEffects())
		return d
	case RunCancelled:
		d.SideEffects = atLeast(d.SideEffects, v.SideEffects())
		return d
	}
	return d
}

// sideEffectOrder sorts the statements from the least alarming.
var sideEffectOrder = []SideEffects{"", SideEffectsNone, SideEffectsKnown, SideEffectsPossible}

func atLeast(stated, shown SideEffects) SideEffects {
	if slices.Index(sideEffectOrder, stated) < slices.Index(sideEffectOrder, shown) {
		return shown
	}
	return stated
}

// Begun reports whether run.started was accepted.
func (v *Validator) Begun() bool { return v.live.begun }

// Ended reports whether a terminal was accepted.
func (v *Validator) Ended() bool { return v.live.ended }

// SideEffects says what the stream so far shows: none when no tool was ever started, known when every started tool
// answered by itself, possible otherwise.
func (v *Validator) SideEffects() SideEffects {
	switch {
	case !v.live.toolsRan:
		return SideEffectsNone
	case len(v.live.tools) > 0 || v.live.toolsCut:
		return SideEffectsPossible
	}
	return SideEffectsKnown
}

// OpenTools lists the ids of the open tool calls in the order in which they were started.
func (v *Validator) OpenTools() []string {
	ids := make([]string, len(v.live.tools))
	for i, t := range v.live.tools {
		ids[i] = t.ID
	}
	return ids
}

// OpenNamespaces lists the paths of the open namespaces, parents before children.
func (v *Validator) OpenNamespaces() [][]string {
	out := make([][]string, len(v.live.namespaces))
	for i, ns := range v.live.namespaces {
		out[i] = slices.Clone(ns)
	}
	return out
}

// OpenText lists the ids of the open messages, in every namespace.
func (v *Validator) OpenText() []string { return v.open(TypeTextStarted) }

// OpenReasoning lists the ids of the open spans of reasoning, in every namespace.
func (v *Validator) OpenReasoning() []string { return v.open(TypeReasoningStarted) }

func (v *Validator) open(kind Type) []string {
	ids := []string{}
	for _, s := range v.live.spans {
		if s.kind == kind {
			ids = append(ids, s.id)
		}
	}
	return ids
}

// LastText is the id of the message that was started last at the root, or empty.
func (v *Validator) LastText() string { return v.live.lastText }

// Interrupt is the id of the interrupt that was requested, or empty.
func (v *Validator) Interrupt() string { return v.live.interrupt }

// Generation is the highest generation of a run.recovered, or 0.
func (v *Validator) Generation() int64 { return v.live.generation }

// Inheritance is what a run that continues this one has to inherit.
func (v *Validator) Inheritance() Inheritance {
	var in Inheritance
	for _, ns := range v.live.namespaces {
		in.Namespaces = append(in.Namespaces, slices.Clone(ns))
	}
	for _, t := range v.live.tools {
		in.Tools = append(in.Tools, OpenTool{ID: t.ID, Namespace: slices.Clone(t.Namespace)})
	}
	return in
}

// clone copies the state.
func (v *Validator) clone() *Validator {
	c := &Validator{bounds: v.bounds, live: v.live, seen: make(map[string]struct{}, len(v.seen))}
	for k := range v.seen {
		c.seen[k] = struct{}{}
	}
	return c
}

// checkpoint marks the state that rollback returns to; one at a time.
func (v *Validator) checkpoint() live {
	v.added = nil
	return v.live
}

func (v *Validator) rollback(point live) {
	v.live = point
	for _, k := range v.added {
		delete(v.seen, k)
	}
	v.added = nil
}

// ErrorTerminal is the terminal of a run whose stream broke a rule. It shows nothing of the bad event.
func ErrorTerminal(v *Validator, t ThreadState) Event {
	return Event{Data: RunError{
		Code: CodeEventInvalid, Message: "The harness sent an event that the protocol does not allow.",
		Category: CategoryProtocol, SideEffects: v.SideEffects(), Thread: t,
	}}
}

// MissingTerminal is the terminal of a run whose stream ended without one: category protocol where the harness ended
// its stream, unavailable where it was lost.
func MissingTerminal(v *Validator, c Category, t ThreadState) Event {
	return Event{Data: RunError{
		Code: CodeTerminalMissing, Message: "The harness ended without saying how.",
		Category: c, Retryable: c == CategoryUnavailable && v.SideEffects() == SideEffectsNone,
		SideEffects: v.SideEffects(), Thread: t,
	}}
}

// Fold takes over one event of a log, for whoever checks logs: the rules hold, but the bounds are those under which it was
// written. It fails with *InvalidError for an event that may not follow what was folded before.
func (v *Validator) Fold(e Event) error { return v.fold(e) }
