package event

// step judges one clean event and takes it over. On an error nothing has changed.
func (v *Validator) step(e Event) *InvalidError {
	cut := v.live.cutsOff(e)
	if err := v.live.admits(e.Type(), e.Namespace, cut); err != nil {
		return err
	}
	if err := v.apply(e); err != nil {
		return err
	}
	v.live.cutting = v.live.cutting || cut
	return nil
}

// apply judges by the ids that e names.
func (v *Validator) apply(e Event) *InvalidError {
	switch d := e.Data.(type) {
	case RunStarted:
		if v.live.inherited && d.Continues == "" {
			return &InvalidError{Rule: 5, Code: "inherits_without_continues", Field: "continues"}
		}
		v.live.begun = true
	case RunRecovered:
		if d.Generation <= v.live.generation {
			return &InvalidError{Rule: 1, Code: "generation_not_rising", Field: "generation"}
		}
		v.live.generation = d.Generation
	case TextStarted:
		if err := v.openSpan(e.Type(), d.MessageID, e.Namespace); err != nil {
			return err
		}
		if len(e.Namespace) == 0 {
			v.live.lastText = d.MessageID
		}
	case TextDelta:
		_, err := v.span(TypeTextStarted, d.MessageID, e.Namespace)
		return err
	case TextFinished:
		return v.closeSpan(TypeTextStarted, d.MessageID, e.Namespace)
	case ReasoningStarted:
		return v.openSpan(e.Type(), d.MessageID, e.Namespace)
	case ReasoningDelta:
		_, err := v.span(TypeReasoningStarted, d.MessageID, e.Namespace)
		return err
	case ReasoningFinished:
		return v.closeSpan(TypeReasoningStarted, d.MessageID, e.Namespace)
	case ToolStarted:
		return v.openTool(d.ToolCallID, e.Namespace)
	case ToolArgumentsDelta:
		_, err := v.tool(d.ToolCallID, e.Namespace)
		return err
	case ToolFinished:
		return v.closeTool(d.ToolCallID, e.Namespace, false)
	case ToolError:
		return v.closeTool(d.ToolCallID, e.Namespace, d.Code == CodeRunEnded)
	case InterruptRequested:
		v.live.interrupt = d.InterruptID
	case NamespaceEntered:
		return v.enter(e.Namespace, d)
	case NamespaceExited:
		return v.exit(child(e.Namespace, d.ID))
	case RunInterrupted:
		if d.InterruptID != v.live.interrupt { // also where none was requested
			return &InvalidError{Rule: 4, Code: "interrupt_not_requested", Field: "interruptId"}
		}
		v.live.ended = true
	case RunFinished:
		if len(v.live.tools) > 0 {
			return &InvalidError{Rule: 5, Code: "tools_open"}
		}
		if len(v.live.namespaces) > 0 {
			return &InvalidError{Rule: 5, Code: "namespaces_open"}
		}
		v.live.ended = true
	case RunCancelled, RunError:
		v.live.ended = true
	}
	return nil
}

// afterInterrupt are the types that may follow interrupt.requested, beside what cuts off for a terminal.
var afterInterrupt = map[Type]bool{
	TypeTextFinished: true, TypeReasoningFinished: true, TypeRunInterrupted: true,
	TypeRunError: true, TypeRunCancelled: true, TypeRunRecovered: true,
}

// afterCut are the types that may follow the first event that cuts off, beside more of them.
var afterCut = map[Type]bool{TypeRunError: true, TypeRunCancelled: true, TypeRunRecovered: true}

// rootOnly are the types that speak for the whole run.
var rootOnly = map[Type]bool{
	TypeRunStarted: true, TypeRunRecovered: true, TypeRunFinished: true, TypeRunInterrupted: true,
	TypeRunCancelled: true, TypeRunError: true,
}

// cutsOff reports whether e closes a tool or a namespace because its run is ending. Such events reach the validator
// one by one when a repaired stream is judged again.
func (l *live) cutsOff(e Event) bool {
	switch d := e.Data.(type) {
	case ToolError:
		return d.Code == CodeRunEnded
	case NamespaceExited:
		return l.cutting || l.interrupt != ""
	}
	return false
}

// admits applies the rules that depend on the type and the namespace alone.
func (l *live) admits(t Type, ns []string, cut bool) *InvalidError {
	switch {
	case l.ended:
		return &InvalidError{Rule: 1, Code: "after_terminal"}
	case t == TypeRunStarted && l.begun:
		return &InvalidError{Rule: 1, Code: "started_twice"}
	case t != TypeRunStarted && !l.begun:
		return &InvalidError{Rule: 1, Code: "not_started"}
	case rootOnly[t] && len(ns) > 0:
		return &InvalidError{Rule: 5, Code: "not_at_root", Field: "namespace"}
	case !l.entered(ns):
		return &InvalidError{Rule: 5, Code: "namespace_not_entered", Field: "namespace"}
	case l.cutting && !cut && !afterCut[t]:
		return &InvalidError{Rule: 1, Code: "after_cut_off"}
	case t == TypeInterruptRequested && l.interrupt != "":
		return &InvalidError{Rule: 4, Code: "interrupt_twice"}
	case l.interrupt != "" && !cut && !afterInterrupt[t]:
		return &InvalidError{Rule: 4, Code: "after_interrupt"}
	}
	return nil
}
