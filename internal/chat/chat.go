// Package chat is a conversation with an agent in a terminal: it streams what the agent says and does, asks the person
// when the agent asks, and leaves and comes back without losing anything. It speaks the public API like any client.
package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/term"

	"github.com/harness-engine/harness-engine/internal/client"
)

// Outcome is how a chat ended, by its last run.
type Outcome int

// Outcomes.
const (
	Finished  Outcome = iota // the run came to its own end, or there was none
	Failed                   // the run failed
	Waiting                  // the run waits for a person
	Cancelled                // the run was cancelled
	Left                     // the run goes on without this program
)

// Options configure a chat. Client, Agent, In, Out and Err are required.
type Options struct {
	Client *client.Client
	Agent  client.Agent

	Session string   // to go on with; empty begins a conversation
	Message *string  // sent at once; the chat ends with its run. nil: messages come from In
	Attach  []string // files that go with the first message

	In       io.Reader
	Out, Err io.Writer
	Colour   bool

	// Return is the command that comes back to a session.
	Return func(sessionID string) string
	// Editor edits a file for the person; nil where there is none.
	Editor func(ctx context.Context, path string) error
	// Signals are taken instead of the system's where In is no terminal; for tests.
	Signals chan os.Signal
}

// Prompts.
const (
	messagePrompt = "> "
	answerPrompt  = "? "
)

// patience is how long a script waits for an engine that cannot be reached. A person decides that.
const patience = 2 * time.Minute

// chat is one conversation.
type chat struct {
	Options
	console console
	draw    *renderer

	session      string // empty until the first run is admitted
	conversation string // the client's name for it
	attached     []client.Attachment
	last         Outcome
	ended        string // the last run that was watched to its end
}

// Run holds the conversation until the person leaves, the input ends, or the one message is answered.
func Run(ctx context.Context, o Options) (Outcome, error) {
	c := newChat(o)
	defer c.console.close()
	outcome, err := c.run(ctx)
	return outcome, errors.Join(err, c.draw.flush())
}

func newChat(o Options) *chat {
	out := newSheet(o.Out, o.Colour)
	say, tell := out, out
	in, inTerminal := terminal(o.In)
	outFile, outTerminal := terminal(o.Out)
	if o.Message != nil && !outTerminal {
		tell = newSheet(o.Err, false) // what the agent says is all that a script gets on its input
	}
	c := &chat{Options: o, draw: newRenderer(say, tell, columnsOfFile(o.Out)), session: o.Session,
		conversation: "chat-" + strings.ToLower(ulid.Make().String())}
	if inTerminal && outTerminal {
		c.console = newEditor(in, outFile)
	} else {
		c.console = newLines(o.In, o.Signals)
	}
	return c
}

// terminal is the terminal that x is, if it is one.
func terminal(x any) (*os.File, bool) {
	f, ok := x.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

func (c *chat) run(ctx context.Context) (Outcome, error) {
	for _, path := range c.Attach {
		if err := c.attach(ctx, path); err != nil {
			return Failed, err
		}
	}
	if c.Message != nil {
		return c.once(ctx)
	}
	if c.console.interactive() {
		c.greet()
	}
	pending, err := c.comeBack(ctx)
	for err == nil {
		if pending != nil {
			pending, err = c.settle(ctx, *pending)
			continue
		}
		pending, err = c.next(ctx)
	}
	return c.leave(err)
}

// once sends the one message and watches its run.
func (c *chat) once(ctx context.Context) (Outcome, error) {
	if c.session != "" {
		if _, err := c.find(ctx); err != nil {
			return Failed, err
		}
	}
	pending, err := c.send(ctx, *c.Message)
	if err == nil && pending != nil {
		c.draw.note(plain, "The agent asks a person:")
		c.showQuestion(*pending)
		for _, f := range pending.Fields {
			c.draw.note(plain, indent+fieldLabel(f))
		}
		c.draw.note(plain, "Decide it with: "+c.Return(c.session))
	}
	return c.leave(err)
}

// leave ends the chat and says how to come back.
func (c *chat) leave(err error) (Outcome, error) {
	switch {
	case errors.Is(err, errLeave), errors.Is(err, io.EOF):
		err = nil
	case errors.Is(err, errInterrupted):
		c.last, err = Cancelled, nil
	}
	if c.session != "" && (c.console.interactive() || c.last == Left) {
		c.draw.note(faint, "come back with: "+c.Return(c.session))
	}
	if err != nil && c.last == Finished {
		c.last = Failed
	}
	return c.last, err
}

func (c *chat) greet() {
	c.draw.note(bold, line(c.Agent.Name))
	c.draw.note(faint, fmt.Sprintf("%s on %s. /help tells what you can do.", line(c.Agent.Slug), line(c.Agent.HarnessID)))
}

// next reads what the person wants and does it.
func (c *chat) next(ctx context.Context) (*client.Interrupt, error) {
	if err := c.draw.flush(); err != nil {
		return nil, err
	}
	text, err := c.console.read(ctx, messagePrompt)
	switch {
	case errors.Is(err, errInterrupted):
		c.draw.note(faint, "(Ctrl-D or /quit leaves)")
		return nil, nil
	case err != nil:
		return nil, err
	}
	if name, is := strings.CutPrefix(text, "/"); is && !strings.HasPrefix(name, "/") {
		return nil, c.command(ctx, name)
	}
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if strings.HasPrefix(text, "//") { // a message that begins with a slash
		text = text[1:]
	}
	pending, err := c.send(ctx, text)
	return pending, c.survive(err)
}

// survive tells of an error that leaves the chat usable, and passes the others on.
func (c *chat) survive(err error) error {
	var refusal *client.Refusal
	var refused client.Errors
	switch {
	case errors.Is(err, errInterrupted):
		return nil
	case errors.As(err, &refusal):
		c.draw.note(red, markFailure+line(refusal.Code)+": "+line(refusal.Message))
	case errors.As(err, &refused) && client.Code(err) != client.CodeUnauthenticated:
		c.draw.note(red, markFailure+line(refused.Error()))
	default:
		return err
	}
	if !c.console.interactive() {
		c.last = Failed
	}
	return nil
}
