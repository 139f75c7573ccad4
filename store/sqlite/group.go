package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/event"
)

// frameBytes is what a write adds to the write-ahead log at least: a page of the table and one of an index.
const frameBytes = 2 * pageBytes

// commit makes a group durable and then tells each caller its outcome, in the order of the commit. On a full disk
// it gives up the reserve and tries once more with the vital writes only.
func (c *committer) commit(group []*write) {
	if c.disk.full.Load() {
		c.leaveFull()
	}
	if c.disk.full.Load() {
		group = refuseOrdinary(group, fmt.Errorf("%w: new work is refused", event.ErrDiskFull))
	}
	if len(group) == 0 {
		return
	}
	verdicts, err := c.attempt(group)
	if err != nil && full(err) {
		if c.disk.full.CompareAndSwap(false, true) {
			c.logger.Error("disk is full: new work is refused, what ends runs uses the reserve", "err", err)
		}
		c.disk.giveUpReserve()
		if group = refuseOrdinary(group, diskFull(err)); len(group) == 0 {
			return
		}
		if verdicts, err = c.attempt(group); err != nil && full(err) {
			err = diskFull(err)
		}
	}
	for i, w := range group {
		if err != nil {
			w.done <- err
		} else {
			w.done <- verdicts[i]
		}
	}
}

// leaveFull ends the state of a full disk when there is clearly room again.
func (c *committer) leaveFull() {
	if !c.disk.recovered() {
		return
	}
	if err := c.disk.makeReserve(); err != nil {
		c.logger.Warn("no reserve for a full disk", "err", err)
	}
	c.disk.full.Store(false)
	c.relieved()
	c.logger.Info("disk has room again")
}

// refuseOrdinary answers the writes that are not vital and returns the others.
func refuseOrdinary(group []*write, err error) []*write {
	vital := make([]*write, 0, len(group))
	for _, w := range group {
		if w.vital {
			vital = append(vital, w)
		} else {
			w.done <- err
		}
	}
	return vital
}

// attempt runs one transaction: BEGIN, each write, COMMIT. It returns each write's verdict when the transaction is
// durable; otherwise an error that holds for all of them: errUnknown (wrapped) where the disk's content is unknown,
// anything else where nothing was written. It uses a context of its own, so that no caller can end it half-way.
func (c *committer) attempt(group []*write) ([]error, error) {
	if err := c.disk.faults.begin(); err != nil {
		return nil, c.failed("begin", err)
	}
	if err := c.tx.exec1(beginImmediate); err != nil {
		return nil, c.failed("begin", err)
	}
	verdicts := make([]error, len(group))
	grown := int64(frameBytes)
	for i, w := range group {
		refusal, fatal := w.apply(c.tx)
		if fatal != nil {
			return nil, c.rollback("write", fatal)
		}
		verdicts[i] = refusal
		if refusal == nil {
			grown += int64(w.bytes) + frameBytes
		}
	}
	if err := c.tx.exec1(c.disk.faults.ending()); err != nil {
		return nil, c.rollback("commit", err)
	}
	c.grown(grown)
	return verdicts, c.disk.faults.answer()
}

// rollback ends a transaction that failed in the step, and judges what the failure means.
func (c *committer) rollback(step string, cause error) error {
	err := c.failed(step, cause)
	// Some failures (a full disk, an I/O error) have ended the transaction already; then ROLLBACK has nothing to do.
	if rb := c.tx.exec1(rollbackGroup); rb != nil && !noTransaction(rb) {
		return errors.Join(err, c.poison(fmt.Errorf("failed to roll back: %w", rb)))
	}
	return err
}

// failed judges a failure of one step. Without room nothing was written, since a transaction counts only with its
// last frame. An untrusted disk poisons the store; at COMMIT any failure but "no room" and "busy" does, since the
// last frame may or may not be there.
func (c *committer) failed(step string, cause error) error {
	err := fmt.Errorf("failed to %s group: %w", step, cause)
	switch {
	case full(cause):
		return err
	case step == "commit" && !busy(cause):
		return fmt.Errorf("%w: %w", errUnknown, c.poison(err))
	case untrusted(cause):
		return c.poison(err)
	}
	return err
}

// Statements of the transaction itself.
const (
	beginImmediate = "BEGIN IMMEDIATE"
	commitGroup    = "COMMIT"
	rollbackGroup  = "ROLLBACK"
)

// tx runs statements on the writing connection, each prepared once.
type tx struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func newTx(conn *sql.Conn) *tx { return &tx{conn: conn, stmts: map[string]*sql.Stmt{}} }

func (t *tx) stmt(query string) (*sql.Stmt, error) {
	if st, ok := t.stmts[query]; ok {
		return st, nil
	}
	st, err := t.conn.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	t.stmts[query] = st
	return st, nil
}

// exec runs a change and returns how many rows it touched.
func (t *tx) exec(query string, args ...any) (int64, error) {
	st, err := t.stmt(query)
	if err != nil {
		return 0, err
	}
	r, err := st.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (t *tx) exec1(query string) error {
	_, err := t.exec(query)
	return err
}

// exists reports whether the query has a row.
func (t *tx) exists(query string, args ...any) (bool, error) {
	st, err := t.stmt(query)
	if err != nil {
		return false, err
	}
	var one int
	err = st.QueryRowContext(context.Background(), args...).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (t *tx) close() {
	for _, st := range t.stmts {
		_ = st.Close()
	}
	_ = t.conn.Close()
}
