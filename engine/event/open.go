package event

import "slices"

// The state of what is open. Ids of spans and calls are used once in a run; a namespace may be entered again after
// it was exited.

func spanKey(kind Type, id string) string { return string(kind) + "\x00" + id }
func toolKey(id string) string            { return string(TypeToolStarted) + "\x00" + id }

// with and without never write into s: snapshots of the state share it.
func with[T any](s []T, e T) []T { return append(slices.Clip(s), e) }

func without[T any](s []T, i int) []T { return slices.Concat(s[:i], s[i+1:]) }

// child is a new path, so that it never shares memory with its siblings.
func child(ns []string, id string) []string { return append(slices.Clip(ns), id) }

// remember takes an id for good, or says why it cannot.
func (v *Validator) remember(rule int, key, field string) *InvalidError {
	if _, used := v.seen[key]; used {
		return &InvalidError{Rule: rule, Code: "id_used_twice", Field: field}
	}
	if len(v.seen) >= v.bounds.RunIDs {
		return &InvalidError{Code: "too_many_ids", Field: field}
	}
	v.seen[key] = struct{}{}
	v.added = append(v.added, key)
	return nil
}

func (v *Validator) openSpan(kind Type, id string, ns []string) *InvalidError {
	if len(v.live.spans) >= v.bounds.OpenSpans {
		return &InvalidError{Code: "too_many_open", Field: "messageId"}
	}
	if err := v.remember(2, spanKey(kind, id), "messageId"); err != nil {
		return err
	}
	v.live.spans = with(v.live.spans, openSpan{kind: kind, id: id, ns: ns})
	return nil
}

// span finds an open span of this namespace.
func (v *Validator) span(kind Type, id string, ns []string) (int, *InvalidError) {
	i := slices.IndexFunc(v.live.spans, func(s openSpan) bool { return s.kind == kind && s.id == id })
	if i < 0 {
		code := "span_not_started"
		if _, used := v.seen[spanKey(kind, id)]; used {
			code = "span_finished"
		}
		return -1, &InvalidError{Rule: 2, Code: code, Field: "messageId"}
	}
	if !slices.Equal(v.live.spans[i].ns, ns) {
		return -1, &InvalidError{Rule: 5, Code: "other_namespace", Field: "namespace"}
	}
	return i, nil
}

func (v *Validator) closeSpan(kind Type, id string, ns []string) *InvalidError {
	i, err := v.span(kind, id, ns)
	if err != nil {
		return err
	}
	v.live.spans = without(v.live.spans, i)
	return nil
}

func (v *Validator) openTool(id string, ns []string) *InvalidError {
	if len(v.live.tools) >= v.bounds.OpenTools {
		return &InvalidError{Code: "too_many_open", Field: "toolCallId"}
	}
	if err := v.remember(3, toolKey(id), "toolCallId"); err != nil {
		return err
	}
	v.live.tools = with(v.live.tools, OpenTool{ID: id, Namespace: ns})
	v.live.toolsRan = true
	return nil
}

func (l *live) toolIndex(id string) int {
	return slices.IndexFunc(l.tools, func(t OpenTool) bool { return t.ID == id })
}

// tool finds an open call of this namespace.
func (v *Validator) tool(id string, ns []string) (int, *InvalidError) {
	i := v.live.toolIndex(id)
	if i < 0 {
		code := "tool_not_started"
		if _, used := v.seen[toolKey(id)]; used {
			code = "tool_ended"
		}
		return -1, &InvalidError{Rule: 3, Code: code, Field: "toolCallId"}
	}
	if !slices.Equal(v.live.tools[i].Namespace, ns) {
		return -1, &InvalidError{Rule: 5, Code: "other_namespace", Field: "namespace"}
	}
	return i, nil
}

func (v *Validator) closeTool(id string, ns []string, cut bool) *InvalidError {
	i, err := v.tool(id, ns)
	if err != nil {
		return err
	}
	v.live.tools = without(v.live.tools, i)
	v.live.toolsCut = v.live.toolsCut || cut
	return nil
}

// entered reports whether ns is the root or an open namespace.
func (l *live) entered(ns []string) bool {
	return len(ns) == 0 || l.namespaceIndex(ns) >= 0
}

func (l *live) namespaceIndex(ns []string) int {
	return slices.IndexFunc(l.namespaces, func(have []string) bool { return slices.Equal(have, ns) })
}

func (v *Validator) enter(parent []string, d NamespaceEntered) *InvalidError {
	if len(v.live.namespaces) >= v.bounds.OpenNamespaces {
		return &InvalidError{Code: "too_many_open", Field: "id"}
	}
	path := child(parent, d.ID)
	if v.live.entered(path) {
		return &InvalidError{Rule: 5, Code: "namespace_entered_twice", Field: "id"}
	}
	i := v.live.toolIndex(d.ParentToolCallID)
	if i < 0 || !slices.Equal(v.live.tools[i].Namespace, parent) {
		return &InvalidError{Rule: 5, Code: "parent_tool_not_open", Field: "parentToolCallId"}
	}
	v.live.namespaces = with(v.live.namespaces, path)
	return nil
}

// exit leaves a namespace, in which and below which nothing is open any more.
func (v *Validator) exit(path []string) *InvalidError {
	i := v.live.namespaceIndex(path)
	if i < 0 {
		return &InvalidError{Rule: 5, Code: "namespace_not_entered", Field: "id"}
	}
	inside := func(ns []string) bool { return len(ns) >= len(path) && slices.Equal(ns[:len(path)], path) }
	for j, ns := range v.live.namespaces {
		if j != i && inside(ns) {
			return &InvalidError{Rule: 5, Code: "child_namespace_open", Field: "id"}
		}
	}
	for _, s := range v.live.spans {
		if inside(s.ns) {
			return &InvalidError{Rule: 5, Code: "span_open_in_namespace", Field: "id"}
		}
	}
	for _, t := range v.live.tools {
		if inside(t.Namespace) {
			return &InvalidError{Rule: 5, Code: "tool_open_in_namespace", Field: "id"}
		}
	}
	v.live.namespaces = without(v.live.namespaces, i)
	return nil
}
