package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// applicationID marks the database file as ours (PRAGMA application_id): "HEng".
const applicationID = 0x48456e67

// migration is one numbered step of the schema. Steps are applied in order, each in its own transaction, and never
// changed or taken back once released: the checksum in the database proves it.
type migration struct {
	version  int
	name     string
	checksum string
	sql      string
}

// loadMigrations reads NNNN_name.sql files; the numbers must be 1, 2, 3, ...
func loadMigrations(files fs.FS) ([]migration, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("failed to list migrations: %w", err)
	}
	out := make([]migration, 0, len(names))
	for i, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("failed to read migration %s: %w", name, err)
		}
		base := path.Base(name)
		number, _, _ := strings.Cut(base, "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %s must have the number %04d", base, i+1)
		}
		sum := sha256.Sum256(text)
		out = append(out, migration{version: version, name: base, checksum: hex.EncodeToString(sum[:]), sql: string(text)})
	}
	return out, nil
}

// migrate brings the schema to the last step, or refuses: a changed step, a newer schema.
func migrate(ctx context.Context, conn *sql.Conn, steps []migration) (applied int, err error) {
	pending, err := pendingMigrations(ctx, conn, steps)
	if err != nil {
		return 0, err
	}
	for _, s := range pending {
		if err := apply(ctx, conn, s); err != nil {
			return applied, fmt.Errorf("failed to apply migration %s: %w", s.name, err)
		}
		applied++
	}
	return applied, nil
}

// nextMigration is the first step of this engine that the database has not seen; nil where it has seen all.
func nextMigration(ctx context.Context, conn *sql.Conn) (*migration, error) {
	steps, err := loadMigrations(migrationFiles)
	if err != nil {
		return nil, err
	}
	pending, err := pendingMigrations(ctx, conn, steps)
	if err != nil || len(pending) == 0 {
		return nil, err
	}
	return &pending[0], nil
}

// pendingMigrations are the steps that the database has not seen.
func pendingMigrations(ctx context.Context, conn *sql.Conn, steps []migration) ([]migration, error) {
	done, err := appliedMigrations(ctx, conn)
	if err != nil {
		return nil, err
	}
	if n := len(done); n > len(steps) {
		return nil, fmt.Errorf("%w: it is at version %d (%s), this engine knows versions up to %d; run the newer engine, or restore a backup made before the upgrade",
			ErrSchemaNewer, n, done[n-1].name, len(steps))
	}
	for i, d := range done {
		if s := steps[i]; d.version != s.version || d.checksum != s.checksum {
			return nil, fmt.Errorf("migration %d was applied as %s with checksum %.12s, but this engine has %s with checksum %.12s: the database was written by another build",
				i+1, d.name, d.checksum, s.name, s.checksum)
		}
	}
	return steps[len(done):], nil
}

// claimFile marks an empty database as ours and refuses one that belongs to something else, before anything of it is
// changed.
func claimFile(ctx context.Context, conn *sql.Conn) error {
	var appID, tables int
	if err := conn.QueryRowContext(ctx, "PRAGMA application_id").Scan(&appID); err != nil {
		return foreign(fmt.Errorf("failed to read application id: %w", err))
	}
	if err := conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return foreign(fmt.Errorf("failed to read schema: %w", err))
	}
	switch {
	case appID == applicationID:
		return nil
	case appID != 0 || tables != 0:
		return fmt.Errorf("%w: application id %#x, %d schema entries", ErrForeignFile, appID, tables)
	}
	if _, err := conn.ExecContext(ctx, fmt.Sprintf(`PRAGMA application_id = %d`, applicationID)); err != nil {
		return fmt.Errorf("failed to set application id: %w", err)
	}
	return nil
}

func appliedMigrations(ctx context.Context, conn *sql.Conn) ([]migration, error) {
	_, err := conn.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS schema_migrations (
		version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at TEXT NOT NULL) STRICT`)
	if err != nil {
		return nil, fmt.Errorf("failed to create migration table: %w", err)
	}
	rows, err := conn.QueryContext(ctx, "SELECT version, name, checksum FROM schema_migrations ORDER BY version")
	if err != nil {
		return nil, fmt.Errorf("failed to read migration table: %w", err)
	}
	defer rows.Close()
	var out []migration
	for rows.Next() {
		var m migration
		if err := rows.Scan(&m.version, &m.name, &m.checksum); err != nil {
			return nil, fmt.Errorf("failed to read migration table: %w", err)
		}
		out = append(out, m)
	}
	return out, rows.Err()
}

func apply(ctx context.Context, conn *sql.Conn, m migration) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, m.sql); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES (?, ?, ?, ?)",
		m.version, m.name, m.checksum, time.Now().UTC().Format(time.RFC3339))
	if err != nil {
		return err
	}
	return tx.Commit()
}
