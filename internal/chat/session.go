package chat

import (
	"context"
	"fmt"
	"strings"

	"github.com/harness-engine/harness-engine/internal/client"
)

// tail is how many messages are shown of a conversation that is come back to.
const tail = 20

// roleUser is the role of what the person said.
const roleUser = "USER"

// find reads the session that is come back to and takes over its names.
func (c *chat) find(ctx context.Context) (s client.Session, err error) {
	err = c.repeat(ctx, func(ctx context.Context) error {
		s, err = c.Client.Session(ctx, c.session)
		return err
	})
	if err != nil {
		return s, fmt.Errorf("failed to come back to session %s: %w", c.session, err)
	}
	if s.AgentID != c.Agent.ID {
		return s, fmt.Errorf("session %s is a conversation with another agent, %s", c.session, s.AgentID)
	}
	c.conversation = s.ConversationID
	return s, nil
}

// comeBack shows the end of the conversation that is come back to and goes on where it stands.
func (c *chat) comeBack(ctx context.Context) (*client.Interrupt, error) {
	if c.session == "" {
		return nil, nil
	}
	s, err := c.find(ctx)
	if err != nil {
		return nil, err
	}
	var last []client.Said
	var earlier bool
	err = c.repeat(ctx, func(ctx context.Context) error {
		last, earlier, err = c.Client.Transcript(ctx, c.session, tail)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("failed to read what was said: %w", err)
	}
	if earlier {
		c.draw.note(faint, fmt.Sprintf("(the last %d messages)", len(last)))
	}
	for _, m := range last {
		if m.RunID == s.ActiveRunID && m.Role != roleUser { // the run is drawn whole
			continue
		}
		c.showSaid(m)
	}
	return c.goOn(ctx, s)
}

func (c *chat) showSaid(m client.Said) {
	switch {
	case m.Decision != nil:
		c.draw.note(faint, messagePrompt+decided(*m.Decision))
	case m.Role == roleUser:
		c.draw.note(bold, messagePrompt+strings.ReplaceAll(clean(m.Text), "\n", "\n"+indent))
	default:
		c.draw.note(plain, clean(m.Text))
	}
	for _, a := range m.Attachments {
		c.draw.note(faint, indent+"attached "+line(a.Name))
	}
}

// statusResumed is the status of an interrupt that a decision settled.
const statusResumed = "RESUMED"

// decided says on one line what became of an interrupt.
func decided(d client.Decided) string {
	if d.Interrupt.Status != statusResumed {
		return "(" + strings.ToLower(line(d.Interrupt.Status)) + ")"
	}
	if d.Interrupt.Kind == client.KindForm {
		return "(" + short(d.Form) + ")"
	}
	names := map[string]string{}
	for _, call := range d.Interrupt.Calls {
		names[call.ToolCallID] = line(call.Name)
	}
	var parts []string
	for _, call := range d.Calls {
		part := strings.ToLower(line(call.Verdict)) + " " + names[call.ToolCallID]
		if call.Message != "" {
			part += ": " + line(call.Message)
		}
		parts = append(parts, part)
	}
	return "(" + strings.Join(parts, "; ") + ")"
}

// goOn watches the run that is at work, or finds what waits for the person.
func (c *chat) goOn(ctx context.Context, s client.Session) (*client.Interrupt, error) {
	if s.ActiveRunID != "" && s.ActiveRunID != c.ended {
		return c.watch(ctx, s.ActiveRunID)
	}
	var pending *client.Interrupt
	err := c.repeat(ctx, func(ctx context.Context) error {
		var err error
		pending, err = c.Client.Pending(ctx, s.ID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("failed to ask what waits: %w", err)
	}
	return pending, nil
}
