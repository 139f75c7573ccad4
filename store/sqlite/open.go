package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/store/internal/folder"
)

// Connections. The waiting time is for the short moments in which a checkpoint holds the writer's lock.
const (
	driverName  = "sqlite"
	busyTimeout = 5 * time.Second
	pageBytes   = 4096
	writerCache = 32 << 20 // of hot pages
	readerCache = 4 << 20  // of each reading connection
	keptWAL     = 64 << 20 // the file is cut to this length when it is begun anew; kept, it is cheaper to overwrite
)

// dsn builds the name of a connection: the path escaped, the settings that each connection needs.
func dsn(path, vfs string, cache int, extra ...string) string {
	q := url.Values{"_txlock": {"immediate"}, "_dqs": {"0"}, "_defensive": {"1"}, "_error_rc": {"1"}}
	if vfs != "" {
		q.Set("vfs", vfs)
	}
	if !slices.ContainsFunc(extra, func(p string) bool { return strings.HasPrefix(p, "busy_timeout(") }) {
		extra = append(extra, waitFor(busyTimeout))
	}
	for _, p := range append([]string{
		"synchronous(FULL)",
		"fullfsync(1)",            // macOS: F_FULLFSYNC; nothing elsewhere
		"checkpoint_fullfsync(1)", // "
		"wal_autocheckpoint(0)",   // the checkpointer does it
		"journal_size_limit(" + strconv.Itoa(keptWAL) + ")",
		"temp_store(MEMORY)",
		"trusted_schema(0)",
		"cache_size(-" + strconv.Itoa(cache>>10) + ")",
	}, extra...) {
		q.Add("_pragma", p)
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

// waitFor is the setting of how long a connection waits for a lock.
func waitFor(d time.Duration) string {
	return "busy_timeout(" + strconv.FormatInt(d.Milliseconds(), 10) + ")"
}

// connect opens a pool of connections, without making one yet.
func connect(path, vfs string, cache, connections int, extra ...string) (*sql.DB, error) {
	db, err := sql.Open(driverName, dsn(path, vfs, cache, extra...))
	if err != nil {
		return nil, fmt.Errorf("failed to open database: %w", err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// prepareFolder makes the folder and the database file with modes that keep others out; SQLite gives the files that
// it makes beside the database the same mode.
func prepareFolder(path string) error {
	data := filepath.Dir(path)
	if err := folder.Make(data); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, folder.FileMode)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return fmt.Errorf("failed to make database file: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("failed to make database file: %w", err)
	}
	return folder.Sync(data)
}

// prepareDatabase recovers and empties the write-ahead log, and brings the schema up to date. It checkpoints before
// anything is added, so that what an earlier process left is safe, and again after migrations. cramped reports that
// the disk had no room for that: the log is synced then, but not carried over, and the store starts with a full disk.
func prepareDatabase(ctx context.Context, conn *sql.Conn, path string, d *disk) (applied int, cramped bool, err error) {
	if err := claimFile(ctx, conn); err != nil {
		return 0, false, err
	}
	var mode string
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return 0, false, fmt.Errorf("failed to set write-ahead logging: %w", err)
	}
	if mode != "wal" {
		return 0, false, fmt.Errorf("database file cannot use write-ahead logging (journal mode is %q); network file systems cannot", mode)
	}
	if cramped, err = recoverLog(ctx, conn, d); err != nil {
		return 0, cramped, err
	}
	steps, err := loadMigrations(migrationFiles)
	if err != nil {
		return 0, cramped, err
	}
	if applied, err = migrate(ctx, conn, steps); err != nil {
		return applied, cramped, err
	}
	if applied > 0 {
		if _, err := checkpoint(ctx, conn, "TRUNCATE"); err != nil {
			return applied, cramped, fmt.Errorf("failed to checkpoint: %w", err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil { // an operator may have copied it here with another mode
		return applied, cramped, fmt.Errorf("failed to protect database file: %w", err)
	}
	return applied, cramped, nil
}

// joinDatabase looks at a database that another engine has open. It changes nothing: a schema that is older than this
// engine's is brought up to date by whoever opens it alone.
func joinDatabase(ctx context.Context, conn *sql.Conn) error {
	switch missing, err := nextMigration(ctx, conn); {
	case err != nil:
		return err
	case missing != nil:
		return fmt.Errorf("%w: an engine of an earlier version has it open, and migration %s needs it alone; stop that engine first", ErrLocked, missing.name)
	}
	return nil
}

// recoverLog carries the write-ahead log over, if need be with the room of the reserve.
func recoverLog(ctx context.Context, conn *sql.Conn, d *disk) (cramped bool, err error) {
	_, err = checkpoint(ctx, conn, "TRUNCATE")
	if full(err) && d.giveUpReserve() {
		_, err = checkpoint(ctx, conn, "TRUNCATE")
	}
	switch {
	case full(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("failed to recover write-ahead log: %w", err)
	}
	return false, nil
}
