package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/store"
)

// Errors of this backend.
var (
	// ErrPoisoned: an I/O error made the content of the disk uncertain. The process must exit and open anew.
	ErrPoisoned = errors.New("sqlite: store is poisoned by an I/O error")
	// ErrLocked: another process has the data folder to itself, or one of an earlier version has it open.
	ErrLocked = errors.New("sqlite: data folder is in use by another engine")
	// ErrSchemaNewer: a newer engine wrote the database.
	ErrSchemaNewer = errors.New("sqlite: database schema is newer than this engine")
	// ErrForeignFile: the file is a database of something else, or not a database.
	ErrForeignFile = errors.New("sqlite: not a database of this engine")
	// ErrDiskLow: free space is below Options.MinFreeBytes. Only new work is refused.
	ErrDiskLow = errors.New("sqlite: disk space is low")
	// ErrWALFull: the write-ahead log is above Options.MaxWALBytes. Only new work is refused.
	ErrWALFull = errors.New("sqlite: write-ahead log is too large")

	// errUnknown marks a write that may or may not be durable; each port gives it its own name.
	errUnknown = errors.New("sqlite: write outcome unknown")
)

// portError gives a failure of the writer the name that the port has for it.
func portError(err, unknown error) error {
	if errors.Is(err, errUnknown) {
		return fmt.Errorf("%w: %w", unknown, err)
	}
	return err
}

// code returns the extended SQLite result code in err, or 0.
func code(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// primary returns the primary SQLite result code in err, or 0.
func primary(err error) int { return code(err) & 0xff }

// full reports that there was no room.
func full(err error) bool { return primary(err) == lib.SQLITE_FULL }

// busy reports that a lock could not be had in time.
func busy(err error) bool { return primary(err) == lib.SQLITE_BUSY }

// noTransaction reports that a ROLLBACK found no transaction: SQLite has no code of its own for it.
func noTransaction(err error) bool { return primary(err) == lib.SQLITE_ERROR }

// diskFull gives the "no room" of SQLite the engine's name.
func diskFull(err error) error { return fmt.Errorf("%w: %w", event.ErrDiskFull, err) }

// untrusted reports a failure after which nobody knows what the disk holds.
func untrusted(err error) bool {
	switch primary(err) {
	case lib.SQLITE_IOERR, lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB, lib.SQLITE_READONLY, lib.SQLITE_PROTOCOL, lib.SQLITE_CANTOPEN:
		return true
	}
	return false
}

// foreign adds ErrForeignFile to the failure of a file that is no database.
func foreign(err error) error {
	if primary(err) == lib.SQLITE_NOTADB {
		return fmt.Errorf("%w: %w", ErrForeignFile, err)
	}
	return err
}

// isUnique reports a violated unique index, and isPrimaryKey a taken primary key.
func isUnique(err error) bool     { return code(err) == lib.SQLITE_CONSTRAINT_UNIQUE }
func isPrimaryKey(err error) bool { return code(err) == lib.SQLITE_CONSTRAINT_PRIMARYKEY }

// withdrawn is the error of a write whose caller gave up before it was begun: nothing was written.
func withdrawn(ctx context.Context) error {
	return fmt.Errorf("write was withdrawn before it began: %w", context.Cause(ctx))
}

// abandoned is the error of a write whose caller gave up during the commit.
func abandoned(ctx context.Context, waited time.Duration) error {
	return fmt.Errorf("%w: the commit did not end within %s after the caller gave up: %w", errUnknown, waited, context.Cause(ctx))
}

var errClosed = store.ErrClosed
