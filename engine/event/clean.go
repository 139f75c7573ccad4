package event

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// clean returns e as it may be written: bounded, safe, split where a delta is long, nothing where a delta is empty.
// It looks at the event alone, not at the stream.
func (b Bounds) clean(e Event) ([]Event, *InvalidError) {
	d, ok := plainData(e.Data)
	if !ok {
		return nil, &InvalidError{Code: "unknown_type", Field: "type", Shape: shapeOf(e)}
	}
	c := cleaner{b: b}
	c.namespace(e.Namespace)
	e.Data = d
	if e.Namespace = slices.Clone(e.Namespace); len(e.Namespace) == 0 {
		e.Namespace = nil
	}
	out := c.data(e)
	if c.err == nil {
		for _, o := range out {
			if c.encodedSize(o) > b.EventBytes {
				c.refuse("event_too_large", "")
			}
		}
	}
	if c.err != nil {
		c.err.Shape = shapeOf(e)
		return nil, c.err
	}
	return out, nil
}

// encodedSize is the size of the event as it will be stored, with a time. Deltas fit by construction.
func (c *cleaner) encodedSize(e Event) int {
	switch e.Data.(type) {
	case TextDelta, ReasoningDelta, ToolArgumentsDelta, TextStarted, TextFinished, ReasoningStarted, ReasoningFinished:
		return 0
	}
	e.Time = time.Unix(0, 0)
	raw, err := Encode(e)
	if err != nil {
		c.refuse("not_encodable", "")
	}
	return len(raw)
}

// data cleans the data of e, by type, and returns what is written for it.
func (c *cleaner) data(e Event) []Event {
	with := func(d Data) []Event { e.Data = d; return []Event{e} }
	switch d := e.Data.(type) {
	case RunStarted:
		c.id("harness", d.Harness)
		c.optional("adapterVersion", d.AdapterVersion)
		c.notNegative("agentVersion", d.AgentVersion)
		c.notNegative("sandboxGeneration", d.SandboxGeneration)
		c.optional("workerInstance", d.WorkerInstance)
		word(c, "isolation", d.Isolation, wordsIsolation)
		c.optional("continues", d.Continues)
	case RunRecovered:
		c.notNegative("generation", d.Generation)
	case TextStarted:
		c.id("messageId", d.MessageID)
		word(c, "role", d.Role, wordsRole)
	case TextDelta:
		c.id("messageId", d.MessageID)
		return c.deltas(e, cleanText(d.Delta), func(s string) Data { return TextDelta{MessageID: d.MessageID, Delta: s} })
	case TextFinished:
		c.id("messageId", d.MessageID)
	case ReasoningStarted:
		c.id("messageId", d.MessageID)
	case ReasoningDelta:
		c.id("messageId", d.MessageID)
		return c.deltas(e, cleanText(d.Delta), func(s string) Data { return ReasoningDelta{MessageID: d.MessageID, Delta: s} })
	case ReasoningFinished:
		c.id("messageId", d.MessageID)
	case ToolStarted:
		return c.toolStarted(e, d)
	case ToolArgumentsDelta:
		c.id("toolCallId", d.ToolCallID)
		if !isPlain(d.Delta, "\t\n") {
			c.refuse("control_character", "delta")
			return nil
		}
		return c.argumentDeltas(e, d.ToolCallID, d.Delta)
	case ToolFinished:
		return with(c.toolFinished(e, d))
	case ToolError:
		c.id("toolCallId", d.ToolCallID)
		c.id("code", d.Code)
		d.Message = c.text(d.Message, c.b.MessageBytes)
		return with(d)
	case InterruptRequested:
		return with(c.interrupt(d))
	case NamespaceEntered:
		c.id("id", d.ID)
		c.id("name", d.Name)
		c.id("parentToolCallId", d.ParentToolCallID)
		if len(e.Namespace) >= c.b.NamespaceDepth {
			c.refuse("too_deep", "namespace")
		}
	case NamespaceExited:
		c.id("id", d.ID)
		word(c, "outcome", d.Outcome, wordsOutcome)
	case PlanUpdated:
		return with(c.plan(d))
	case Warning:
		c.id("code", d.Code)
		d.Message = c.text(d.Message, c.b.MessageBytes)
		d.Details = c.details(d.Details)
		return with(d)
	case UsageUpdated:
		c.usage(d)
	case RunFinished:
		word(c, "outcome", d.Outcome, wordsRunOutcome)
		word(c, "stopReason", d.StopReason, wordsStop)
		c.thread(d.Thread)
	case RunInterrupted:
		c.id("interruptId", d.InterruptID)
		c.optional("reason", d.Reason)
		c.thread(d.Thread)
	case RunCancelled:
		word(c, "reason", d.Reason, wordsCancel)
		word(c, "sideEffects", d.SideEffects, wordsSideEffects)
		c.thread(d.Thread)
	case RunError:
		c.id("code", d.Code)
		word(c, "category", d.Category, wordsCategory)
		word(c, "sideEffects", d.SideEffects, wordsSideEffects)
		c.notNegative("retryAfterMs", d.RetryAfterMs)
		c.thread(d.Thread)
		d.Message = c.text(d.Message, c.b.MessageBytes)
		return with(d)
	}
	return []Event{e}
}

