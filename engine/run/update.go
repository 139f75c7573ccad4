package run

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Retries of one update of a run document; its writers are the owner, a cancel and a clear.
const (
	updateAttempts = 32
	updatePause    = 20 * time.Millisecond
)

// update applies change to the stored run by conditional update, again on a lost race. change returns false when
// there is nothing to write; it may be called several times, and must have the same effect when its own earlier write
// is what it finds. The stored run is returned.
func (c *Coordinator) update(ctx context.Context, runID string, change func(*Run) bool) (Run, error) {
	for range updateAttempts {
		r, err := c.Runs.Run(ctx, runID)
		if err != nil {
			return Run{}, fmt.Errorf("failed to read run %s: %w", runID, err)
		}
		if !change(&r) {
			return r, nil
		}
		r.Rev++
		switch err := c.Runs.UpdateRun(ctx, r); {
		case err == nil:
			return r, nil
		case errors.Is(err, ErrRevision):
		case errors.Is(err, ErrUnknownOutcome):
			select { // every change is idempotent: look again, and write again where it is missing
			case <-ctx.Done():
				return Run{}, context.Cause(ctx)
			case <-time.After(updatePause):
			}
		default:
			return Run{}, fmt.Errorf("failed to update run %s: %w", runID, err)
		}
	}
	return Run{}, fmt.Errorf("failed to update run %s: %w after %d attempts", runID, ErrRevision, updateAttempts)
}
