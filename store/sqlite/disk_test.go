package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/store/storetest"
)

// TestFullDiskLeavesRoomForEndings fills the disk up to the reserve file: ordinary work is refused, what ends runs is
// written with the reserve's room.
func TestFullDiskLeavesRoomForEndings(t *testing.T) {
	d := newFaultDisk(t)
	s := openAt(t, Options{Path: newPath(t), vfs: d.Name, ReserveBytes: 1 << 20})
	ctx := t.Context()
	r := run.Run{ID: "run_1", Rev: 1, Status: run.StatusRunning, Environment: "dev", Subject: "alice", SessionID: "ses_1", AgentID: "agt_1", CreatedAt: time.Unix(1, 0)}
	if err := errors.Join(s.Append(ctx, chunkAt("run_1", 1)), s.InsertRun(ctx, r)); err != nil {
		t.Fatal(err)
	}
	reserve := s.disk.reservePath()
	if st, err := os.Stat(reserve); err != nil || st.Size() != 1<<20 {
		t.Fatalf("the reserve: %v", err)
	}
	d.Fill(func() bool { _, err := os.Stat(reserve); return err == nil })
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
	d.Heal()
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
	s := openAt(t, Options{Path: newPath(t), vfs: d.Name, ReserveBytes: 1 << 20})
	ctx := t.Context()
	for first := int64(1); first <= 20; first++ {
		if err := s.Append(ctx, chunkAt("run_1", first)); err != nil {
			t.Fatal(err)
		}
	}
	d.Fill(func() bool { return true })
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
	d.Heal()
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

// TestLogIsBounded writes without a pause, until the write-ahead log has been begun anew several times. How large it gets
// meanwhile depends on the machine: on what is written while one checkpoint goes on.
func TestLogIsBounded(t *testing.T) {
	const most = 40 * restartAbove // written in vain
	s := openAt(t, Options{Path: newPath(t)})
	begunAnew := func() uint32 {
		f, err := os.Open(s.opts.Path + "-wal")
		if err != nil {
			t.Error(err)
			return 0
		}
		defer f.Close()
		var header [16]byte // its last word counts how often, see https://sqlite.org/walformat.html
		_, _ = io.ReadFull(f, header[:])
		return binary.BigEndian.Uint32(header[12:])
	}
	first := begunAnew()
	var written atomic.Int64
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for at := int64(1); begunAnew() < first+6; at++ {
				if written.Add(900_000) > most {
					t.Errorf("the write-ahead log was begun anew %d times while %d bytes were written", begunAnew()-first, written.Load())
					return
				}
				if err := s.Append(t.Context(), storetest.MakeChunk(fmt.Sprintf("run_%d", i), at, 1, 1, "eng_a", 900_000)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}
