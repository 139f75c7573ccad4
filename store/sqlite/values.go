package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/harness-engine/harness-engine/store"
)

const (
	insertValue = "INSERT INTO named_values (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING"
	getValue    = "SELECT value FROM named_values WHERE name = ?"
)

// Value implements store.Values.
func (s *Store) Value(ctx context.Context, name string) (value []byte, err error) {
	st, err := s.query(ctx, getValue)
	if err == nil {
		err = st.QueryRowContext(ctx, name).Scan(&value)
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, fmt.Errorf("%w: %q", store.ErrNoValue, name)
	case err != nil:
		return nil, fmt.Errorf("failed to read value %q: %w", name, err)
	}
	return value, nil
}

// PutValueIfAbsent implements store.Values. An error says nothing of the outcome: call it again.
func (s *Store) PutValueIfAbsent(ctx context.Context, name string, value []byte) ([]byte, error) {
	if err := store.CheckKey("name", name); err != nil {
		return nil, fmt.Errorf("failed to put value: %w", err)
	}
	if n := len(value); n == 0 || n > store.MaxValueBytes {
		return nil, fmt.Errorf("failed to put value %q: %w: it has %d bytes, 1 to %d are allowed", name, store.ErrInvalid, n, store.MaxValueBytes)
	}
	own := append([]byte(nil), value...)
	err := s.committer.do(ctx, &write{bytes: len(own), apply: func(t *tx) (refusal, fatal error) {
		_, err := t.exec(insertValue, name, own)
		return nil, err
	}})
	if err != nil {
		return nil, fmt.Errorf("failed to put value %q: %w", name, err)
	}
	return s.Value(ctx, name)
}
