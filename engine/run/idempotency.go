package run

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
)

const (
	// keyLife is how long an idempotency key stands for a run after the run's end. Then it is free for another request.
	keyLife = 24 * time.Hour
	// maxKeyUses bounds how often one key may be used for runs, one after the other: each use is looked at in turn.
	maxKeyUses = 1000
)

// keyed gives the run the identifier that its key stands for now, and returns the run that has it already, if any. The
// identifier follows from the key and from how many runs before used it until it was free again, so every replica and every
// repeat finds the same.
func (c *Coordinator) keyed(ctx context.Context, r *Run) (found Run, taken bool, err error) {
	for use := range maxKeyUses {
		parts := []string{"start", r.Environment, r.Subject, r.AgentID, r.IdempotencyKey}
		if use > 0 {
			parts = append(parts, strconv.Itoa(use))
		}
		r.ID = id.Keyed(id.Run, c.Secret, parts...)
		found, err := c.Runs.Run(ctx, r.ID)
		switch {
		case errors.Is(err, ErrNotFound):
			return Run{}, false, nil
		case err != nil:
			return Run{}, false, fmt.Errorf("failed to read run %s: %w", r.ID, err)
		case !found.Status.Ended() || found.EndedAt == nil || c.Now().Sub(*found.EndedAt) < keyLife:
			return found, true, nil
		}
	}
	return Run{}, false, problem.Field("input.idempotencyKey", "was used for %d runs; take another", maxKeyUses)
}
