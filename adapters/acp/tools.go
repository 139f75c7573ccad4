package acp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/worker"
)

// call is one tool call.
type call struct {
	id      string // canonical
	path    []string
	ended   bool
	input   json.RawMessage // last that was given, until it is shown
	shown   bool            // the arguments are in the log, or said to be left out
	content string          // last that was shown

	name     string
	args     json.RawMessage // as shown, where an approval can show them again
	rejected bool            // a person refused it: it can only end as an error
	unknown  bool            // nobody can tell what became of it
}

// statuses of a tool call, by the protocol.
const (
	statusPending    = "pending"
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusFailed     = "failed"
)

var toolKinds = map[string]bool{
	"read": true, "edit": true, "delete": true, "move": true, "search": true, "execute": true, "think": true,
	"fetch": true, "switch_mode": true, "other": true,
}

const (
	messageOutcomeUnknown = "The harness ended the turn without telling the outcome of this call."
	codeToolFailed        = "tool_failed"
)

// toolCall takes a tool_call or a tool_call_update: the protocol's difference between them does not hold for all
// agents, some of which send only updates.
func (t *translator) toolCall(u update) ([]event.Event, error) {
	if u.ToolCallID == "" {
		return nil, errForm
	}
	c, known := t.known(u.ToolCallID)
	refused := t.profile.Rejected != nil && t.profile.Rejected(u.Meta)
	if known && c.ended || !known && refused { // a refused call that is not open is one of a run that is over
		t.facts.count("acp.late_updates", "tool_call")
		return nil, nil
	}
	var out []event.Event
	if !known {
		var err error
		if c, out, err = t.begin(u); c == nil {
			return nil, err
		}
	} else if !c.shown && !absent(u.RawInput) {
		c.input = u.RawInput
		if running(u.Status) {
			out = append(out, t.showInput(c)...)
		}
	}
	text, shown := shownText(u.Content)
	switch u.Status {
	case statusCompleted, statusFailed:
		// What comes with the end is the outcome; what was shown before may have been a description of the work.
		if !shown && !absent(u.RawOutput) {
			text = rawText(u.RawOutput)
		} else if !shown {
			text = c.content
		}
		c.rejected = c.rejected || refused
		c.unknown = t.profile.OutcomeUnknown != nil && t.profile.OutcomeUnknown(u.Meta)
		out = append(out, t.showInput(c)...)
		out = append(out, t.end(c, ending(c, u.Status, text))...)
	default:
		if shown {
			c.content = cut(text, maxResult)
		}
	}
	return out, nil
}

func running(status string) bool { return status != "" && status != statusPending }

// begin starts a call. Without a call and an error, the update cannot be placed.
func (t *translator) begin(u update) (*call, []event.Event, error) {
	if len(t.calls) >= maxCalls || len(t.open) >= maxOpenCalls {
		return nil, nil, errTooMuch
	}
	path, out, ok := t.enter(u.Meta)
	if !ok {
		return nil, nil, nil
	}
	c := &call{id: t.callID(u.ToolCallID), path: path}
	t.calls[u.ToolCallID] = c
	t.open = append(t.open, c)
	// A message that goes on after the call is another one, so that the order of the log is the order of the work.
	out = append(out, t.closeSpan(pathKey(path))...)
	c.name = t.toolName(u)
	started := event.ToolStarted{ToolCallID: c.id, Name: c.name, Title: label(u.Title, maxTitle)}
	if toolKinds[u.Kind] {
		started.Kind = u.Kind
	}
	if t.profile.ParentMessage != nil {
		started.ParentMessageID = t.native[t.profile.ParentMessage(u.Meta)]
	}
	complete := t.profile.InputComplete || running(u.Status)
	omitted := false
	if !absent(u.RawInput) {
		if complete {
			var fits bool
			started.Arguments, fits = arguments(u.RawInput)
			c.shown, omitted = true, !fits
			c.keep(started.Arguments)
		} else {
			c.input = u.RawInput
		}
	}
	out = append(out, event.Event{Namespace: path, Data: started})
	if omitted {
		out = append(out, t.inputOmitted(c))
	}
	return c, out, nil
}

