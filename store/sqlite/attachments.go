package sqlite

import (
	"context"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/store"
)

const (
	insertAttachment = "INSERT INTO attachments (id, environment, owner, hash, created, body) VALUES (?, ?, ?, ?, ?, ?)"
	getAttachment    = "SELECT body FROM attachments WHERE id = ?"
)

func checkAttachment(a file.Attachment) error {
	err := store.CheckKeys([2]string{"id", a.ID}, [2]string{"environment", a.Environment}, [2]string{"owner", a.Owner}, [2]string{"hash", a.Hash})
	if err != nil {
		return err
	}
	if a.Size < 0 {
		return fmt.Errorf("%w: size is %d, it must not be negative", store.ErrInvalid, a.Size)
	}
	return store.CheckTime("createdAt", a.CreatedAt)
}

// InsertAttachment implements file.Store.
func (s *Store) InsertAttachment(ctx context.Context, a file.Attachment) error {
	body, err := checkedDocument(a, checkAttachment(a))
	if err != nil {
		return fmt.Errorf("failed to insert attachment %s: %w", a.ID, err)
	}
	return s.change(ctx, "insert", change{
		noun: "attachment", id: a.ID, body: body, query: insertAttachment,
		args:     []any{a.ID, a.Environment, a.Owner, a.Hash, a.CreatedAt.UnixNano(), string(body)},
		conflict: refuse(file.ErrExists), unknown: file.ErrUnknownOutcome,
	})
}

// Attachment implements file.Store.
func (s *Store) Attachment(ctx context.Context, id string) (file.Attachment, error) {
	return one[file.Attachment](ctx, s, file.ErrNotFound, "attachment", getAttachment, id)
}
