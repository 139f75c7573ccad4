package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/integrity"
	"github.com/harness-engine/harness-engine/store"
)

const (
	chunkColumns = "run, first, last, session, gen, writer, terminal, cursors, facts, sha256, body"

	insertChunk = "INSERT INTO chunks (" + chunkColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
	getChunk    = "SELECT " + shownColumns + " FROM chunks WHERE run = ?1 AND first = ?2"
	tailChunk   = "SELECT " + shownColumns + " FROM chunks WHERE run = ?1 ORDER BY first DESC LIMIT 1"
	// A chunk with last > after starts above after - MaxChunkEvents: the key bounds the search from both sides.
	readChunks = "SELECT " + shownColumns + " FROM chunks WHERE run = ?1 AND first > ?2 AND last > ?3 ORDER BY first LIMIT ?4"

	// How far the run's log has expired comes with each row, from the same snapshot. A read that finds no row asks
	// afterwards: the mark is set before anything is removed, so whoever missed a chunk sees the mark.
	expiredOf    = "SELECT expired FROM runs WHERE id = ?1"
	givenUpOf    = "SELECT coalesce(body ->> '$.lastSequence', 0) FROM runs WHERE id = ?1 AND ended = 1 AND body ->> '$.halted' IS NOT NULL"
	shownColumns = chunkColumns + ", coalesce((" + expiredOf + "), 0)"
)

// Append implements event.Log.
func (s *Store) Append(ctx context.Context, c event.Chunk) error {
	if err := store.CheckChunk(c); err != nil {
		return fmt.Errorf("failed to append to run %s: %w", c.RunID, err)
	}
	cursors, err := encodeMeta("cursors", c.Cursors)
	if err != nil {
		return fmt.Errorf("failed to append to run %s: %w", c.RunID, err)
	}
	facts, err := encodeMeta("facts", c.Facts)
	if err != nil {
		return fmt.Errorf("failed to append to run %s: %w", c.RunID, err)
	}
	// The arguments are copied by the driver only when they are bound, so the chunk's own are copied here: a caller
	// that gave up may use its buffer again.
	body, sum := append([]byte(nil), c.Body...), append([]byte(nil), c.SHA256[:]...)
	err = s.committer.do(ctx, &write{
		run: c.RunID, bytes: len(body) + len(cursors.String) + len(facts.String), vital: c.Terminal,
		apply: func(t *tx) (refusal, fatal error) {
			n, err := t.exec(insertChunk, c.RunID, c.First, c.Last, c.SessionID, c.Gen, c.Writer, c.Terminal, cursors, facts, sum, body)
			if err != nil {
				return nil, err
			}
			if n == 0 {
				return &event.DuplicateError{RunID: c.RunID, First: c.First}, nil
			}
			return nil, nil
		},
	})
	if err != nil {
		return fmt.Errorf("failed to append to run %s at %d: %w", c.RunID, c.First, portError(err, event.ErrUnknownOutcome))
	}
	return nil
}

// Get implements event.Log.
func (s *Store) Get(ctx context.Context, runID string, first int64) (event.Chunk, error) {
	c, expired, err := s.oneChunk(ctx, getChunk, runID, first)
	if expired >= first && expired > 0 && (err == nil || errors.Is(err, event.ErrEmpty)) {
		return event.Chunk{}, event.Expired(runID, expired)
	}
	return c, err
}

// Tail implements event.Log.
func (s *Store) Tail(ctx context.Context, runID string) (event.Chunk, error) {
	c, expired, err := s.oneChunk(ctx, tailChunk, runID)
	if expired >= c.Last && expired > 0 && (err == nil || errors.Is(err, event.ErrEmpty)) {
		return event.Chunk{}, event.Expired(runID, expired)
	}
	if (err == nil && !c.Terminal) || errors.Is(err, event.ErrCorrupt) {
		// A log that goes no further: mostly the run is at work, and the row is small.
		if through, ended, failed := s.givenUp(ctx, runID); failed != nil || ended {
			return event.Chunk{}, cmp.Or(failed, error(&event.GivenUpError{RunID: runID, Through: max(through, c.Last)}))
		}
	}
	return c, err
}

