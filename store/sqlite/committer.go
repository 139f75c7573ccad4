package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/store"
	"github.com/harness-engine/harness-engine/store/internal/folder"
)

// Bounds of the committer. A group takes from both queues, so that neither the log nor the documents starve.
const (
	groupChunks   = 512     // chunks in a group
	groupBytes    = 4 << 20 // of chunks in a group, except that one chunk is always taken
	groupDocs     = 256     // documents in a group
	groupDocBytes = 1 << 20 // of documents in a group, except that one document is always taken
	queueWrites   = 1 << 16 // writes that may wait
	queueBytes    = 1 << 28 // of writes that may wait

	// graceAfterGivingUp is how long a caller whose context ended still waits for a commit that has begun: knowing
	// the outcome is worth more than the time.
	graceAfterGivingUp = 2 * time.Second

	// blockedAfter is how long another process may be at one commit before Options.Blocked is told.
	blockedAfter = time.Second
)

// write is one change that waits for its group.
type write struct {
	run   string // of a chunk; empty for a document
	bytes int
	vital bool // needed to end work that has begun: may use the reserve of a full disk
	// apply makes the change in the group's transaction. refusal is the port's answer to this write alone (a
	// duplicate, a stale revision) and leaves the transaction as it was; fatal ends the whole group.
	apply func(tx *tx) (refusal, fatal error)

	done  chan error // of capacity 1: gets the outcome once
	taken bool       // the group has begun; guarded by committer.mu
	gone  bool       // the caller gave up before that; guarded by committer.mu
}

// committer owns the writing connection. See the package comment.
type committer struct {
	conn     *sql.Conn
	gate     *folder.Gate // of the engines that share the file; SQLite's own lock is polled, and starves whoever waits
	tx       *tx
	disk     *disk
	logger   *slog.Logger
	grace    time.Duration     // see graceAfterGivingUp
	grown    func(bytes int64) // told after each commit how much the write-ahead log may have grown
	relieved func()            // told when a full disk has room again: a checkpoint is due
	patience time.Duration     // of a wait at the gate before blocked is told, again and again
	blocked  func()

	mu     sync.Mutex
	chunks []*write
	docs   []*write
	bytes  int   // of both queues
	err    error // why no write is accepted any more

	readOnly bool   // nothing is ever written; there is no loop
	job      func() // to be done behind the gate between two groups; see behindGate

	wake    chan struct{} // capacity 1: something waits
	closing chan struct{} // no write is accepted any more
	stopped chan struct{} // the loop has ended
	dead    chan struct{} // poisoned
}

func newCommitter(conn *sql.Conn, gate *folder.Gate, d *disk, logger *slog.Logger) *committer {
	return &committer{
		conn: conn, gate: gate, tx: newTx(conn), disk: d, logger: logger, grace: graceAfterGivingUp, patience: blockedAfter, blocked: func() {}, grown: func(int64) {}, relieved: func() {},
		wake: make(chan struct{}, 1), closing: make(chan struct{}), stopped: make(chan struct{}), dead: make(chan struct{}),
	}
}

// failure is why no call is accepted any more, or nil.
func (c *committer) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// do queues the write and waits for its outcome: nil when it is durable.
func (c *committer) do(ctx context.Context, w *write) error {
	if ctx.Err() != nil {
		return withdrawn(ctx)
	}
	w.done = make(chan error, 1)
	if err := c.enqueue(w); err != nil {
		return err
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	if c.withdraw(w) {
		return withdrawn(ctx)
	}
	timer := time.NewTimer(c.grace)
	defer timer.Stop()
	select {
	case err := <-w.done:
		return err
	case <-timer.C:
		return abandoned(ctx, c.grace)
	}
}

func (c *committer) enqueue(w *write) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.readOnly:
		return ErrReadOnly
	case c.err != nil:
		return c.err
	case len(c.chunks)+len(c.docs) >= queueWrites || c.bytes+w.bytes > queueBytes:
		return fmt.Errorf("%w: %d writes with %d bytes", store.ErrOverloaded, len(c.chunks)+len(c.docs), c.bytes)
	}
	c.bytes += w.bytes
	if w.run != "" {
		c.chunks = append(c.chunks, w)
	} else {
		c.docs = append(c.docs, w)
	}
	c.nudge()
	return nil
}