// deltas splits a delta at the bound, on runes; an empty one yields nothing.
func (c *cleaner) deltas(e Event, text string, data func(string) Data) []Event {
	if text == "" {
		return nil
	}
	if len(text) <= c.b.DeltaBytes {
		e.Data = data(text)
		return []Event{e}
	}
	var out []Event
	for _, piece := range splitText(text, c.b.DeltaBytes) {
		e.Data = data(piece)
		out = append(out, e)
	}
	return out
}

func (c *cleaner) argumentDeltas(e Event, call, text string) []Event {
	return c.deltas(e, text, func(s string) Data { return ToolArgumentsDelta{ToolCallID: call, Delta: s} })
}

// toolStarted moves arguments above the delta bound into deltas, which lose nothing and fit.
func (c *cleaner) toolStarted(e Event, d ToolStarted) []Event {
	c.id("toolCallId", d.ToolCallID)
	c.id("name", d.Name)
	c.optional("kind", d.Kind)
	c.optional("parentMessageId", d.ParentMessageID)
	d.Title = c.text(d.Title, c.b.TitleBytes)
	d.Arguments = c.object("arguments", d.Arguments, c.b.ArgumentsBytes)
	var long string
	if len(d.Arguments) > c.b.DeltaBytes {
		long, d.Arguments = string(d.Arguments), nil
	}
	e.Data = d
	return append([]Event{e}, c.argumentDeltas(e, d.ToolCallID, long)...)
}

// toolFinished cuts the display result so that the event fits into its bound.
func (c *cleaner) toolFinished(e Event, d ToolFinished) Data {
	c.id("toolCallId", d.ToolCallID)
	c.optional("resultRef", d.ResultRef)
	result := cleanText(d.Result)
	d.Result = ""
	if c.err != nil {
		return d
	}
	cut := d.Truncated // by the harness itself
	d.Truncated = true // room for the flag, whether it will be needed or not
	e.Data = d
	room := c.b.EventBytes - c.encodedSize(e)
	d.Result = cutEncoded(result, room)
	d.Truncated = cut || len(d.Result) < len(result)
	return d
}

