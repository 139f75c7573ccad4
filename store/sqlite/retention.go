package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/harness-engine/harness-engine/engine/retention"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/store"
)

const (
	// The conditions are those of the indexes runs_ended and runs_pruning.
	endedRuns = `SELECT body FROM runs WHERE ended = 1 AND expired = 0 AND listed = 1 AND ended_at <= ? AND (ended_at, id) > (?, ?)
		ORDER BY ended_at, id LIMIT ?`
	pruningRuns = "SELECT body FROM runs WHERE pruning = 1 AND id > ? ORDER BY id LIMIT ?"

	pruneChunks = `DELETE FROM chunks WHERE run = ?1 AND first IN (SELECT first FROM chunks
		WHERE run = ?1 AND last <= (SELECT expired FROM runs WHERE id = ?1 AND ended = 1) ORDER BY first LIMIT ?2)`
)

var _ retention.Store = (*Store)(nil)

// EndedRuns implements retention.Store.
func (s *Store) EndedRuns(ctx context.Context, until time.Time, after retention.Place, limit int) ([]run.Run, error) {
	if err := checkPage(limit, after.ID); err != nil {
		return nil, fmt.Errorf("failed to list ended runs: %w", err)
	}
	if err := store.CheckTime("until", until); err != nil {
		return nil, fmt.Errorf("failed to list ended runs: %w", err)
	}
	at := int64(0) // no run ends before 1970
	if !after.EndedAt.IsZero() {
		at = after.EndedAt.UnixNano()
	}
	return list[run.Run](ctx, s, "ended runs", endedRuns, until.UnixNano(), at, after.ID, limit)
}

// PruningRuns implements retention.Store.
func (s *Store) PruningRuns(ctx context.Context, after string, limit int) ([]run.Run, error) {
	if err := checkPage(limit, after); err != nil {
		return nil, fmt.Errorf("failed to list runs with expired logs: %w", err)
	}
	return list[run.Run](ctx, s, "runs with expired logs", pruningRuns, after, limit)
}

// Prune implements retention.Store. An error says nothing of the outcome: call it again.
func (s *Store) Prune(ctx context.Context, runID string, limit int) (removed int, err error) {
	if err := checkPage(limit, runID); err != nil {
		return 0, fmt.Errorf("failed to prune log: %w", err)
	}
	n := int64(0)
	err = s.committer.do(ctx, &write{apply: func(t *tx) (refusal, fatal error) {
		n, fatal = t.exec(pruneChunks, runID, limit)
		return nil, fatal
	}})
	if err != nil {
		return 0, fmt.Errorf("failed to prune log of run %s: %w", runID, err)
	}
	return int(n), nil
}
