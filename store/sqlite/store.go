package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	driver "modernc.org/sqlite"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/store"
	"github.com/harness-engine/harness-engine/store/internal/folder"
)

// Options of Open. Zero values mean the defaults.
type Options struct {
	// Path of the database file, for instance data/engine.db. Its folder is made when it is missing. Several engines of
	// one build may have it open, on one host.
	Path   string
	Logger *slog.Logger // default: slog.Default()
	// Readers is the number of reading connections: 1 to 64, default 8.
	Readers int
	// MinFreeBytes is the free disk space below which Admit refuses new work: default 256 MiB, negative for none.
	MinFreeBytes int64
	// MaxWALBytes is the size of the write-ahead log above which Admit refuses new work: default 512 MiB.
	MaxWALBytes int64
	// ReserveBytes is the size of the file that is given up on a full disk so that runs can be ended: default
	// 16 MiB, negative for none.
	ReserveBytes int64

	// Blocked is told, each second, that another process has been at a commit for long, and which one, 0 where that is
	// not known: one that is stopped there keeps all others from committing. May be nil; must not block.
	Blocked func(pid int)

	vfs string // of SQLite; tests cause faults through it
}

// Files in the data folder.
const (
	lockName = "engine.lock"   // who has it open shares its lock
	gateName = "engine.commit" // one process commits at a time
)

// Defaults of Options.
const (
	defaultReaders = 8
	maxReaders     = 64
	defaultMinFree = 256 << 20
	defaultMaxWAL  = 512 << 20
	defaultReserve = 16 << 20
)

func (o *Options) setDefaults() error {
	if o.Path == "" {
		return fmt.Errorf("%w: path of the database is empty", store.ErrInvalid)
	}
	abs, err := filepath.Abs(o.Path)
	if err != nil {
		return fmt.Errorf("failed to resolve path of the database: %w", err)
	}
	o.Path = abs
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Readers == 0 {
		o.Readers = defaultReaders
	}
	if o.Readers < 1 || o.Readers > maxReaders {
		return fmt.Errorf("%w: readers is %d, it must be 1 to %d", store.ErrInvalid, o.Readers, maxReaders)
	}
	if o.MinFreeBytes == 0 {
		o.MinFreeBytes = defaultMinFree
	}
	if o.MaxWALBytes == 0 {
		o.MaxWALBytes = defaultMaxWAL
	}
	if o.ReserveBytes == 0 {
		o.ReserveBytes = defaultReserve
	}
	return nil
}

// Store is an open database. It is safe for concurrent use.
type Store struct {
	opts   Options
	lock   *os.File
	gate   *folder.Gate
	writer *sql.DB
	reads  *sql.DB
	checks *sql.DB
	stmts  sync.Map // query -> *sql.Stmt of the reading pool

	disk        *disk
	committer   *committer
	checkpoints *checkpointer
	damaged     damaged // documents that were found so
	closing     sync.Once
	closeErr    error
}

var (
	_ event.Log     = (*Store)(nil)
	_ session.Store = (*Store)(nil)
	_ run.Store     = (*Store)(nil)
	_ agent.Store   = (*Store)(nil)
	_ file.Store    = (*Store)(nil)
	_ store.Values  = (*Store)(nil)
)

