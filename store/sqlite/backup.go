package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/harness-engine/harness-engine/store"
	"github.com/harness-engine/harness-engine/store/internal/folder"
)

// CopyInto copies the database file at path, whatever it is a database of, into a new file at dest, as one committed state,
// while others read and write it. The copy is synced, and only this user can read it.
func CopyInto(ctx context.Context, path, dest string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("failed to copy database %s: %w", path, err)
		}
	}()
	// VACUUM INTO takes an empty file, which gives the copy its mode.
	f, err := os.OpenFile(dest, os.O_RDWR|os.O_CREATE|os.O_EXCL, folder.FileMode)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	err = alone(ctx, path, func(db *sql.Conn) error {
		_, err := db.ExecContext(ctx, "VACUUM INTO ?", dest)
		return err
	})
	if err != nil {
		return err
	}
	if f, err = os.OpenFile(dest, os.O_RDWR, 0); err != nil { // VACUUM INTO does not sync
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return folder.Sync(filepath.Dir(dest))
}

// CheckFile asks SQLite whether the database file is whole. It reads all of it.
func CheckFile(ctx context.Context, path string) error {
	var verdict string
	err := alone(ctx, path, func(db *sql.Conn) error {
		return db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&verdict)
	})
	if err == nil && verdict != "ok" {
		err = errors.New(verdict)
	}
	if err != nil {
		return fmt.Errorf("failed to check database %s: %w", path, err)
	}
	return nil
}

// Restored makes the database of a restored backup one of its own, before any engine opens it: it gets the incarnation, so
// that cursors of the original are told from its own, and forgets which authorization stores have its tuples.
func Restored(ctx context.Context, path, incarnation string) error {
	if err := store.CheckKey("incarnation", incarnation); err != nil {
		return fmt.Errorf("failed to restore database %s: %w", path, err)
	}
	err := alone(ctx, path, func(db *sql.Conn) error {
		if err := checkVersion(ctx, db); err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after Commit
		if _, err := tx.ExecContext(ctx, "DELETE FROM named_values WHERE substr(name, 1, length(?1)) = ?1", store.AppliedPrefix); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO named_values (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
			store.ValueIncarnation, []byte(incarnation))
		if err != nil {
			return err
		}
		return tx.Commit()
	})
	if err != nil {
		return fmt.Errorf("failed to restore database %s: %w", path, err)
	}
	return nil
}

// alone opens one connection for a moment. The file must be there.
func alone(ctx context.Context, path string, use func(db *sql.Conn) error) (err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if _, err := os.Stat(abs); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no such file: %w", err)
	} else if err != nil {
		return err
	}
	pool, err := connect(abs, "", readerCache, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	conn, err := pool.Conn(ctx)
	if err != nil {
		return foreign(err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return use(conn)
}
