package sqlite

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/store"
)

const (
	insertRun = `INSERT INTO runs (rev, environment, subject, session, epoch, ord, agent, status, listed, ended, created, ended_at,
		expired, pruning, body, id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	updateRun = `UPDATE runs SET rev = ?, environment = ?, subject = ?, session = ?, epoch = ?, ord = ?, agent = ?, status = ?,
		listed = ?, ended = ?, created = ?, ended_at = ?, expired = ?, pruning = ?, body = ? WHERE id = ? AND rev = ?`
	hasRun            = "SELECT 1 FROM runs WHERE id = ?"
	getRun            = "SELECT body FROM runs WHERE id = ?"
	sessionRuns       = "SELECT id, ord, body FROM runs WHERE session = ? AND epoch = ? AND ord > 0 AND ord > ? ORDER BY ord, id LIMIT ?"
	sessionRunsBefore = "SELECT id, ord, body FROM runs WHERE session = ? AND epoch = ? AND ord > 0 AND ord < ? ORDER BY ord DESC, id DESC LIMIT ?"
	allSessionRuns    = "SELECT body FROM runs WHERE session = ? AND ord > 0 AND ord > ? ORDER BY ord LIMIT ?"
	unfinishedRuns    = "SELECT body FROM runs WHERE ended = 0 AND id > ? ORDER BY id LIMIT ?"
	cancelRequests    = `SELECT id, body ->> '$.cancelReason' FROM runs WHERE ended = 0 AND body ->> '$.cancelReason' <> '' AND id > ? ORDER BY id LIMIT ?`
)

func checkRun(r run.Run) error {
	err := store.CheckKeys([2]string{"id", r.ID}, [2]string{"environment", r.Environment}, [2]string{"subject", r.Subject},
		[2]string{"sessionId", r.SessionID}, [2]string{"agentId", r.AgentID}, [2]string{"status", string(r.Status)})
	if err != nil {
		return err
	}
	if err := store.CheckExpiry(r); err != nil {
		return err
	}
	if r.EndedAt != nil {
		if err := store.CheckTime("endedAt", *r.EndedAt); err != nil {
			return err
		}
	}
	return store.CheckTime("createdAt", r.CreatedAt)
}

// isListed says whether Runs shows runs of the status unless it is asked for.
func isListed(s run.Status) bool { return s != run.StatusAdmitting && s != run.StatusRejected }

// runColumns are the arguments of insertRun and the first of updateRun.
func runColumns(r run.Run, body []byte) []any {
	endedAt := int64(0)
	if r.EndedAt != nil {
		endedAt = r.EndedAt.UnixNano()
	}
	return []any{r.Rev, r.Environment, r.Subject, r.SessionID, r.Epoch, r.Ord, r.AgentID, string(r.Status),
		isListed(r.Status), r.Status.Ended(), r.CreatedAt.UnixNano(), endedAt, r.ExpiredThrough, r.ExpiredThrough > 0 && !r.Pruned, string(body), r.ID}
}

// InsertRun implements run.Store.
func (s *Store) InsertRun(ctx context.Context, r run.Run) error {
	body, err := checkedDocument(r, checkRun(r), store.CheckInsertRev(r.Rev))
	if err != nil {
		return fmt.Errorf("failed to insert run %s: %w", r.ID, err)
	}
	return s.change(ctx, "insert", change{
		noun: "run", id: r.ID, body: body, query: insertRun, args: runColumns(r, body),
		also:     func(t *tx) error { return useAttachments(t, r) },
		conflict: refuse(run.ErrExists), unknown: run.ErrUnknownOutcome,
	})
}

// UpdateRun implements run.Store; run.ErrNotFound when there is no such run.
func (s *Store) UpdateRun(ctx context.Context, r run.Run) error {
	body, err := checkedDocument(r, checkRun(r), store.CheckUpdateRev(r.Rev))
	if err != nil {
		return fmt.Errorf("failed to update run %s: %w", r.ID, err)
	}
	return s.change(ctx, "update", change{
		noun: "run", id: r.ID, body: body, query: updateRun, vital: true,
		args: append(runColumns(r, body), r.Rev-1),
		none: staleOr(run.ErrNotFound, run.ErrRevision, hasRun, r.ID), unknown: run.ErrUnknownOutcome,
	})
}

// Run implements run.Store.
func (s *Store) Run(ctx context.Context, id string) (run.Run, error) {
	return one[run.Run](ctx, s, run.ErrNotFound, "run", getRun, id)
}

// Runs implements run.Store.
func (s *Store) Runs(ctx context.Context, f run.Filter, before run.Position, limit int) ([]run.Run, error) {
	if err := checkPage(limit, f.Environment, f.Subject, f.SessionID, f.AgentID, string(f.Status), before.ID); err != nil {
		return nil, fmt.Errorf("failed to list runs: %w", err)
	}
	from := spot{afterAll, math.MaxInt64}
	if before != (run.Position{}) {
		if err := store.CheckTime("before", before.CreatedAt); err != nil {
			return nil, fmt.Errorf("failed to list runs: %w", err)
		}
		from = spot{before.ID, before.CreatedAt.UnixNano()}
	}
	return shown[run.Run](ctx, s, "run", limit, func(last *spot, limit int) (string, []any) {
		if last == nil {
			last = &from
		}
		return runsQuery(f, *last, limit)
	})
}

// runsQuery builds one of a few dozen texts, so that the statements can be kept.
func runsQuery(f run.Filter, before spot, limit int) (string, []any) {
	var q strings.Builder
	q.WriteString("SELECT id, created, body FROM runs WHERE environment = ? AND subject = ?")
	args := []any{f.Environment, f.Subject}
	for _, c := range []struct {
		on    bool
		text  string
		value any
	}{
		{f.SessionID != "", " AND session = ?", f.SessionID},
		{f.Epoch != 0, " AND epoch = ?", f.Epoch},
		{f.AgentID != "", " AND agent = ?", f.AgentID},
		{f.Status != "", " AND status = ?", string(f.Status)},
		{f.Status == "", " AND listed = ?", 1},
	} {
		if c.on {
			q.WriteString(c.text)
			args = append(args, c.value)
		}
	}
	q.WriteString(" AND (created, id) < (?, ?) ORDER BY created DESC, id DESC LIMIT ?")
	return q.String(), append(args, before.place, before.id, limit)
}

// SessionRuns implements run.Store. Those of one epoch are for who shows what there is; who goes through all of them must
// not step over a run that is damaged.
func (s *Store) SessionRuns(ctx context.Context, sessionID string, epoch, afterOrd int64, limit int) ([]run.Run, error) {
	if err := checkPage(limit, sessionID); err != nil {
		return nil, fmt.Errorf("failed to list runs of session: %w", err)
	}
	if epoch == 0 {
		return list[run.Run](ctx, s, "runs of session", allSessionRuns, sessionID, afterOrd, limit)
	}
	return shown[run.Run](ctx, s, "run", limit, func(last *spot, limit int) (string, []any) {
		after := afterOrd
		if last != nil {
			after = last.place
		}
		return sessionRuns, []any{sessionID, epoch, after, limit}
	})
}

// SessionRunsBefore implements run.Store.
func (s *Store) SessionRunsBefore(ctx context.Context, sessionID string, epoch, beforeOrd int64, limit int) ([]run.Run, error) {
	if err := checkPage(limit, sessionID); err != nil {
		return nil, fmt.Errorf("failed to list runs of session: %w", err)
	}
	if beforeOrd <= 0 {
		beforeOrd = math.MaxInt64
	}
	return shown[run.Run](ctx, s, "run", limit, func(last *spot, limit int) (string, []any) {
		before := beforeOrd
		if last != nil {
			before = last.place
		}
		return sessionRunsBefore, []any{sessionID, epoch, before, limit}
	})
}

// UnfinishedRuns implements run.Store.
func (s *Store) UnfinishedRuns(ctx context.Context, after string, limit int) ([]run.Run, error) {
	if err := checkPage(limit, after); err != nil {
		return nil, fmt.Errorf("failed to list unfinished runs: %w", err)
	}
	return list[run.Run](ctx, s, "unfinished runs", unfinishedRuns, after, limit)
}

// CancelRequests implements run.Store.
func (s *Store) CancelRequests(ctx context.Context, after string, limit int) (found []run.CancelRequest, err error) {
	if err := checkPage(limit, after); err != nil {
		return nil, fmt.Errorf("failed to list cancel requests: %w", err)
	}
	st, err := s.query(ctx, cancelRequests)
	if err != nil {
		return nil, fmt.Errorf("failed to list cancel requests: %w", err)
	}
	rows, err := st.QueryContext(ctx, after, limit)
	if err != nil {
		return nil, fmt.Errorf("failed to list cancel requests: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var c run.CancelRequest
		if err := rows.Scan(&c.Run, &c.Reason); err != nil {
			return nil, fmt.Errorf("failed to list cancel requests: %w", err)
		}
		found = append(found, c)
	}
	return found, rows.Err()
}