// Open opens or makes the database, recovers what an earlier process left, and starts the committer. It fails with
// ErrLocked, ErrSchemaNewer or ErrForeignFile (wrapped) where a person has to decide. ctx bounds the opening only.
func Open(ctx context.Context, o Options) (_ *Store, err error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	// fdatasync leaves out the time stamps, which durability does not need and the journal of the file system is
	// slow to write. The setting is the process's.
	_, _ = driver.Fdatasync(true)

	s := &Store{opts: o}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("failed to open store %s: %w", o.Path, err), s.release())
		}
	}()
	if err := prepareFolder(o.Path); err != nil {
		return nil, err
	}
	begun := time.Now()
	causes, err := loadFaults(&o)
	if err != nil {
		return nil, err
	}
	s.disk = newDisk(o)
	s.disk.faults = causes
	var conn *sql.Conn
	var applied int
	var cramped, alone bool
	s.lock, err = folder.Share(ctx, filepath.Dir(o.Path), lockName, func(sole bool) (err error) {
		alone = sole
		if s.writer, err = connect(o.Path, o.vfs, writerCache, 1); err != nil {
			return err
		}
		if conn, err = s.writer.Conn(ctx); err != nil {
			return foreign(fmt.Errorf("failed to connect: %w", err))
		}
		if !sole {
			return joinDatabase(ctx, conn)
		}
		applied, cramped, err = prepareDatabase(ctx, conn, o.Path, s.disk)
		return err
	})
	if errors.Is(err, folder.ErrHeld) {
		err = fmt.Errorf("%w: %w", ErrLocked, err)
	}
	if err != nil {
		if conn != nil {
			err = errors.Join(err, conn.Close())
		}
		return nil, err
	}
	if s.gate, err = folder.NewGate(filepath.Dir(o.Path), gateName); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if s.reads, err = connect(o.Path, o.vfs, readerCache, o.Readers, "query_only(1)"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if s.checks, err = connect(o.Path, o.vfs, readerCache, 1, waitFor(restartPatience)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if cramped {
		s.disk.full.Store(true)
		o.Logger.Error("disk is full: the write-ahead log could not be carried over; new work is refused")
	} else if err := s.disk.makeReserve(); err != nil {
		o.Logger.Warn("no reserve for a full disk", "err", err)
	}
	s.committer = newCommitter(conn, s.gate, s.disk, o.Logger)
	s.checkpoints = newCheckpointer(s.checks, s.committer, s.disk, o)
	s.committer.grown, s.committer.relieved = s.checkpoints.grown, s.checkpoints.kick
	if o.Blocked != nil {
		s.committer.blocked = func() { o.Blocked(s.gate.Holder()) }
	}
	go s.committer.loop()
	go s.checkpoints.loop()
	o.Logger.Info("store is open", "path", o.Path, "alone", alone, "migrations", applied, "took", time.Since(begun))
	return s, nil
}

// Close waits for the commit in progress, refuses the writes that still wait, checkpoints, and gives the folder
// free. It may be called more than once.
func (s *Store) Close() error {
	s.closing.Do(func() {
		if !s.committer.readOnly {
			s.committer.close()
			s.checkpoints.close()
		}
		s.stmts.Range(func(_, v any) bool { _ = v.(*sql.Stmt).Close(); return true })
		s.closeErr = s.release()
	})
	return s.closeErr
}

// release closes what is open, in the reverse order of Open; the last connection that closes checkpoints.
func (s *Store) release() error {
	var errs []error
	for _, db := range []*sql.DB{s.checks, s.reads, s.writer} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if s.gate != nil {
		errs = append(errs, s.gate.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// Dead is closed when the store is poisoned: the process should log Err and exit with an error, and start again.
func (s *Store) Dead() <-chan struct{} { return s.committer.dead }

// Err is why the store accepts no call any more: ErrPoisoned, store.ErrClosed (both wrapped), or nil.
func (s *Store) Err() error { return s.committer.failure() }

// Admit says whether new work may begin: nil, or ErrDiskLow, ErrWALFull, event.ErrDiskFull, or what Err says. Work
// that has begun is not refused by it.
func (s *Store) Admit() error {
	if err := s.Err(); err != nil {
		return err
	}
	if s.disk.full.Load() {
		return event.ErrDiskFull
	}
	if wal := s.checkpoints.walBytes.Load(); wal > s.opts.MaxWALBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrWALFull, wal, s.opts.MaxWALBytes)
	}
	if free, err := s.disk.free(); err == nil && s.opts.MinFreeBytes > 0 && free < s.opts.MinFreeBytes {
		return fmt.Errorf("%w: %d bytes are free, %d are wanted", ErrDiskLow, free, s.opts.MinFreeBytes)
	}
	return nil
}

// query returns the prepared statement of the reading pool. A statement is prepared once for each connection.
func (s *Store) query(ctx context.Context, text string) (*sql.Stmt, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	if st, ok := s.stmts.Load(text); ok {
		return st.(*sql.Stmt), nil
	}
	st, err := s.reads.PrepareContext(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("failed to prepare query: %w", err)
	}
	if first, taken := s.stmts.LoadOrStore(text, st); taken {
		_ = st.Close()
		return first.(*sql.Stmt), nil
	}
	return st, nil
}
