package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/harness-engine/harness-engine/store"
)

// change is one write of a document: a statement, and what its refusals are called in the port.
type change struct {
	noun, id string
	body     []byte
	query    string
	args     []any
	vital    bool
	also     func(t *tx) error                  // what belongs to the write, in the same transaction; may be nil
	none     func(t *tx) (refusal, fatal error) // no row was touched
	conflict func(t *tx, err error) (refusal error, fatal error)
	unknown  error // of the port
}

// change applies c in a group. The text of a document is bounded by store.Encode before it comes here.
func (s *Store) change(ctx context.Context, verb string, c change) error {
	err := s.committer.do(ctx, &write{
		bytes: len(c.body), vital: c.vital,
		apply: func(t *tx) (refusal, fatal error) {
			n, err := t.exec(c.query, c.args...)
			switch {
			case c.conflict != nil && (isPrimaryKey(err) || isUnique(err)):
				return c.conflict(t, err) // SQLite has undone this statement alone
			case err != nil:
				return nil, err
			case n == 0 && c.none != nil:
				return c.none(t)
			case c.also != nil:
				return nil, c.also(t)
			}
			return nil, nil
		},
	})
	if err != nil {
		return fmt.Errorf("failed to %s %s %s: %w", verb, c.noun, c.id, portError(err, c.unknown))
	}
	return nil
}

// refuse is a conflict or none that needs no further look.
func refuse(err error) func(*tx, error) (error, error) {
	return func(*tx, error) (error, error) { return err, nil }
}

// staleOr tells a document that is not there from one with another revision. query must have a row when it is there.
func staleOr(missing, stale error, query, id string) func(*tx) (error, error) {
	return func(t *tx) (refusal, fatal error) {
		ok, err := t.exists(query, id)
		switch {
		case err != nil:
			return nil, err
		case ok:
			return stale, nil
		}
		return missing, nil
	}
}

// one reads the document that the query finds; missing is the port's error when there is none.
func one[T any](ctx context.Context, s *Store, missing error, noun, query string, args ...any) (doc T, err error) {
	st, err := s.query(ctx, query)
	if err != nil {
		return doc, fmt.Errorf("failed to read %s: %w", noun, err)
	}
	var body []byte
	err = st.QueryRowContext(ctx, args...).Scan(&body)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return doc, fmt.Errorf("%s %v: %w", noun, args[0], missing)
	case err != nil:
		return doc, fmt.Errorf("failed to read %s %v: %w", noun, args[0], err)
	}
	return doc, store.Decode(body, &doc)
}

// list reads the documents that the query finds, in its order.
func list[T any](ctx context.Context, s *Store, noun, query string, args ...any) (out []T, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("failed to list %s: %w", noun, err)
		}
	}()
	st, err := s.query(ctx, query)
	if err != nil {
		return nil, err
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var body sql.RawBytes
		var doc T
		if err := rows.Scan(&body); err != nil {
			return nil, err
		}
		if err := store.Decode(body, &doc); err != nil {
			return nil, err
		}
		out = append(out, doc)
	}
	return out, rows.Err()
}

// spot is where a row stands in its list.
type spot struct {
	id    string
	place int64 // what the list goes by before the id: time in nanoseconds, or order; 0 where that is nothing
}

// shown is list for those who show what there is. A document that cannot be decoded costs only itself: it is left out, and
// told. page gives the query of at most so many rows behind a spot, nil at the start; its columns are id, place and body.
func shown[T any](ctx context.Context, s *Store, noun string, limit int, page func(after *spot, limit int) (query string, args []any)) (out []T, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("failed to list %ss: %w", noun, err)
		}
	}()
	var last *spot
	for len(out) < limit {
		wanted := limit - len(out)
		query, args := page(last, wanted)
		st, err := s.query(ctx, query)
		if err != nil {
			return nil, err
		}
		rows, err := st.QueryContext(ctx, args...)
		if err != nil {
			return nil, err
		}
		n, at := 0, spot{}
		for ; rows.Next(); n++ {
			var body sql.RawBytes
			if err := rows.Scan(&at.id, &at.place, &body); err != nil {
				return nil, errors.Join(err, rows.Close())
			}
			var doc T
			if err := store.Decode(body, &doc); err != nil {
				s.damaged.tell(ctx, s.opts.Logger, noun, at.id, err)
				continue
			}
			out = append(out, doc)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
		if n < wanted {
			break
		}
		last = &at // others take the places of those that were left out
	}
	return out, nil
}

// damaged remembers which documents were found damaged while they were listed, so that each is told once.
type damaged struct {
	mu   sync.Mutex
	told map[[2]string]bool
}

const maxDamaged = 10_000 // that are remembered

func (d *damaged) tell(ctx context.Context, logger *slog.Logger, noun, id string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if key := [2]string{noun, id}; !d.told[key] && len(d.told) < maxDamaged {
		if d.told == nil {
			d.told = map[[2]string]bool{}
		}
		d.told[key] = true
		logger.ErrorContext(ctx, "a document is damaged and is left out of lists: see admin verify", "document", noun, "id", id, "damaged", len(d.told), "error", err)
	}
}

// checkedDocument returns the encoded document, or the first reason to refuse it.
func checkedDocument(document any, checks ...error) ([]byte, error) {
	for _, err := range checks {
		if err != nil {
			return nil, err
		}
	}
	return store.Encode(document, store.MaxDocumentBytes)
}

// checkPage checks the arguments of a listing.
func checkPage(limit int, filters ...string) error {
	if err := store.CheckPage(limit); err != nil {
		return err
	}
	for _, f := range filters {
		if err := store.CheckFilter("filter", f); err != nil {
			return err
		}
	}
	return nil
}
