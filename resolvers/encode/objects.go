package encode

import (
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/harness-engine/harness-engine/engine/event"
)

type (
	batchLeaves = map[string]func(*writer, *Batch)
	composites  = map[string]func(*compiler, ast.SelectionSet) (func(*writer, *Batch), error)
)

var runBatch = object[*Batch]{
	name: "RunEventBatch",
	leaves: batchLeaves{
		"through":  func(w *writer, b *Batch) { w.int(b.Through) },
		"caughtUp": func(w *writer, b *Batch) { w.bool(b.CaughtUp) },
	},
	composites: composites{"events": events},
}

var sessionBatch = object[*Batch]{
	name: "SessionEventBatch",
	leaves: batchLeaves{
		"runId":    func(w *writer, b *Batch) { w.string(b.RunID) },
		"ord":      func(w *writer, b *Batch) { w.int(b.Ord) },
		"epoch":    func(w *writer, b *Batch) { w.int(b.Epoch) },
		"through":  func(w *writer, b *Batch) { w.string(b.Cursor) },
		"caughtUp": func(w *writer, b *Batch) { w.bool(b.CaughtUp) },
	},
	composites: composites{"events": events},
}

var usage = object[event.UsageUpdated]{
	name: "Usage",
	leaves: map[string]func(*writer, event.UsageUpdated){
		"inputTokens":       func(w *writer, u event.UsageUpdated) { w.pointer(u.InputTokens) },
		"outputTokens":      func(w *writer, u event.UsageUpdated) { w.pointer(u.OutputTokens) },
		"cachedInputTokens": func(w *writer, u event.UsageUpdated) { w.pointer(u.CachedInputTokens) },
		"reasoningTokens":   func(w *writer, u event.UsageUpdated) { w.pointer(u.ReasoningTokens) },
		"cost":              func(w *writer, u event.UsageUpdated) { w.float(u.Cost) },
		"currency":          func(w *writer, u event.UsageUpdated) { w.optional(u.Currency) },
		"final":             func(w *writer, u event.UsageUpdated) { w.bool(u.Final) },
	},
}

var thread = object[event.ThreadState]{
	name: "ThreadState",
	leaves: map[string]func(*writer, event.ThreadState){
		"durability": func(w *writer, t event.ThreadState) {
			switch t.Durability {
			case event.DurabilityNone, event.DurabilityLocal, event.DurabilityCommitted, event.DurabilityUncertain:
				w.string(string(t.Durability))
			default:
				w.fail("a thread of durability %q", t.Durability)
			}
		},
		"revision": func(w *writer, t event.ThreadState) { w.optionalInt(t.Revision) },
	},
}

var runError = object[event.RunError]{
	name: "RunError",
	leaves: map[string]func(*writer, event.RunError){
		"code":         func(w *writer, e event.RunError) { w.string(e.Code) },
		"message":      func(w *writer, e event.RunError) { w.string(e.Message) },
		"category":     func(w *writer, e event.RunError) { w.string(string(e.Category)) },
		"retryable":    func(w *writer, e event.RunError) { w.bool(e.Retryable) },
		"retryAfterMs": func(w *writer, e event.RunError) { w.optionalInt(e.RetryAfterMs) },
		"sideEffects":  func(w *writer, e event.RunError) { w.string(string(e.SideEffects)) },
	},
}

var formField = object[event.FormField]{
	name: "FormField",
	leaves: map[string]func(*writer, event.FormField){
		"name":     func(w *writer, f event.FormField) { w.string(f.Name) },
		"label":    func(w *writer, f event.FormField) { w.optional(f.Label) },
		"kind":     func(w *writer, f event.FormField) { w.string(f.Kind) },
		"required": func(w *writer, f event.FormField) { w.bool(f.Required) },
		"choices":  func(w *writer, f event.FormField) { w.strings(f.Choices) },
	},
}

var approvalCall = object[event.ApprovalCall]{
	name: "ApprovalCall",
	leaves: map[string]func(*writer, event.ApprovalCall){
		"toolCallId": func(w *writer, c event.ApprovalCall) { w.string(c.ToolCallID) },
		"name":       func(w *writer, c event.ApprovalCall) { w.string(c.Name) },
		"arguments":  func(w *writer, c event.ApprovalCall) { w.json(c.Arguments) },
		"allowed":    func(w *writer, c event.ApprovalCall) { w.strings(c.Allowed) },
		"schema":     func(w *writer, c event.ApprovalCall) { w.json(c.Schema) },
	},
}

var planEntry = object[event.PlanEntry]{
	name: "PlanEntry",
	leaves: map[string]func(*writer, event.PlanEntry){
		"content":  func(w *writer, p event.PlanEntry) { w.string(p.Content) },
		"status":   func(w *writer, p event.PlanEntry) { w.string(p.Status) },
		"priority": func(w *writer, p event.PlanEntry) { w.optional(p.Priority) },
	},
}