// withdraw takes a write back that still waits, and reports whether it could.
func (c *committer) withdraw(w *write) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !w.taken {
		w.gone = true // take drops it
	}
	return !w.taken
}

// take removes the next group from the queues: writes in order, at most one chunk of each run.
func (c *committer) take() []*write {
	c.mu.Lock()
	defer c.mu.Unlock()
	var group []*write
	runs := make(map[string]struct{}, len(c.chunks))
	pick := func(queue []*write, most, mostBytes int) []*write {
		left := queue[:0]
		count, bytes := 0, 0
		for _, w := range queue {
			_, twice := runs[w.run]
			switch {
			case w.gone:
				c.bytes -= w.bytes
			case twice, count >= most, count > 0 && bytes+w.bytes > mostBytes:
				left = append(left, w)
			default:
				w.taken = true
				if w.run != "" {
					runs[w.run] = struct{}{}
				}
				count, bytes = count+1, bytes+w.bytes
				c.bytes -= w.bytes
				group = append(group, w)
			}
		}
		clear(queue[len(left):])
		return left
	}
	c.chunks = pick(c.chunks, groupChunks, groupBytes)
	c.docs = pick(c.docs, groupDocs, groupDocBytes)
	return group
}

// loop commits group after group until the store is closed or poisoned.
func (c *committer) loop() {
	defer close(c.stopped)
	defer c.tx.close()
	for range c.wake {
		for c.failure() == nil && c.waits() {
			n, entered := c.turn()
			if !entered {
				break
			}
			if n > 1 {
				// Let the callers that were just answered queue their next writes, so that these share the next
				// commit instead of the one after it. Measured: half as much again with 4 and 16 writers, no cost
				// to one. It is a turn of the scheduler, not a delay.
				runtime.Gosched()
			}
		}
		if err := c.failure(); err != nil {
			c.refuse(err)
			return
		}
	}
}

// waits says whether a write waits.
func (c *committer) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.chunks)+len(c.docs) > 0 || c.job != nil
}

// behindGate calls f when no process commits, and returns when f is done. f is not called when the store is closed or
// poisoned first, or ctx ends first.
func (c *committer) behindGate(ctx context.Context, f func()) {
	done := make(chan struct{})
	c.mu.Lock()
	c.job = func() { defer close(done); f() }
	c.nudge()
	c.mu.Unlock()
	select {
	case <-done:
		return
	case <-c.stopped:
	case <-ctx.Done():
	}
	c.mu.Lock()
	begun := c.job == nil
	c.job = nil
	c.mu.Unlock()
	if begun {
		<-done
	}
}

// takeJob takes out what is to be done behind the gate; nil where there is nothing.
func (c *committer) takeJob() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.job
	c.job = nil
	return f
}

// turn commits one group, when it is this process's turn. The group is taken behind the gate: what still waits before
// it can be withdrawn.
func (c *committer) turn() (n int, entered bool) {
	switch entered, err := c.gate.Enter(c.closing, c.patience, c.blocked); {
	case err != nil:
		_ = c.poison(err)
		return 0, false
	case !entered:
		return 0, false
	}
	if job := c.takeJob(); job != nil {
		job()
	}
	group := c.take()
	if len(group) > 0 {
		c.commit(group)
	}
	if err := c.gate.Leave(); err != nil {
		_ = c.poison(err)
	}
	return len(group), true
}

// nudge makes the loop look again.
func (c *committer) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// close ends the loop after the commit in progress; what still waits is refused.
func (c *committer) close() {
	c.stop(errClosed)
	<-c.stopped
}

// stop lets no further write in. The first reason stays.
func (c *committer) stop(err error) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false
	}
	c.err = err
	close(c.closing)
	c.nudge()
	return true
}

// poison stops the store for good, see ErrPoisoned.
func (c *committer) poison(cause error) error {
	err := fmt.Errorf("%w: %w", ErrPoisoned, cause)
	if c.stop(err) {
		c.logger.Error("store is poisoned; the process must exit", "err", cause)
		close(c.dead)
	}
	return err
}

// refuse answers all that waits.
func (c *committer) refuse(err error) {
	c.mu.Lock()
	waiting := append(c.chunks, c.docs...)
	c.chunks, c.docs, c.bytes = nil, nil, 0
	c.mu.Unlock()
	for _, w := range waiting {
		w.done <- err
	}
}