// showInput tells the arguments that were not complete when the call began.
func (t *translator) showInput(c *call) []event.Event {
	if c.shown || c.input == nil {
		return nil
	}
	c.shown = true
	args, fits := arguments(c.input)
	c.input = nil
	if !fits {
		return []event.Event{t.inputOmitted(c)}
	}
	c.keep(args)
	var out []event.Event
	for _, piece := range pieces(string(args), maxDelta) {
		out = append(out, event.Event{Namespace: c.path, Data: event.ToolArgumentsDelta{ToolCallID: c.id, Delta: piece}})
	}
	return out
}

func (t *translator) inputOmitted(c *call) event.Event {
	return event.Event{Namespace: c.path, Data: event.Warning{
		Code: "tool_input_omitted", Message: "The input of a tool call is too large to be shown.",
		Details: map[string]any{"toolCallId": c.id},
	}}
}

// keep remembers arguments as long as an approval can show them.
func (c *call) keep(args json.RawMessage) {
	if len(args) <= maxAskedArgs {
		c.args = args
	}
}

func ending(c *call, status, text string) event.Data {
	if c.rejected {
		if text == "" {
			text = messageRejected
		}
		return event.ToolError{ToolCallID: c.id, Code: worker.CodeRejected, Message: cut(text, maxMessage)}
	}
	if c.unknown {
		return event.ToolError{ToolCallID: c.id, Code: event.CodeOutcomeUnknown, Message: cut(text, maxMessage)}
	}
	if status == statusFailed {
		return event.ToolError{ToolCallID: c.id, Code: codeToolFailed, Message: cut(text, maxMessage)}
	}
	kept := cut(text, maxResult)
	return event.ToolFinished{ToolCallID: c.id, Result: kept, Truncated: len(kept) < len(text)}
}

// end closes a call, after the delegated agents that work for it.
func (t *translator) end(c *call, outcome event.Data) []event.Event {
	how := "success"
	if outcome.Type() == event.TypeToolError {
		how = "error"
	}
	var out []event.Event
	for {
		i := slices.IndexFunc(t.spaces, func(s space) bool { return s.call == c })
		if i < 0 {
			break
		}
		out = append(out, t.leave(t.spaces[i].path, how)...)
	}
	c.ended = true
	c.content, c.args, c.input = "", nil, nil
	t.open = slices.DeleteFunc(t.open, func(o *call) bool { return o == c })
	return append(out, event.Event{Namespace: c.path, Data: outcome})
}

// closeInside closes the span and the calls of exactly one namespace.
func (t *translator) closeInside(path []string) []event.Event {
	out := t.closeSpan(pathKey(path))
	for _, c := range slices.Clone(t.open) {
		if slices.Equal(c.path, path) {
			out = append(out, t.showInput(c)...)
			out = append(out, t.end(c, unknownEnding(c))...)
		}
	}
	return out
}

// unknownEnding is the end of a call of which the agent never told one.
func unknownEnding(c *call) event.Data {
	if c.rejected {
		return ending(c, statusFailed, "")
	}
	return event.ToolError{ToolCallID: c.id, Code: event.CodeOutcomeUnknown, Message: messageOutcomeUnknown}
}

// toolName is the protocol's name, the profile's, the kind, or "tool". A title is for people and no name.
func (t *translator) toolName(u update) string {
	candidates := []string{u.Name, u.Kind, "tool"}
	if t.profile.ToolName != nil {
		candidates = append([]string{t.profile.ToolName(u.Meta)}, candidates...)
	}
	for _, name := range candidates {
		if name = label(name, maxID); name != "" {
			return name
		}
	}
	return "tool"
}

// callID is the native id where it can be one of ours, else its digest.
func (t *translator) callID(native string) string {
	id := native
	if label(native, maxID) != native || t.used[id] {
		id = digestID(native)
	}
	t.used[id] = true
	return id
}

func digestID(native string) string {
	sum := sha256.Sum256([]byte(native))
	return "call-" + hex.EncodeToString(sum[:])
}
