package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

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
