// Package retention takes the event logs of ended runs away when they have been kept long enough. A run's document stays
// as its tombstone, with what the log said of it, and says how far its log has expired.
//
// The order makes every crash harmless: first the document of an ended run says up to where its log has expired, so that
// readers are told CURSOR_EXPIRED; then chunks are removed from below; then the document says that they are gone. Whoever
// comes next finds the runs in between.
package retention

import (
	"context"
	"time"

	"github.com/harness-engine/harness-engine/engine/run"
)

// Place is a place in a listing of ended runs, oldest end first.
type Place struct {
	EndedAt time.Time
	ID      string
}

// Store is what retention needs of a store. Implementations must pass store/storetest.
type Store interface {
	Run(ctx context.Context, id string) (run.Run, error)
	UpdateRun(ctx context.Context, r run.Run) error
	// EndedRuns lists runs that have a log of which nothing has expired and that ended at or before until, by (EndedAt, ID)
	// ascending, behind after. limit is 1 to 1,000.
	EndedRuns(ctx context.Context, until time.Time, after Place, limit int) ([]run.Run, error)
	// PruningRuns lists runs of whose log something has expired that may not be removed yet, by ID ascending, ID > after.
	PruningRuns(ctx context.Context, after string, limit int) ([]run.Run, error)
	// Prune removes at most limit chunks of a run, lowest first, and returns how many. It removes none but those that lie
	// wholly at or below the ExpiredThrough that the document of the run, which has ended, says in the same transaction.
	Prune(ctx context.Context, runID string, limit int) (int, error)
}
