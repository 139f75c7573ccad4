package event

import "strings"

// FoldedMessage is one message of the agent as a reader sees it when the run is over.
type FoldedMessage struct {
	ID   string
	Role string
	Text string
}

// FoldMessages joins the text of the root namespace, message by message in the order in which they were started.
// Messages without text are left out. Events may begin and end anywhere in a run; deltas of a message whose start is
// not among them are left out too.
func FoldMessages(events []Event) []FoldedMessage {
	type open struct {
		role string
		text strings.Builder
	}
	var order []string
	messages := map[string]*open{}
	for _, e := range events {
		if len(e.Namespace) > 0 {
			continue
		}
		switch d := e.Data.(type) {
		case TextStarted:
			if messages[d.MessageID] == nil {
				messages[d.MessageID] = &open{role: d.Role}
				order = append(order, d.MessageID)
			}
		case TextDelta:
			if m := messages[d.MessageID]; m != nil {
				m.text.WriteString(d.Delta)
			}
		}
	}
	var out []FoldedMessage
	for _, id := range order {
		if m := messages[id]; m.text.Len() > 0 {
			out = append(out, FoldedMessage{ID: id, Role: m.role, Text: m.text.String()})
		}
	}
	return out
}
