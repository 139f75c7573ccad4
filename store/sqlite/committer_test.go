package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/store"
	"github.com/harness-engine/harness-engine/store/storetest"
)

var (
	someFilter   = run.Filter{Environment: "e", Subject: "s"}
	somePosition = run.Position{CreatedAt: time.Unix(1, 0), ID: "run_1"}
)

func chunkAt(runID string, first int64) event.Chunk {
	return storetest.MakeChunk(runID, first, 1, 1, "eng_a", 0)
}

// idle makes a committer whose loop does not run.
func idle() *committer { return newCommitter(nil, &disk{}, quiet) }

func enqueueAll(t *testing.T, c *committer, writes ...*write) {
	t.Helper()
	for _, w := range writes {
		w.done = make(chan error, 1)
		if err := c.enqueue(w); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGroupHoldsOneChunkOfEachRun(t *testing.T) {
	c := idle()
	for i := range 3 {
		for r := range 4 {
			enqueueAll(t, c, &write{run: fmt.Sprintf("run_%d", r), bytes: i})
		}
	}
	for i := range 3 {
		group := c.take()
		if len(group) != 4 {
			t.Fatalf("group %d has %d writes", i, len(group))
		}
		for r, w := range group {
			if w.run != fmt.Sprintf("run_%d", r) || w.bytes != i {
				t.Errorf("group %d: write %d is %s with %d", i, r, w.run, w.bytes)
			}
		}
	}
	if len(c.take()) != 0 || c.bytes != 0 {
		t.Errorf("%d bytes are left", c.bytes)
	}
}

// TestGroupStarvesNobody fills both queues far above a group: each group takes from both, in order, within bounds.
func TestGroupStarvesNobody(t *testing.T) {
	c := idle()
	const chunks, docs = 3000, 1000
	for i := range chunks {
		enqueueAll(t, c, &write{run: fmt.Sprintf("run_%d", i), bytes: 20_000})
	}
	for range docs {
		enqueueAll(t, c, &write{bytes: 60_000})
	}
	enqueueAll(t, c, &write{bytes: groupDocBytes * 3}, &write{run: "run_large", bytes: groupBytes * 2}) // larger than a group
	next, taken := 0, 0
	for group := c.take(); len(group) > 0; group = c.take() {
		var nc, nd, bc, bd int
		for _, w := range group {
			if w.run == "" {
				nd, bd = nd+1, bd+w.bytes
				continue
			}
			if w.run != "run_large" && w.run != fmt.Sprintf("run_%d", next) {
				t.Fatalf("%s is out of order", w.run)
			}
			nc, bc, next = nc+1, bc+w.bytes, next+1
		}
		if nc > groupChunks || nd > groupDocs || nc > 1 && bc > groupBytes || nd > 1 && bd > groupDocBytes {
			t.Fatalf("group of %d chunks with %d bytes, %d documents with %d bytes", nc, bc, nd, bd)
		}
		if next < chunks && nd == 0 && taken < docs {
			t.Fatalf("documents starve after %d", taken)
		}
		taken += nd
	}
	if next != chunks+1 || taken != docs+1 || c.bytes != 0 {
		t.Errorf("taken: %d chunks, %d documents, %d bytes left", next, taken, c.bytes)
	}
}

func TestQueueIsBounded(t *testing.T) {
	c := idle()
	enqueueAll(t, c, &write{run: "run_1", bytes: queueBytes - 10})
	if err := c.enqueue(&write{bytes: 11}); !errors.Is(err, store.ErrOverloaded) {
		t.Errorf("too many bytes: %v", err)
	}
	c = idle()
	for range queueWrites {
		enqueueAll(t, c, &write{})
	}
	if err := c.enqueue(&write{run: "run_1"}); !errors.Is(err, store.ErrOverloaded) {
		t.Errorf("too many writes: %v", err)
	}
}

func TestWithdrawnWriteIsDropped(t *testing.T) {
	c := idle()
	w, other := &write{run: "run_1", bytes: 5}, &write{run: "run_2", bytes: 7}
	enqueueAll(t, c, w, other)
	if !c.withdraw(w) {
		t.Fatal("a waiting write could not be withdrawn")
	}
	if group := c.take(); len(group) != 1 || group[0] != other || c.withdraw(other) || c.bytes != 0 {
		t.Errorf("took %d writes, %d bytes left", len(group), c.bytes)
	}
}

// TestFailedGroupAcknowledgesNobody breaks one write of a group with a failure that is its own: none of the group is
// written or acknowledged, and the next group works.
func TestFailedGroupAcknowledgesNobody(t *testing.T) {
	s := openAt(t, Options{Path: newPath(t)})
	release, held := make(chan struct{}), make(chan struct{})
	go func() {
		_ = s.committer.do(context.Background(), &write{apply: func(*tx) (error, error) { close(held); <-release; return nil, nil }})
	}()
	<-held // what is queued now becomes one group
	broken := errors.New("broken")
	results := make(chan error, 4)
	for i := range 3 {
		go func() { results <- s.Append(context.Background(), chunkAt(fmt.Sprintf("run_%d", i), 1)) }()
	}
	go func() {
		results <- s.committer.do(context.Background(), &write{apply: func(*tx) (error, error) { return nil, broken }})
	}()
	for waiting := 0; waiting < 4; {
		s.committer.mu.Lock()
		waiting = len(s.committer.chunks) + len(s.committer.docs)
		s.committer.mu.Unlock()
	}
	close(release)
	for range 4 {
		if err := <-results; !errors.Is(err, broken) || errors.Is(err, event.ErrUnknownOutcome) {
			t.Errorf("a write of the broken group got %v", err)
		}
	}
	for i := range 3 {
		c := chunkAt(fmt.Sprintf("run_%d", i), 1)
		if _, err := s.Tail(t.Context(), c.RunID); !errors.Is(err, event.ErrEmpty) {
			t.Errorf("run %d: something was written: %v", i, err)
		}
		if err := s.Append(t.Context(), c); err != nil {
			t.Errorf("run %d: after the broken group: %v", i, err)
		}
	}
}

// TestGivingUpDuringTheCommit lets the disk hang in the sync: the caller is told that the outcome is unknown, others
// in the group are told the truth when the disk answers.
func TestGivingUpDuringTheCommit(t *testing.T) {
	d := newFaultDisk(t)
	s := openAt(t, Options{Path: newPath(t), vfs: d.name})
	if err := s.Append(t.Context(), chunkAt("run_1", 1)); err != nil {
		t.Fatal(err)
	}
	s.committer.grace = time.Millisecond
	syncing, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hang := func(bool) int32 { once.Do(func() { close(syncing); <-release }); return lib.SQLITE_OK }
	d.onSync.Store(&hang)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error, 1)
	go func() { results <- s.Append(ctx, chunkAt("run_1", 2)) }()
	<-syncing
	cancel()
	if err := <-results; !errors.Is(err, event.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	retry := make(chan error, 1)
	go func() { retry <- s.Append(t.Context(), chunkAt("run_1", 2)) }() // waits behind the commit
	close(release)
	var dup *event.DuplicateError
	if err := <-retry; !errors.As(err, &dup) {
		t.Errorf("the retry got %v", err)
	}
	if s.Err() != nil {
		t.Errorf("a slow disk is no failure: %v", s.Err())
	}
}

func TestPoison(t *testing.T) {
	for name, test := range map[string]struct {
		arm     func(d *faultDisk)
		unknown bool
	}{
		"sync of the log fails":     {func(d *faultDisk) { d.failCommit(true) }, true},
		"write of the log fails":    {func(d *faultDisk) { d.failCommit(false) }, true},
		"checkpoint fails to write": {func(d *faultDisk) { d.onWrite.Store(once(false, lib.SQLITE_IOERR_WRITE)) }, false},
		"checkpoint fails to sync":  {func(d *faultDisk) { d.onSync.Store(once(false, lib.SQLITE_IOERR_FSYNC)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFaultDisk(t)
			s := openAt(t, Options{Path: newPath(t), vfs: d.name})
			ctx := t.Context()
			if err := s.Append(ctx, chunkAt("run_1", 1)); err != nil {
				t.Fatal(err)
			}
			test.arm(d)
			if test.unknown {
				if err := s.Append(ctx, chunkAt("run_1", 2)); !errors.Is(err, event.ErrUnknownOutcome) || !errors.Is(err, ErrPoisoned) {
					t.Fatalf("got %v", err)
				}
			} else {
				s.checkpoints.kick()
			}
			<-s.Dead()
			_, readErr := s.Read(ctx, "run_1", 0, 10)
			_, docErr := s.Run(ctx, "run_1")
			_, valueErr := s.Value(ctx, "x")
			for what, err := range map[string]error{
				"append": s.Append(ctx, chunkAt("run_2", 1)), "read": readErr, "document": docErr, "value": valueErr, "admit": s.Admit(), "err": s.Err(),
			} {
				if !errors.Is(err, ErrPoisoned) {
					t.Errorf("%s after the failure: %v", what, err)
				}
			}
			if err := s.Append(ctx, chunkAt("run_2", 1)); errors.Is(err, event.ErrUnknownOutcome) {
				t.Errorf("a write that was never begun is called unknown: %v", err)
			}
			_ = s.Close()
			d.heal()
			again := openAt(t, Options{Path: s.opts.Path, vfs: d.name})
			if cs, err := again.Read(ctx, "run_1", 0, 10); err != nil || len(cs) == 0 {
				t.Errorf("what was acknowledged is gone: %d chunks, %v", len(cs), err)
			}
		})
	}
}

// TestPoisonAnswersEverybody fails a commit while many wait: nobody waits for ever, and nobody is told success.
func TestPoisonAnswersEverybody(t *testing.T) {
	d := newFaultDisk(t)
	s := openAt(t, Options{Path: newPath(t), vfs: d.name})
	if err := s.Append(t.Context(), chunkAt("run_0", 1)); err != nil {
		t.Fatal(err)
	}
	var acked atomic.Int64
	var group sync.WaitGroup
	for i := range 64 {
		group.Go(func() {
			for first := int64(1); ; first++ {
				if err := s.Append(context.Background(), chunkAt(fmt.Sprintf("run_a%d", i), first)); err != nil {
					if !errors.Is(err, ErrPoisoned) {
						t.Errorf("writer %d: %v", i, err)
					}
					return
				}
				if acked.Add(1) == 500 {
					d.failCommit(true)
				}
			}
		})
	}
	group.Wait()
	_ = s.Close()
	d.heal()
	again := openAt(t, Options{Path: s.opts.Path, vfs: d.name})
	stored := int64(0)
	for i := range 64 {
		cs, err := again.Read(t.Context(), fmt.Sprintf("run_a%d", i), 0, 10_000)
		if err != nil {
			t.Fatal(err)
		}
		stored += int64(len(cs))
	}
	if stored < acked.Load() {
		t.Errorf("%d were acknowledged, %d are stored", acked.Load(), stored)
	}
}

// TestFullDiskLeavesRoomForEndings fills the disk up to the reserve file: ordinary work is refused, what ends runs is
// written with the reserve's room.
func TestFullDiskLeavesRoomForEndings(t *testing.T) {
	d := newFaultDisk(t)
	s := openAt(t, Options{Path: newPath(t), vfs: d.name, ReserveBytes: 1 << 20})
	ctx := t.Context()
	r := run.Run{ID: "run_1", Rev: 1, Status: run.StatusRunning, Environment: "dev", Subject: "alice", SessionID: "ses_1", AgentID: "agt_1", CreatedAt: time.Unix(1, 0)}
	if err := errors.Join(s.Append(ctx, chunkAt("run_1", 1)), s.InsertRun(ctx, r)); err != nil {
		t.Fatal(err)
	}
	reserve := s.disk.reservePath()
	if st, err := os.Stat(reserve); err != nil || st.Size() != 1<<20 {
		t.Fatalf("the reserve: %v", err)
	}
	d.fill(func() bool { _, err := os.Stat(reserve); return err == nil })
	if err := s.Append(ctx, chunkAt("run_1", 2)); !errors.Is(err, event.ErrDiskFull) {
		t.Fatalf("ordinary work on a full disk: %v", err)
	}
	if err := s.Admit(); !errors.Is(err, event.ErrDiskFull) {
		t.Errorf("admission on a full disk: %v", err)
	}
	end := chunkAt("run_1", 2)
	end.Terminal = true
	r.Rev, r.Status = 2, run.StatusFailed
	if err := errors.Join(s.Append(ctx, end), s.UpdateRun(ctx, r)); err != nil {
		t.Errorf("the end of a run on a full disk: %v", err)
	}
	if s.Err() != nil {
		t.Errorf("a full disk is no failure of the store: %v", s.Err())
	}
	d.heal()
	if err := s.Append(ctx, chunkAt("run_2", 1)); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := s.Admit(); err != nil {
		t.Errorf("admission with room again: %v", err)
	}
	if _, err := os.Stat(reserve); err != nil {
		t.Errorf("the reserve was not made again: %v", err)
	}
}

// TestOpenOnAFullDisk starts where the write-ahead log cannot be carried over: readers are served, new work is not,
// and room is enough to go on.
func TestOpenOnAFullDisk(t *testing.T) {
	d := newFaultDisk(t)
	s := openAt(t, Options{Path: newPath(t), vfs: d.name, ReserveBytes: 1 << 20})
	ctx := t.Context()
	for first := int64(1); first <= 20; first++ {
		if err := s.Append(ctx, chunkAt("run_1", first)); err != nil {
			t.Fatal(err)
		}
	}
	d.fill(func() bool { return true })
	_ = s.Close() // cannot checkpoint: the log stays
	s = openAt(t, s.opts)
	if cs, err := s.Read(ctx, "run_1", 0, 100); err != nil || len(cs) != 20 {
		t.Fatalf("read %d chunks: %v", len(cs), err)
	}
	if err := s.Admit(); !errors.Is(err, event.ErrDiskFull) {
		t.Errorf("admission: %v", err)
	}
	if err := s.Append(ctx, chunkAt("run_1", 21)); !errors.Is(err, event.ErrDiskFull) {
		t.Errorf("append: %v", err)
	}
	d.heal()
	if err := s.Append(ctx, chunkAt("run_1", 21)); err != nil {
		t.Errorf("append with room: %v", err)
	}
	if err := s.Admit(); err != nil {
		t.Errorf("admission with room: %v", err)
	}
}

// TestFullDatabase meets SQLITE_FULL in the middle of a statement instead of at the commit.
func TestFullDatabase(t *testing.T) {
	s := openAt(t, Options{Path: newPath(t)})
	inWriter(t, s, func(tx *tx) {
		if _, err := tx.conn.ExecContext(t.Context(), "PRAGMA max_page_count = 60"); err != nil {
			t.Error(err)
		}
	})
	var err error
	last := int64(0)
	for last < 1000 && err == nil {
		c := storetest.MakeChunk("run_1", last+1, 1, 1, "eng_a", 3000)
		if err = s.Append(t.Context(), c); err == nil {
			last++
		}
	}
	if !errors.Is(err, event.ErrDiskFull) {
		t.Fatalf("after %d chunks: %v", last, err)
	}
	inWriter(t, s, func(tx *tx) {
		if _, err := tx.conn.ExecContext(t.Context(), "PRAGMA max_page_count = 1000000"); err != nil {
			t.Error(err)
		}
	})
	if err := s.Append(t.Context(), chunkAt("run_1", last+1)); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if cs, err := s.Read(t.Context(), "run_1", 0, 10_000); err != nil || int64(len(cs)) != last+1 {
		t.Errorf("the log has %d chunks, want %d: %v", len(cs), last+1, err)
	}
}

func TestAdmit(t *testing.T) {
	s := openAt(t, Options{Path: newPath(t), MinFreeBytes: 1 << 60, ReserveBytes: -1})
	if err := s.Admit(); !errors.Is(err, ErrDiskLow) {
		t.Errorf("with little room: %v", err)
	}
	if err := s.Append(t.Context(), chunkAt("run_1", 1)); err != nil {
		t.Errorf("work that has begun is refused: %v", err)
	}
	s.opts.MinFreeBytes = -1
	if err := s.Admit(); err != nil {
		t.Errorf("without a limit: %v", err)
	}
	s.checkpoints.walBytes.Store(defaultMaxWAL + 1)
	if err := s.Admit(); !errors.Is(err, ErrWALFull) {
		t.Errorf("with a large log: %v", err)
	}
	if _, err := os.Stat(s.disk.reservePath()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a reserve was made although none is wanted: %v", err)
	}
}

// TestLogIsBounded writes without a pause, several times what may wait in the write-ahead log.
func TestLogIsBounded(t *testing.T) {
	s := openAt(t, Options{Path: newPath(t)})
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for first := int64(1); first <= 60; first++ {
				if err := s.Append(t.Context(), storetest.MakeChunk(fmt.Sprintf("run_%d", i), first, 1, 1, "eng_a", 900_000)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	st, err := os.Stat(s.opts.Path + "-wal")
	if err != nil || st.Size() > 3*restartAbove {
		t.Errorf("after 216 MB the write-ahead log has %d bytes: %v", st.Size(), err)
	}
}

func TestErrorsNameWhatFailed(t *testing.T) {
	s := openAt(t, Options{Path: newPath(t)})
	_ = s.Append(t.Context(), chunkAt("run_1", 1))
	err := s.Append(t.Context(), chunkAt("run_1", 1))
	if want := "failed to append to run run_1 at 1"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}
