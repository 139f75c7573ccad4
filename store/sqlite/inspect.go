package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/event"
)

// ErrReadOnly: the store was opened by OpenReader.
var ErrReadOnly = errors.New("sqlite: store is open for reading only")

const (
	// Each is a page of identifiers in ascending order. The runs of the log are found by leaping from one to the next over the
	// key, so that no chunk is read.
	runIDs        = "SELECT id FROM runs WHERE id > ? ORDER BY id LIMIT ?"
	sessionIDs    = "SELECT id FROM sessions WHERE id > ? ORDER BY id LIMIT ?"
	agentIDs      = "SELECT id FROM agents WHERE id > ? ORDER BY id LIMIT ?"
	attachmentIDs = "SELECT id FROM attachments WHERE id > ? ORDER BY id LIMIT ?"
	logIDs        = `WITH RECURSIVE leap(id) AS (SELECT (SELECT min(run) FROM chunks WHERE run > ?1)
		UNION ALL SELECT (SELECT min(run) FROM chunks WHERE run > leap.id) FROM leap WHERE leap.id IS NOT NULL LIMIT ?2)
		SELECT id FROM leap WHERE id IS NOT NULL`

	rawChunks   = "SELECT " + shownColumns + " FROM chunks WHERE run = ?1 AND first > ?2 ORDER BY first LIMIT ?3"
	agentsAfter = "SELECT body FROM agents WHERE id > ? ORDER BY id LIMIT ?"
)

// OpenReader opens a database, which engines may have open meanwhile, for reading only: every write fails with ErrReadOnly.
// It takes no lock and changes nothing, except that SQLite recovers the write-ahead log of a database that nobody has
// open. A database that is missing, of something else, or of another version of the schema is refused.
func OpenReader(ctx context.Context, o Options) (_ *Store, err error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(o.Path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("failed to open store: there is no database at %s", o.Path)
		}
		return nil, fmt.Errorf("failed to open store: %w", err)
	}
	s := &Store{opts: o}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("failed to open store %s: %w", o.Path, err), s.release())
		}
	}()
	if s.reads, err = connect(o.Path, o.vfs, readerCache, o.Readers, "query_only(1)"); err != nil {
		return nil, err
	}
	conn, err := s.reads.Conn(ctx)
	if err != nil {
		return nil, foreign(fmt.Errorf("failed to connect: %w", err))
	}
	defer func() { _ = conn.Close() }()
	if err := checkVersion(ctx, conn); err != nil {
		return nil, err
	}
	s.disk = newDisk(o)
	s.committer = newCommitter(nil, nil, s.disk, slog.New(slog.DiscardHandler))
	s.committer.readOnly = true
	return s, nil
}

// checkVersion refuses a database that is not of this engine, or not of its version.
func checkVersion(ctx context.Context, conn *sql.Conn) error {
	var appID int
	if err := conn.QueryRowContext(ctx, "PRAGMA application_id").Scan(&appID); err != nil {
		return foreign(fmt.Errorf("failed to read application id: %w", err))
	}
	if appID != applicationID {
		return fmt.Errorf("%w: application id %#x", ErrForeignFile, appID)
	}
	switch missing, err := nextMigration(ctx, conn); {
	case err != nil:
		return err
	case missing != nil:
		return fmt.Errorf("its schema is older than this engine's (migration %s is missing): start the engine once, which brings it up to date", missing.name)
	}
	return nil
}

// RunIDs lists the identifiers of run documents, ascending, id > after, at most limit (1 to 1,000).
func (s *Store) RunIDs(ctx context.Context, after string, limit int) ([]string, error) {
	return s.ids(ctx, "runs", runIDs, after, limit)
}

// LogIDs lists the runs that have a chunk in the log; otherwise as RunIDs.
func (s *Store) LogIDs(ctx context.Context, after string, limit int) ([]string, error) {
	return s.ids(ctx, "logs", logIDs, after, limit)
}

// SessionIDs lists the identifiers of bindings; otherwise as RunIDs.
func (s *Store) SessionIDs(ctx context.Context, after string, limit int) ([]string, error) {
	return s.ids(ctx, "sessions", sessionIDs, after, limit)
}

// AgentIDs lists the identifiers of agents of every state; otherwise as RunIDs.
func (s *Store) AgentIDs(ctx context.Context, after string, limit int) ([]string, error) {
	return s.ids(ctx, "agents", agentIDs, after, limit)
}

// AttachmentIDs lists the identifiers of attachments; otherwise as RunIDs.
func (s *Store) AttachmentIDs(ctx context.Context, after string, limit int) ([]string, error) {
	return s.ids(ctx, "attachments", attachmentIDs, after, limit)
}

func (s *Store) ids(ctx context.Context, noun, query, after string, limit int) (ids []string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("failed to list %s: %w", noun, err)
		}
	}()
	if err := checkPage(limit, after); err != nil {
		return nil, err
	}
	st, err := s.query(ctx, query)
	if err != nil {
		return nil, err
	}
	rows, err := st.QueryContext(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// Chunks gives the chunks of a run as they are stored, whatever has expired and whatever is missing between them: those
// that begin after first, ascending, at most limit (1 to 1,000).
func (s *Store) Chunks(ctx context.Context, runID string, first int64, limit int) (out []event.Chunk, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("failed to read chunks of run %s: %w", runID, err)
		}
	}()
	if err := checkPage(limit, runID); err != nil {
		return nil, err
	}
	st, err := s.query(ctx, rawChunks)
	if err != nil {
		return nil, err
	}
	rows, err := st.QueryContext(ctx, runID, first, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		c, _, err := scanChunk(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, rows.Err()
}

// AllAgents lists the agents of every state and owner by id, ascending, id > after.
func (s *Store) AllAgents(ctx context.Context, after string, limit int) ([]agent.Agent, error) {
	if err := checkPage(limit, after); err != nil {
		return nil, fmt.Errorf("failed to list agents: %w", err)
	}
	return list[agent.Agent](ctx, s, "agents", agentsAfter, after, limit)
}
