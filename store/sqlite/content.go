package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/retention"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/store"
)

const (
	useAttachment     = "INSERT INTO attachment_uses (attachment, run) VALUES (?, ?) ON CONFLICT DO NOTHING"
	unusedAttachments = `SELECT body FROM attachments WHERE id > ? AND created < ?
		AND NOT EXISTS (SELECT 1 FROM attachment_uses WHERE attachment = attachments.id) ORDER BY id LIMIT ?`
	deleteUnused   = "DELETE FROM attachments WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM attachment_uses WHERE attachment = ?1)"
	hashIsAttached = "SELECT EXISTS (SELECT 1 FROM attachments WHERE hash = ?)"
)

var _ retention.Content = (*Store)(nil)

// useAttachments notes what the run names, in the transaction that inserts it.
func useAttachments(t *tx, r run.Run) error {
	for _, a := range r.Input.Attachments {
		if _, err := t.exec(useAttachment, a.ID, r.ID); err != nil {
			return err
		}
	}
	return nil
}

// UnusedAttachments implements retention.Content.
func (s *Store) UnusedAttachments(ctx context.Context, before time.Time, after string, limit int) ([]file.Attachment, error) {
	if err := checkPage(limit, after); err != nil {
		return nil, fmt.Errorf("failed to list unused attachments: %w", err)
	}
	if err := store.CheckTime("before", before); err != nil {
		return nil, fmt.Errorf("failed to list unused attachments: %w", err)
	}
	return list[file.Attachment](ctx, s, "unused attachments", unusedAttachments, after, before.UnixNano(), limit)
}

// DeleteUnusedAttachment implements retention.Content. An error says nothing of the outcome: call it again.
func (s *Store) DeleteUnusedAttachment(ctx context.Context, id string) (bool, error) {
	n := int64(0)
	err := s.committer.do(ctx, &write{apply: func(t *tx) (refusal, fatal error) {
		n, fatal = t.exec(deleteUnused, id)
		return nil, fatal
	}})
	if err != nil {
		return false, fmt.Errorf("failed to delete attachment %s: %w", id, err)
	}
	return n > 0, nil
}

// ContentAttached implements retention.Content.
func (s *Store) ContentAttached(ctx context.Context, hash string) (attached bool, err error) {
	st, err := s.query(ctx, hashIsAttached)
	if err == nil {
		err = st.QueryRowContext(ctx, hash).Scan(&attached)
	}
	if err != nil {
		return false, fmt.Errorf("failed to look for attachments of content %s: %w", hash, err)
	}
	return attached, nil
}
