package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// When the write-ahead log is carried over into the database.
const (
	checkpointAfter = 8 << 20                // bytes that commits may have added since the last checkpoint
	restartAbove    = 32 << 20               // bytes of log above which writers wait until it can be begun anew
	restartBehind   = 8 << 20                // bytes not carried over above which a reader is in the way, and writers do not wait for it
	restartPatience = 100 * time.Millisecond // of writers, for readers of the moment
	checkpointRetry = 5 * time.Second        // after one that could not do all
	checkpointLimit = 30 * time.Second       // of one checkpoint
)

// checkpointer checkpoints on its own connection, so that a checkpoint delays no commit: PASSIVE takes no lock that
// the writer needs. Only when the log has grown large, since commits never paused, RESTART makes the writers wait for a
// moment, behind the gate. It is not tried while somebody reads for long, as a backup does: the log cannot be begun anew then.
type checkpointer struct {
	db        *sql.DB
	committer *committer
	disk      *disk
	logger    *slog.Logger
	added     atomic.Int64 // bytes since the last checkpoint, about
	walBytes  atomic.Int64 // bytes of the log that the last checkpoint could not set free
	restarts  atomic.Int64 // how often writers were made to wait
	wake      chan struct{}
	cancel    context.CancelFunc
	ctx       context.Context //nolint:containedctx // the life of the loop, ended by close
	stopped   chan struct{}
}

func newCheckpointer(db *sql.DB, c *committer, d *disk, o Options) *checkpointer {
	ctx, cancel := context.WithCancel(context.Background())
	return &checkpointer{db: db, committer: c, disk: d, logger: o.Logger, wake: make(chan struct{}, 1),
		ctx: ctx, cancel: cancel, stopped: make(chan struct{})}
}

// grown counts what a commit added.
func (k *checkpointer) grown(bytes int64) {
	if k.added.Add(bytes) >= checkpointAfter {
		k.kick()
	}
}

// kick asks for a checkpoint soon.
func (k *checkpointer) kick() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *checkpointer) loop() {
	defer close(k.stopped)
	retry := time.NewTimer(checkpointRetry)
	defer retry.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-k.wake:
		case <-retry.C:
		}
		if !k.run() {
			retry.Reset(checkpointRetry)
		}
	}
}

// run does one checkpoint and reports whether all of the log was carried over. On a full disk it does none: the
// database would grow into the room that was given up for the endings of runs.
func (k *checkpointer) run() bool {
	if k.disk.full.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(k.ctx, checkpointLimit)
	defer cancel()
	k.added.Store(0)
	done, err := checkpoint(ctx, k.db, "PASSIVE")
	if err == nil && done.bytes() > restartAbove && done.behind() <= restartBehind {
		k.restarts.Add(1)
		k.committer.behindGate(ctx, func() { done, err = checkpoint(ctx, k.db, "RESTART") })
	}
	switch {
	case err == nil:
		if done.complete() {
			k.walBytes.Store(0) // the next write begins the log anew
			return true
		}
		k.walBytes.Store(done.bytes())
	case k.ctx.Err() != nil:
	case full(err):
		k.disk.full.Store(true)
		k.logger.Error("disk is full: the write-ahead log could not be carried over; new work is refused", "err", err)
	case untrusted(err):
		_ = k.committer.poison(fmt.Errorf("failed to checkpoint: %w", err))
	default:
		k.logger.Warn("checkpoint failed, it will be tried again", "err", err)
	}
	return false
}

func (k *checkpointer) close() {
	k.cancel()
	<-k.stopped
}

// checkpointed is the answer of PRAGMA wal_checkpoint.
type checkpointed struct {
	busy   bool  // a lock could not be had
	frames int64 // in the log
	moved  int64 // of them, carried over
}

func (c checkpointed) bytes() int64   { return c.frames * pageBytes }
func (c checkpointed) behind() int64  { return (c.frames - c.moved) * pageBytes }
func (c checkpointed) complete() bool { return !c.busy && c.frames == c.moved }

type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// checkpoint runs one checkpoint. TRUNCATE that does not get all its locks is an error.
func checkpoint(ctx context.Context, db rowQuerier, mode string) (checkpointed, error) {
	var c checkpointed
	if err := db.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&c.busy, &c.frames, &c.moved); err != nil {
		return c, err
	}
	if mode == "TRUNCATE" && !c.complete() {
		return c, fmt.Errorf("checkpoint is blocked: %d of %d frames moved", c.moved, c.frames)
	}
	return c, nil
}
