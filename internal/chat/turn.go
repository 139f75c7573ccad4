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

	"github.com/harness-engine/harness-engine/internal/client"
)

// freePause is the wait before a message is sent again where the engine is about to let go of the conversation.
const freePause = 30 * time.Millisecond

// codeBusy is the refusal of a message while another run of the conversation is at work.
const codeBusy = "SESSION_BUSY"

// send sends a message and watches its run. What the run asks a person is returned. A conversation that is busy is
// watched first.
func (c *chat) send(ctx context.Context, text string) (*client.Interrupt, error) {
	for {
		run, err := c.start(ctx, text)
		var refusal *client.Refusal
		if !errors.As(err, &refusal) || refusal.Code != codeBusy || refusal.ActiveRunID == "" {
			if err != nil {
				return nil, err
			}
			c.attached, c.session = nil, run.SessionID
			return c.watch(ctx, run.ID)
		}
		if refusal.ActiveRunID == c.ended {
			err = c.attend(ctx, func(ctx context.Context) error { return wait(ctx, freePause) })
			if err != nil {
				return nil, err
			}
			continue
		}
		c.draw.note(faint, "The conversation is at work on another message; yours follows.")
		pending, err := c.watch(ctx, refusal.ActiveRunID)
		if err != nil {
			return nil, err
		}
		if pending != nil {
			c.draw.note(yellow, markWarning+"Your message was not sent: the agent asks something first.")
			return pending, nil
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start sends a message, again where the answer was lost: the key makes it the same message.
func (c *chat) start(ctx context.Context, text string) (run client.Run, err error) {
	in := client.StartInput{AgentID: c.Agent.ID, ConversationID: c.conversation, Message: client.Input{Text: text},
		IdempotencyKey: strings.ToLower(ulid.Make().String())}
	for _, a := range c.attached {
		in.Message.Attachments = append(in.Message.Attachments, a.ID)
	}
	err = c.repeat(ctx, func(ctx context.Context) error {
		var err error
		run, err = c.Client.Start(ctx, in)
		return err
	})
	if errors.Is(err, errInterrupted) {
		c.draw.note(yellow, markWarning+"The engine had not answered yet. If your message arrived, its run goes on; the next message finds it.")
	}
	return run, err
}

// repeat runs an operation that may be repeated until the engine answers, or the person has had enough.
func (c *chat) repeat(ctx context.Context, op func(ctx context.Context) error) error {
	lost := make(chan string, 1)
	return c.attendTold(ctx, lost, func(ctx context.Context) error {
		return c.Client.Retry(ctx, c.patience(), func(err error) { lost <- lostNote(err) }, op)
	})
}

// patience is how long the engine may be out of reach.
func (c *chat) patience() time.Duration {
	if c.console.interactive() {
		return 0
	}
	return patience
}

// attend runs f and lets Ctrl-C end it.
func (c *chat) attend(ctx context.Context, f func(ctx context.Context) error) error {
	return c.attendTold(ctx, nil, f)
}

// attendTold is attend with notes to show meanwhile.
func (c *chat) attendTold(ctx context.Context, notes <-chan string, f func(ctx context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case note := <-notes:
			c.draw.note(yellow, note)
			_ = c.draw.flush() // an output that is gone shows at the end
		case s := <-c.console.signals():
			why := errLeave
			if s == os.Interrupt {
				why = errInterrupted
			}
			stop(why)
			if err := <-done; err == nil && s == os.Interrupt {
				return nil // it was done before it could be called off
			}
			return why
		}
	}
}

func lostNote(err error) string {
	return markWarning + "connection lost; trying again (" + cause(err) + ")"
}

// cause is the innermost reason of an error, for a person.
func cause(err error) string {
	for {
		switch u := err.(type) { //nolint:errorlint // it walks the chain itself
		case interface{ Unwrap() error }:
			if inner := u.Unwrap(); inner != nil {
				err = inner
				continue
			}
		case interface{ Unwrap() []error }:
			if inner := u.Unwrap(); len(inner) > 0 {
				err = inner[len(inner)-1]
				continue
			}
		}
		return line(err.Error())
	}
}

// item is what a watched run gives: events, a note, or the end.
type item struct {
	events []client.Event
	note   string
	err    error
}

// watch draws a run from its beginning to its end, through any loss of the connection. Ctrl-C cancels the run, a second
// one leaves it (errLeave). What the run asks a person is returned.
func (c *chat) watch(ctx context.Context, runID string) (*client.Interrupt, error) {
	ctx, stop := context.WithCancel(ctx)
	items := make(chan item)
	fed := make(chan struct{})
	defer func() { stop(); <-fed }()
	go func() { defer close(fed); c.feed(ctx, runID, items) }()

	refused := make(chan error, 1)
	cancelling := false
	var pending *client.Interrupt
	for {
		if err := c.draw.flush(); err != nil {
			return nil, fmt.Errorf("failed to write: %w", err)
		}
		select {
		case it := <-items:
			switch {
			case errors.Is(it.err, io.EOF):
				c.ended = runID
				return pending, nil
			case it.err != nil:
				return nil, it.err
			case it.note != "":
				c.draw.note(yellow, it.note)
			}
			for _, e := range it.events {
				c.draw.event(e)
				pending = c.note(e, pending)
			}
		case err := <-refused:
			c.draw.note(red, markFailure+"failed to cancel: "+cause(err))
			cancelling = false
		case s := <-c.console.signals():
			if s != os.Interrupt || cancelling {
				c.last = Left
				c.draw.note(yellow, "left run "+line(runID)+" to itself")
				return nil, errLeave
			}
			cancelling = true
			c.draw.note(yellow, "cancelling; Ctrl-C again leaves the run to itself")
			go func() {
				if err := c.cancel(ctx, runID); err != nil {
					refused <- err
				}
			}()
		}
	}
}

// note remembers what an event means for the chat.
func (c *chat) note(e client.Event, pending *client.Interrupt) *client.Interrupt {
	switch e.Type {
	case client.InterruptRequested:
		i := e.Interrupt()
		return &i
	case client.RunFinished:
		c.last = Finished
	case client.RunInterrupted:
		c.last = Waiting
	case client.RunCancelled:
		c.last = Cancelled
	case client.RunFailed:
		c.last = Failed
	}
	return pending
}

// feed reads the run into items until its end.
func (c *chat) feed(ctx context.Context, runID string, items chan<- item) {
	give := func(it item) bool {
		select {
		case items <- it:
			return true
		case <-ctx.Done():
			return false
		}
	}
	f := c.Client.Feed(runID, client.FeedOptions{
		Patience: c.patience(),
		Lost:     func(err error) { give(item{note: lostNote(err)}) },
		Found:    func() { give(item{note: "connected again"}) },
	})
	defer f.Close()
	for {
		b, err := f.Next(ctx)
		if !give(item{events: b.Events, err: err}) || err != nil {
			return
		}
	}
}

func (c *chat) cancel(ctx context.Context, runID string) error {
	return c.Client.Retry(ctx, 0, nil, func(ctx context.Context) error {
		_, err := c.Client.Cancel(ctx, runID)
		return err
	})
}
