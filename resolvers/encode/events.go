package encode

import (
	"maps"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/harness-engine/harness-engine/engine/event"
)

// eventObject is the object type of one type of event.
type eventObject struct {
	typ    event.Type
	object *object[*event.Event]
}

type (
	leaves[D event.Data] map[string]func(w *writer, d D)
	inner                map[string]func(*compiler, ast.SelectionSet) (func(*writer, *event.Event), error)
)

// common are the fields of the interface RunEvent.
var common = map[string]func(*writer, *event.Event){
	"runId":     func(w *writer, e *event.Event) { w.string(e.RunID) },
	"sequence":  func(w *writer, e *event.Event) { w.int(e.Sequence) },
	"time":      func(w *writer, e *event.Event) { w.time(e.Time) },
	"namespace": func(w *writer, e *event.Event) { w.strings(e.Namespace) },
	"type":      func(w *writer, e *event.Event) { w.string(string(e.Type())) },
}

// typed makes the object type of the events with data D.
func typed[D event.Data](name string, own leaves[D], composite inner) eventObject {
	var d D
	o := &object[*event.Event]{name: name, interfaces: []string{"RunEvent"}, leaves: maps.Clone(common), composites: composite}
	for field, write := range own {
		o.leaves[field] = func(w *writer, e *event.Event) { write(w, data[D](w, e)) }
	}
	return eventObject{d.Type(), o}
}

// data is the event's data; events of a decoded chunk hold the structs themselves.
func data[D event.Data](w *writer, e *event.Event) (d D) {
	d, ok := e.Data.(D)
	if !ok {
		w.fail("event %d holds no plain data", e.Sequence)
	}
	return d
}

// within makes a field whose value is an object in the data.
func within[D event.Data, I any](o *object[I], get func(D) I) func(*compiler, ast.SelectionSet) (func(*writer, *event.Event), error) {
	return func(c *compiler, set ast.SelectionSet) (func(*writer, *event.Event), error) {
		steps, err := compile(c, o, set)
		return func(w *writer, e *event.Event) { run(w, steps, get(data[D](w, e))) }, err
	}
}

// each makes a field whose value is a list of objects in the data.
func each[D event.Data, I any](o *object[I], get func(D) []I) func(*compiler, ast.SelectionSet) (func(*writer, *event.Event), error) {
	return func(c *compiler, set ast.SelectionSet) (func(*writer, *event.Event), error) {
		steps, err := compile(c, o, set)
		return func(w *writer, e *event.Event) {
			w.b = append(w.b, '[')
			for i, item := range get(data[D](w, e)) {
				if i > 0 {
					w.b = append(w.b, ',')
				}
				run(w, steps, item)
			}
			w.b = append(w.b, ']')
		}, err
	}
}