// interrupt checks what a person is asked for: a form with a prompt or fields, or an approval with calls.
func (c *cleaner) interrupt(d InterruptRequested) Data {
	c.id("interruptId", d.InterruptID)
	word(c, "kind", d.Kind, wordsInterrupt)
	c.notNegative("revision", d.Revision)
	c.count("fields", len(d.Fields), c.b.FormFields)
	c.count("calls", len(d.Calls), c.b.Calls)
	if c.err != nil {
		return d
	}
	switch d.Kind {
	case InterruptForm:
		if d.Prompt == "" && len(d.Fields) == 0 {
			c.refuse("missing", "fields")
		}
		c.count("calls", len(d.Calls), 0)
	case InterruptApproval:
		if len(d.Calls) == 0 {
			c.refuse("missing", "calls")
		}
		c.count("fields", len(d.Fields), 0)
	}
	d.Prompt = c.text(d.Prompt, c.b.PromptBytes)
	d.Fields = slices.Clone(d.Fields)
	names := map[string]bool{}
	for i := range d.Fields {
		f := &d.Fields[i]
		path := "fields." + strconv.Itoa(i)
		c.id(path+".name", f.Name)
		c.unique(names, path+".name", f.Name)
		word(c, path+".kind", f.Kind, wordsField)
		f.Label = c.text(f.Label, c.b.TitleBytes)
		c.count(path+".choices", len(f.Choices), c.b.FormChoices)
		for _, choice := range f.Choices {
			if len(choice) > c.b.TitleBytes {
				c.refuse("too_long", path+".choices")
			} else if !isPlain(choice, "") {
				c.refuse("control_character", path+".choices")
			}
		}
	}
	d.Calls = slices.Clone(d.Calls)
	ids := map[string]bool{}
	for i := range d.Calls {
		call := &d.Calls[i]
		path := "calls." + strconv.Itoa(i)
		c.id(path+".toolCallId", call.ToolCallID)
		c.unique(ids, path+".toolCallId", call.ToolCallID)
		c.id(path+".name", call.Name)
		call.Arguments = c.object(path+".arguments", call.Arguments, c.b.CallBytes)
		call.Schema = c.object(path+".schema", call.Schema, c.b.SchemaBytes)
		decisions := map[string]bool{}
		if len(call.Allowed) == 0 {
			c.refuse("missing", path+".allowed")
		}
		c.count(path+".allowed", len(call.Allowed), len(wordsDecision))
		for _, w := range call.Allowed {
			word(c, path+".allowed", w, wordsDecision)
			c.unique(decisions, path+".allowed", w)
		}
	}
	if d.Deadline != nil {
		t := d.Deadline.UTC().Truncate(time.Millisecond)
		d.Deadline = &t
	}
	return d
}

func (c *cleaner) unique(seen map[string]bool, field, s string) {
	if seen[s] {
		c.refuse("duplicate", field)
	}
	seen[s] = true
}

func (c *cleaner) plan(d PlanUpdated) Data {
	c.count("entries", len(d.Entries), c.b.PlanEntries)
	if c.err != nil {
		return d
	}
	entries := make([]PlanEntry, len(d.Entries))
	for i, entry := range d.Entries {
		path := "entries." + strconv.Itoa(i)
		word(c, path+".status", entry.Status, wordsStatus)
		word(c, path+".priority", entry.Priority, wordsPriority)
		entry.Content = c.text(entry.Content, c.b.TitleBytes)
		entries[i] = entry
	}
	d.Entries = entries
	return d
}

func (c *cleaner) usage(d UsageUpdated) {
	for _, f := range []struct {
		name string
		n    *int64
	}{
		{"inputTokens", d.InputTokens}, {"outputTokens", d.OutputTokens},
		{"cachedInputTokens", d.CachedInputTokens}, {"reasoningTokens", d.ReasoningTokens},
	} {
		if f.n != nil {
			c.notNegative(f.name, *f.n)
		}
	}
	if d.Cost != nil && !(*d.Cost >= 0 && !math.IsInf(*d.Cost, 0)) { // NaN too
		c.refuse("not_a_finite_amount", "cost")
	}
	for _, r := range d.Currency {
		if r < 'A' || r > 'Z' {
			c.refuse("unknown_value", "currency")
		}
	}
	if d.Currency != "" && len(d.Currency) != 3 {
		c.refuse("unknown_value", "currency")
	}
}