// givenUp says whether the run has ended without its log, and at which event.
func (s *Store) givenUp(ctx context.Context, runID string) (through int64, ended bool, err error) {
	st, err := s.query(ctx, givenUpOf)
	if err == nil {
		err = st.QueryRowContext(ctx, runID).Scan(&through)
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("failed to read whether run %s was given up: %w", runID, err)
	}
	return through, true, nil
}

// oneChunk also returns how far the run's log has expired.
func (s *Store) oneChunk(ctx context.Context, query, runID string, args ...any) (event.Chunk, int64, error) {
	st, err := s.query(ctx, query)
	if err != nil {
		return event.Chunk{}, 0, err
	}
	c, expired, err := scanChunk(st.QueryRowContext(ctx, append([]any{runID}, args...)...))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if expired, err = s.expired(ctx, runID); err == nil {
			err = event.ErrEmpty
		}
	case err != nil:
		err = fmt.Errorf("failed to read chunk of run %s: %w", runID, err)
	}
	return c, expired, err
}

// expired is how far the run's log has expired; 0 where it has not, or there is no such run.
func (s *Store) expired(ctx context.Context, runID string) (through int64, err error) {
	st, err := s.query(ctx, expiredOf)
	if err == nil {
		err = st.QueryRowContext(ctx, runID).Scan(&through)
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("failed to read how far run %s has expired: %w", runID, err)
	}
	return through, nil
}

// Read implements event.Log. It also stops before the chunks hold more than store.MaxReadBytes.
func (s *Store) Read(ctx context.Context, runID string, after int64, maxEvents int) (_ []event.Chunk, err error) {
	if err := store.CheckRead(runID, after, maxEvents); err != nil {
		return nil, fmt.Errorf("failed to read log: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("failed to read log of run %s: %w", runID, err)
		}
	}()
	st, err := s.query(ctx, readChunks)
	if err != nil {
		return nil, err
	}
	rows, err := st.QueryContext(ctx, runID, after-event.MaxChunkEvents, after, maxEvents)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []event.Chunk
	events, bytes := int64(0), 0
	for rows.Next() {
		c, expired, err := scanChunk(rows)
		if errors.Is(err, integrity.ErrDamaged) && len(out) > 0 {
			return out, nil // what is before the damage can be read
		}
		if err != nil {
			return nil, err
		}
		if after < expired {
			return nil, event.Expired(runID, expired)
		}
		events, bytes = events+c.Last-c.First+1, bytes+len(c.Body)
		if len(out) > 0 && (events > int64(maxEvents) || bytes > store.MaxReadBytes) {
			return out, nil
		}
		out = append(out, c)
	}
	if err := rows.Err(); err != nil || len(out) > 0 {
		return out, err
	}
	through, err := s.expired(ctx, runID)
	if err == nil && after < through {
		err = event.Expired(runID, through)
	}
	return nil, err
}

type scanner interface{ Scan(into ...any) error }

func scanChunk(row scanner) (c event.Chunk, expired int64, err error) {
	var cursors, facts sql.NullString
	var sum []byte
	err = row.Scan(&c.RunID, &c.First, &c.Last, &c.SessionID, &c.Gen, &c.Writer, &c.Terminal, &cursors, &facts, &sum, &c.Body, &expired)
	if err != nil {
		return event.Chunk{}, 0, err
	}
	copy(c.SHA256[:], sum)
	if cursors.Valid {
		err = json.Unmarshal([]byte(cursors.String), &c.Cursors)
	}
	if facts.Valid {
		err = errors.Join(err, json.Unmarshal([]byte(facts.String), &c.Facts))
	}
	if err != nil {
		return event.Chunk{}, 0, fmt.Errorf("chunk %s/%d: %w: %w", c.RunID, c.First, errors.Join(integrity.ErrDamaged, event.ErrCorrupt), err)
	}
	return c, expired, nil
}

// encodeMeta keeps the difference between no map and an empty map, since the chunk's hash may know it.
func encodeMeta[V any](field string, m map[string]V) (sql.NullString, error) {
	if m == nil {
		return sql.NullString{}, nil
	}
	text, err := store.Encode(m, store.MaxChunkMeta)
	if err != nil {
		return sql.NullString{}, fmt.Errorf("%s: %w", field, err)
	}
	return sql.NullString{String: string(text), Valid: true}, nil
}
