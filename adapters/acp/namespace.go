package acp

import (
	"encoding/json"
	"slices"

	"github.com/harness-engine/harness-engine/engine/event"
)

// enter finds the namespace of an update, and enters what of it is new. It gives false where the path cannot be
// placed: the call that a delegated agent works for is not open, or a limit is reached.
func (t *translator) enter(meta json.RawMessage) ([]string, []event.Event, bool) {
	if t.profile.Namespace == nil || len(meta) == 0 {
		return nil, nil, true
	}
	var path []string
	var out []event.Event
	delegates := t.profile.Namespace(meta)
	for i, d := range delegates {
		id := label(d.ID, maxID)
		next := append(slices.Clone(path), id)
		t.adopt(next, d.ToolCallID, path)
		if !t.entered(next) {
			// Only the last level can be new: a call inside of a namespace that is not there yet cannot be open.
			parent, open := t.parent(d.ToolCallID, path)
			if id == "" || !open || i < len(delegates)-1 || len(next) > maxDepth || len(t.spaces) >= maxOpenSpaces {
				t.facts.count("acp.unplaced_updates", "namespace")
				return nil, nil, false
			}
			t.spaces = append(t.spaces, space{path: next, call: parent})
			name := label(d.Name, maxID)
			if name == "" {
				name = "agent"
			}
			out = append(out, event.Event{Namespace: path, Data: event.NamespaceEntered{ID: id, Name: name, ParentToolCallID: parent.id}})
		}
		path = next
	}
	return path, out, true
}

// adopt tells a namespace of the run before which call it works for, once the agent says so.
func (t *translator) adopt(space []string, native string, path []string) {
	for i := range t.spaces {
		s := &t.spaces[i]
		if c, open := t.parent(native, path); open && s.call == nil && slices.Equal(s.path, space) {
			s.call = c
		}
	}
}

func (t *translator) entered(path []string) bool {
	return slices.ContainsFunc(t.spaces, func(s space) bool { return slices.Equal(s.path, path) })
}

func (t *translator) parent(native string, path []string) (*call, bool) {
	c, ok := t.known(native)
	return c, ok && !c.ended && slices.Equal(c.path, path)
}

// leave closes a namespace and everything inside of it.
func (t *translator) leave(path []string, outcome string) []event.Event {
	var out []event.Event
	for {
		i := slices.IndexFunc(t.spaces, func(s space) bool { return len(s.path) == len(path)+1 && slices.Equal(s.path[:len(path)], path) })
		if i < 0 {
			break
		}
		out = append(out, t.leave(t.spaces[i].path, outcome)...)
	}
	out = append(out, t.closeInside(path)...)
	t.spaces = slices.DeleteFunc(t.spaces, func(s space) bool { return slices.Equal(s.path, path) })
	last := len(path) - 1
	return append(out, event.Event{Namespace: parentPath(path), Data: event.NamespaceExited{ID: path[last], Outcome: outcome}})
}

func parentPath(path []string) []string {
	if len(path) == 1 {
		return nil
	}
	return path[:len(path)-1]
}
