package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

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

// Retries of a put whose outcome is not known.
const (
	putAttempts = 8
	putPause    = 20 * time.Millisecond // the first, doubled each time
)

// PutValueIfAbsent implements store.Values. It resolves an unknown outcome by reading; an error says nothing of the outcome.
func (s *Store) PutValueIfAbsent(ctx context.Context, name string, value []byte) ([]byte, error) {
	if err := store.CheckKey("name", name); err != nil {
		return nil, fmt.Errorf("failed to put value: %w", err)
	}
	if n := len(value); n == 0 || n > store.MaxValueBytes {
		return nil, fmt.Errorf("failed to put value %q: %w: it has %d bytes, 1 to %d are allowed", name, store.ErrInvalid, n, store.MaxValueBytes)
	}
	own := append([]byte(nil), value...)
	stored, err := putOnce(ctx, func() error {
		return s.committer.do(ctx, &write{bytes: len(own), apply: func(t *tx) (refusal, fatal error) {
			_, err := t.exec(insertValue, name, own)
			return nil, err
		}})
	}, func() ([]byte, error) { return s.Value(ctx, name) })
	if err != nil {
		return nil, fmt.Errorf("failed to put value %q: %w", name, err)
	}
	return stored, nil
}

// putOnce puts, and reads what is there then: whoever came first has put it. A put that may or may not have happened is read,
// and repeated where it has not: whichever of them takes effect, the first one stays.
func putOnce(ctx context.Context, put func() error, get func() ([]byte, error)) ([]byte, error) {
	pause := putPause
	for attempt := 1; ; attempt++ {
		err := put()
		if err != nil && !errors.Is(err, errUnknown) {
			return nil, err
		}
		stored, missing := get()
		if err == nil || missing == nil {
			return stored, missing
		}
		if !errors.Is(missing, store.ErrNoValue) || attempt == putAttempts {
			return nil, errors.Join(err, missing)
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		}
	}
}
