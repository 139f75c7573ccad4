package chat

import (
	"context"
	"errors"

	"github.com/harness-engine/harness-engine/internal/client"
)

// errLater: the person decides later.
var errLater = errors.New("later")

// settle asks the person and watches the run that goes on. It returns what is to be asked next.
func (c *chat) settle(ctx context.Context, i client.Interrupt) (*client.Interrupt, error) {
	c.last = Waiting
	decision, err := c.ask(ctx, i)
	if errors.Is(err, errLater) {
		c.draw.note(faint, "It waits; another message of yours takes its place.")
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	run, err := c.resume(ctx, i, decision)
	var refusal *client.Refusal
	switch {
	case errors.As(err, &refusal):
		c.draw.note(red, markFailure+line(refusal.Code)+": "+line(refusal.Message))
		s, err := c.find(ctx)
		if err != nil {
			return nil, err
		}
		return c.goOn(ctx, s)
	case client.Code(err) == client.CodeBadUserInput:
		c.draw.note(red, markFailure+line(err.Error()))
		return &i, nil
	case err != nil:
		return nil, c.survive(err)
	case run == nil:
		c.last = Finished
		c.draw.note(faint, "given up")
		return nil, nil
	}
	c.draw.waits(i.Calls)
	return c.watch(ctx, run.ID)
}

// resume takes the decision to the engine. The log tells of an interrupt a moment before the engine has settled the run
// that it ended, and takes decisions.
func (c *chat) resume(ctx context.Context, i client.Interrupt, d client.Decision) (run *client.Run, err error) {
	err = c.repeat(ctx, func(ctx context.Context) error {
		if _, err := c.Client.Settled(ctx, i.RunID); err != nil {
			return err
		}
		for {
			run, err = c.Client.Resume(ctx, i, d)
			var refusal *client.Refusal
			if !errors.As(err, &refusal) || refusal.Code != codeBusy || refusal.ActiveRunID != i.RunID {
				return err
			}
			if err := wait(ctx, freePause); err != nil {
				return err
			}
		}
	})
	return run, err
}
