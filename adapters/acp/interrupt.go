package acp

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
)

// Keys of a `_meta` for interrupts that the agent keeps itself.
const (
	interruptKey = "harness-engine/interrupt" // of the answer to session/prompt
	resumeKey    = "harness-engine/resume"    // of session/prompt
)

const messageRejected = "The call was rejected."

// nativeInterrupt is what an agent of ours says of an interrupt. Its calls name the agent's own ids.
type nativeInterrupt struct {
	Kind   event.InterruptKind  `json:"kind"`
	Prompt string               `json:"prompt"`
	Fields []event.FormField    `json:"fields"`
	Calls  []event.ApprovalCall `json:"calls"`
	Reason string               `json:"reason"`
}

// nativeInterrupt reads the interrupt from a prompt's answer; nil where there is none. Its calls have to be open, and
// their ids such that the decision, which names ours, can be handed back.
func (t *translator) nativeInterrupt(meta json.RawMessage) (*event.InterruptRequested, string, error) {
	raw := metaValue(meta, interruptKey)
	if raw == nil {
		return nil, "", nil
	}
	var n nativeInterrupt
	if json.Unmarshal(raw, &n) != nil {
		return nil, "", fmt.Errorf("bad interrupt: %w", errViolation)
	}
	d := event.InterruptRequested{Kind: n.Kind, Prompt: n.Prompt, Fields: n.Fields}
	for _, call := range n.Calls {
		c, known := t.calls[call.ToolCallID]
		if !known || c.ended || c.id != call.ToolCallID {
			return nil, "", fmt.Errorf("interrupt for a call that is not open: %w", errViolation)
		}
		call.Name = label(call.Name, maxID)
		if args, fits := arguments(call.Arguments); fits {
			call.Arguments = args
		} else {
			call.Arguments = nil
		}
		d.Calls = append(d.Calls, call)
	}
	shown, ok := t.showable(d)
	if !ok {
		return nil, "", fmt.Errorf("interrupt that cannot be shown: %w", errViolation)
	}
	return &shown, label(n.Reason, maxID), nil
}

// metaValue gives a value of a `_meta`; nil where there is none.
func metaValue(meta json.RawMessage, key string) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(meta, &m) != nil || absentValue(m[key]) {
		return nil
	}
	return m[key]
}

// showable makes an interrupt fit into its event: where it does not, it loses the schemas first, then the arguments,
// which the calls' own events hold anyway.
func (t *translator) showable(d event.InterruptRequested) (event.InterruptRequested, bool) {
	d.InterruptID, d.Revision = id.OfInterrupt(t.runID), 1
	calls := d.Calls
	for _, drop := range []func(*event.ApprovalCall){
		func(c *event.ApprovalCall) {
			if len(c.Schema) > maxAskedForm {
				c.Schema = nil
			}
			if len(c.Arguments) > maxAskedArgs {
				c.Arguments = nil
			}
		},
		func(c *event.ApprovalCall) { c.Schema = nil },
		func(c *event.ApprovalCall) { c.Schema, c.Arguments = nil, nil },
	} {
		d.Calls = nil
		for _, c := range calls {
			drop(&c)
			d.Calls = append(d.Calls, c)
		}
		if acceptable(d) {
			return d, true
		}
	}
	return d, false
}

// acceptable asks the validator of the stream itself.
func acceptable(d event.InterruptRequested) bool {
	v := event.NewValidator(event.DefaultBounds())
	for _, data := range []event.Data{event.RunStarted{Harness: "acp"}, d} {
		if _, err := v.Accept(event.Event{Data: data}); err != nil {
			return false
		}
	}
	return true
}

// resumeMeta is the `_meta` of a prompt that goes on after an interrupt.
func resumeMeta(d harness.Decision) any {
	return map[string]any{resumeKey: map[string]harness.Decision{"decision": d}}
}

// inherit makes the translator know what the run before left open. prior is that run's translator where the process is
// still the same, else nil.
func (t *translator) inherit(r harness.Resume, prior *translator) {
	mine := map[string]bool{}
	for _, open := range r.Inherit.Tools {
		mine[open.ID] = true
	}
	known := map[string]*call{}
	if prior != nil {
		for native, c := range prior.calls {
			if c.ended || mine[c.id] { // what comes late for a call that ended is late
				t.calls[native], known[c.id] = c, c
			}
		}
	}
	for _, open := range r.Inherit.Tools {
		c := known[open.ID]
		if c == nil || c.ended {
			c = &call{id: open.ID, path: open.Namespace, shown: true}
			t.inherited[open.ID] = c
		}
		t.used[open.ID] = true
		t.open = append(t.open, c)
	}
	for _, path := range r.Inherit.Namespaces {
		s := space{path: path, call: t.onlyCall(parentPath(path))}
		if prior != nil {
			for _, p := range prior.spaces {
				if slices.Equal(p.path, path) {
					s.call = p.call
				}
			}
		}
		t.spaces = append(t.spaces, s)
	}
	for _, d := range r.Decision.Calls {
		for _, c := range t.open {
			if c.id == d.ToolCallID {
				c.rejected = d.Verdict == harness.Reject
				c.shown = c.shown && d.Verdict != harness.Edit // the arguments as edited are told when the agent tells them
			}
		}
	}
}

// onlyCall is the open call of a namespace for which a delegated agent can only be working; nil where there are
// several.
func (t *translator) onlyCall(path []string) *call {
	var only *call
	for _, c := range t.open {
		if pathKey(c.path) != pathKey(path) {
			continue
		}
		if only != nil {
			return nil
		}
		only = c
	}
	return only
}

// known finds a call by its native id, also one that the run before left open.
func (t *translator) known(native string) (*call, bool) {
	c, ok := t.calls[native]
	if ok {
		return c, true
	}
	for _, candidate := range []string{native, digestID(native)} {
		if c, ok = t.inherited[candidate]; ok {
			t.calls[native] = c
			delete(t.inherited, candidate)
			return c, true
		}
	}
	return nil, false
}

// rejections ends the calls that a person refused and of which the agent told no end, in front of a terminal that cuts
// everything else off.
func (t *translator) rejections() []event.Event {
	var out []event.Event
	for _, c := range slices.Clone(t.open) {
		if c.rejected {
			out = append(out, t.end(c, unknownEnding(c))...)
		}
	}
	return out
}
