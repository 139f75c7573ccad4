package resolvers

import (
	"context"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// cursorExpired tells a client that what follows its cursor is gone: where it may go on, and what became of the run, which
// is the snapshot that stands for the events.
func (r *Root) cursorExpired(ctx context.Context, gone *event.ExpiredError) error {
	p := problem.New(problem.CursorExpired, "the events up to %d have expired", gone.Through).With("firstAvailable", gone.First)
	return r.snapshot(ctx, p, gone.RunID)
}

// sameEpoch refuses a cursor that was read of another history of the run than there is now. What it counts may be gone, or
// something else by now, so the client has to begin anew.
func (r *Root) sameEpoch(ctx context.Context, runID string, given *string) error {
	if given == nil || *given == r.LogEpoch {
		return nil
	}
	return r.snapshot(ctx, problem.New(problem.CursorExpired, "the cursor is of another history of the run"), runID)
}

// snapshot adds what the run's document says.
func (r *Root) snapshot(ctx context.Context, p *problem.Error, runID string) error {
	doc, err := r.Runs.Run(ctx, runID)
	if err != nil {
		return fmt.Errorf("failed to read run %s: %w", runID, err)
	}
	if _, told := p.Extra["firstAvailable"]; !told {
		p = p.With("firstAvailable", doc.ExpiredThrough+1)
	}
	return p.With("runId", runID).With("status", string(doc.Status)).With("lastSequence", doc.LastSequence).With("logEpoch", r.LogEpoch)
}