// eventObjects are the object types of all events; eventIndex finds one by the event's type.
var (
	eventObjects = []eventObject{
		typed("RunStartedEvent", leaves[event.RunStarted]{
			"harnessId":         func(w *writer, d event.RunStarted) { w.string(d.Harness) },
			"adapterVersion":    func(w *writer, d event.RunStarted) { w.string(d.AdapterVersion) },
			"agentVersion":      func(w *writer, d event.RunStarted) { w.int(d.AgentVersion) },
			"sandboxGeneration": func(w *writer, d event.RunStarted) { w.optionalInt(d.SandboxGeneration) },
			"isolation":         func(w *writer, d event.RunStarted) { w.optional(string(d.Isolation)) },
			"continues":         func(w *writer, d event.RunStarted) { w.optional(d.Continues) },
		}, nil),
		typed("RunRecoveredEvent", leaves[event.RunRecovered]{
			"generation": func(w *writer, d event.RunRecovered) { w.int(d.Generation) },
		}, nil),
		typed("TextStartedEvent", leaves[event.TextStarted]{
			"messageId": func(w *writer, d event.TextStarted) { w.string(d.MessageID) },
			"role":      func(w *writer, d event.TextStarted) { w.string(d.Role) },
		}, nil),
		typed("TextDeltaEvent", leaves[event.TextDelta]{
			"messageId": func(w *writer, d event.TextDelta) { w.string(d.MessageID) },
			"delta":     func(w *writer, d event.TextDelta) { w.string(d.Delta) },
		}, nil),
		typed("TextFinishedEvent", leaves[event.TextFinished]{
			"messageId": func(w *writer, d event.TextFinished) { w.string(d.MessageID) },
		}, nil),
		typed("ReasoningStartedEvent", leaves[event.ReasoningStarted]{
			"messageId": func(w *writer, d event.ReasoningStarted) { w.string(d.MessageID) },
		}, nil),
		typed("ReasoningDeltaEvent", leaves[event.ReasoningDelta]{
			"messageId": func(w *writer, d event.ReasoningDelta) { w.string(d.MessageID) },
			"delta":     func(w *writer, d event.ReasoningDelta) { w.string(d.Delta) },
		}, nil),
		typed("ReasoningFinishedEvent", leaves[event.ReasoningFinished]{
			"messageId": func(w *writer, d event.ReasoningFinished) { w.string(d.MessageID) },
		}, nil),
		typed("ToolStartedEvent", leaves[event.ToolStarted]{
			"toolCallId":      func(w *writer, d event.ToolStarted) { w.string(d.ToolCallID) },
			"name":            func(w *writer, d event.ToolStarted) { w.string(d.Name) },
			"kind":            func(w *writer, d event.ToolStarted) { w.optional(d.Kind) },
			"title":           func(w *writer, d event.ToolStarted) { w.optional(d.Title) },
			"arguments":       func(w *writer, d event.ToolStarted) { w.json(d.Arguments) },
			"parentMessageId": func(w *writer, d event.ToolStarted) { w.optional(d.ParentMessageID) },
		}, nil),
		typed("ToolArgumentsDeltaEvent", leaves[event.ToolArgumentsDelta]{
			"toolCallId": func(w *writer, d event.ToolArgumentsDelta) { w.string(d.ToolCallID) },
			"delta":      func(w *writer, d event.ToolArgumentsDelta) { w.string(d.Delta) },
		}, nil),
		typed("ToolFinishedEvent", leaves[event.ToolFinished]{
			"toolCallId": func(w *writer, d event.ToolFinished) { w.string(d.ToolCallID) },
			"result":     func(w *writer, d event.ToolFinished) { w.string(d.Result) },
			"truncated":  func(w *writer, d event.ToolFinished) { w.bool(d.Truncated) },
			"resultRef":  func(w *writer, d event.ToolFinished) { w.optional(d.ResultRef) },
		}, nil),
		typed("ToolErrorEvent", leaves[event.ToolError]{
			"toolCallId": func(w *writer, d event.ToolError) { w.string(d.ToolCallID) },
			"code":       func(w *writer, d event.ToolError) { w.string(d.Code) },
			"message":    func(w *writer, d event.ToolError) { w.string(d.Message) },
			"retryable":  func(w *writer, d event.ToolError) { w.bool(d.Retryable) },
		}, nil),
		typed("InterruptRequestedEvent", leaves[event.InterruptRequested]{
			"interruptId": func(w *writer, d event.InterruptRequested) { w.string(d.InterruptID) },
			"kind":        func(w *writer, d event.InterruptRequested) { w.kind(d.Kind) },
			"prompt":      func(w *writer, d event.InterruptRequested) { w.optional(d.Prompt) },
			"revision":    func(w *writer, d event.InterruptRequested) { w.int(d.Revision) },
			"deadline":    func(w *writer, d event.InterruptRequested) { w.optionalTime(d.Deadline) },
		}, inner{
			"fields": each(&formField, func(d event.InterruptRequested) []event.FormField { return d.Fields }),
			"calls":  each(&approvalCall, func(d event.InterruptRequested) []event.ApprovalCall { return d.Calls }),
		}),
		typed("NamespaceEnteredEvent", leaves[event.NamespaceEntered]{
			"childId":          func(w *writer, d event.NamespaceEntered) { w.string(d.ID) },
			"name":             func(w *writer, d event.NamespaceEntered) { w.string(d.Name) },
			"parentToolCallId": func(w *writer, d event.NamespaceEntered) { w.string(d.ParentToolCallID) },
		}, nil),
		typed("NamespaceExitedEvent", leaves[event.NamespaceExited]{
			"childId": func(w *writer, d event.NamespaceExited) { w.string(d.ID) },
			"outcome": func(w *writer, d event.NamespaceExited) { w.string(d.Outcome) },
		}, nil),
		typed("PlanUpdatedEvent", leaves[event.PlanUpdated]{}, inner{
			"entries": each(&planEntry, func(d event.PlanUpdated) []event.PlanEntry { return d.Entries }),
		}),
		typed("WarningEvent", leaves[event.Warning]{
			"code":    func(w *writer, d event.Warning) { w.string(d.Code) },
			"message": func(w *writer, d event.Warning) { w.string(d.Message) },
			"details": func(w *writer, d event.Warning) { w.details(d.Details) },
		}, nil),
		typed("UsageUpdatedEvent", leaves[event.UsageUpdated]{}, inner{
			"usage": within(&usage, func(d event.UsageUpdated) event.UsageUpdated { return d }),
		}),
		typed("RunFinishedEvent", leaves[event.RunFinished]{
			"outcome":    func(w *writer, d event.RunFinished) { w.string(d.Outcome) },
			"stopReason": func(w *writer, d event.RunFinished) { w.string(d.StopReason) },
		}, inner{"thread": within(&thread, func(d event.RunFinished) event.ThreadState { return d.Thread })}),
		typed("RunInterruptedEvent", leaves[event.RunInterrupted]{
			"interruptId": func(w *writer, d event.RunInterrupted) { w.string(d.InterruptID) },
			"reason":      func(w *writer, d event.RunInterrupted) { w.string(d.Reason) },
		}, inner{"thread": within(&thread, func(d event.RunInterrupted) event.ThreadState { return d.Thread })}),
		typed("RunCancelledEvent", leaves[event.RunCancelled]{
			"reason":      func(w *writer, d event.RunCancelled) { w.string(string(d.Reason)) },
			"sideEffects": func(w *writer, d event.RunCancelled) { w.string(string(d.SideEffects)) },
		}, inner{"thread": within(&thread, func(d event.RunCancelled) event.ThreadState { return d.Thread })}),
		typed("RunErrorEvent", leaves[event.RunError]{}, inner{
			"error":  within(&runError, func(d event.RunError) event.RunError { return d }),
			"thread": within(&thread, func(d event.RunError) event.ThreadState { return d.Thread }),
		}),
	}
	eventIndex = func() map[event.Type]int {
		index := make(map[event.Type]int, len(eventObjects))
		for i, o := range eventObjects {
			index[o.typ] = i
		}
		return index
	}()
)
