package sqlite

import (
	"fmt"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/store/storetest"
)

// TestLongReaderDelaysNoWriter holds a snapshot, as a backup does, while the write-ahead log grows far beyond the size at
// which it is begun anew: nothing is done behind the writers' gate that waits for the reader.
func TestLongReaderDelaysNoWriter(t *testing.T) {
	s := openAt(t, Options{Path: newPath(t)})
	ctx := t.Context()
	if err := s.Append(ctx, storetest.MakeChunk("run_1", 1, 1, 1, "eng_1", 0)); err != nil {
		t.Fatal(err)
	}
	db, err := connect(s.opts.Path, "", readerCache, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := conn.QueryRowContext(ctx, "SELECT count(*) FROM chunks").Scan(&n); err != nil {
		t.Fatal(err)
	}
	for i := range int64(160) {
		if err := s.Append(ctx, storetest.MakeChunk("run_1", 2+i, 1, 1, "eng_1", 500<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if s.checkpoints.run() || s.checkpoints.walBytes.Load() < 2*restartAbove {
		t.Fatalf("the reader holds %d bytes of the log: the test tests too little", s.checkpoints.walBytes.Load())
	}
	if n := s.checkpoints.restarts.Load(); n > 0 {
		t.Errorf("writers waited %d times for the reader", n)
	}
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	// Without the reader the log is begun anew.
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		s.checkpoints.kick()
		if done, err := checkpoint(ctx, s.checks, "PASSIVE"); err == nil && done.bytes() < restartAbove {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the log has still %d bytes: %v", done.bytes(), err)
		}
		if err := s.Append(ctx, storetest.MakeChunk(fmt.Sprint("run_", time.Now().UnixNano()), 1, 1, 1, "eng_1", 0)); err != nil {
			t.Fatal(err)
		}
	}
}
