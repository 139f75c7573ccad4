package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Retry runs an operation that may be repeated, again after a wait where the engine could not be reached or the token
// was refused, for at most patience (0 is until the context ends). lost, which may be nil, is told once of the first
// failure.
func (c *Client) Retry(ctx context.Context, patience time.Duration, lost func(error), op func(ctx context.Context) error) error {
	waits := newWaits()
	begin, refused, told := time.Now(), false, false
	for {
		err := op(ctx)
		again := errors.Is(err, ErrCut) || Code(err) == CodeUnauthenticated && !refused
		if ctx.Err() != nil && err != nil {
			return context.Cause(ctx)
		}
		if !again {
			return err
		}
		refused = Code(err) == CodeUnauthenticated
		if !refused && !told && lost != nil {
			told = true
			lost(err)
		}
		if patience > 0 && time.Since(begin) >= patience {
			return fmt.Errorf("gave up after %s: %w", patience, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(waits.NextBackOff()):
		}
		c.refresh(ctx)
	}
}

// newWaits are the waits between attempts to reach an engine.
func newWaits() *backoff.ExponentialBackOff {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = firstWait, longest
	waits.Reset()
	return waits
}
