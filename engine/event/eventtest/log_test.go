package eventtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/event/eventtest"
)

func chunk(t *testing.T, first int64, events int) event.Chunk {
	t.Helper()
	list := make([]event.Event, events)
	for i := range list {
		list[i] = event.Event{Data: event.TextDelta{MessageID: "m", Delta: "x"}}
	}
	c, err := event.NewChunk(event.ChunkHeader{RunID: "run_1", SessionID: "ses_1", First: first, Gen: 1, Writer: "w",
		Cursors: map[string]event.Cursor{"worker": {Seq: first}}}, list)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestContract: without faults the log does what event.Log promises.
func TestContract(t *testing.T) {
	ctx, log := t.Context(), eventtest.NewLog()
	if _, err := log.Tail(ctx, "run_1"); !errors.Is(err, event.ErrEmpty) {
		t.Errorf("tail of nothing: %v", err)
	}
	if got, err := log.Read(ctx, "run_1", 0, 10); err != nil || len(got) != 0 {
		t.Errorf("read of nothing: %v, %v", got, err)
	}
	for _, c := range []event.Chunk{chunk(t, 1, 3), chunk(t, 4, 2), chunk(t, 6, 1)} {
		if err := log.Append(ctx, c); err != nil {
			t.Fatal(err)
		}
		c.Body[0], c.Cursors["worker"] = 'x', event.Cursor{} // the log keeps no reference
	}
	var duplicate *event.DuplicateError
	if err := log.Append(ctx, chunk(t, 4, 1)); !errors.As(err, &duplicate) || duplicate.First != 4 || duplicate.RunID != "run_1" {
		t.Errorf("duplicate: %v", err)
	}
	if c, err := log.Get(ctx, "run_1", 4); err != nil || c.Last != 5 || c.Verify() != nil {
		t.Errorf("get: %+v, %v", c, err)
	}
	if _, err := log.Get(ctx, "run_1", 5); !errors.Is(err, event.ErrEmpty) {
		t.Errorf("get inside a chunk: %v", err)
	}
	if c, err := log.Tail(ctx, "run_1"); err != nil || c.First != 6 || c.Verify() != nil {
		t.Errorf("tail: %+v, %v", c, err)
	}
	for _, tc := range []struct {
		after  int64
		max    int
		firsts []int64
	}{{0, 100, []int64{1, 4, 6}}, {2, 100, []int64{1, 4, 6}}, {3, 100, []int64{4, 6}}, {6, 100, nil}, {0, 1, []int64{1}}, {0, 5, []int64{1, 4}}, {0, 4, []int64{1}}} {
		got, err := log.Read(ctx, "run_1", tc.after, tc.max)
		if err != nil || len(got) != len(tc.firsts) {
			t.Errorf("read after %d: %d chunks, %v", tc.after, len(got), err)
			continue
		}
		for i, c := range got {
			if c.First != tc.firsts[i] || c.Verify() != nil {
				t.Errorf("read after %d: chunk %d at %d", tc.after, c.First, i)
			}
		}
	}
}

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, log := t.Context(), eventtest.NewLog()
		busy := errors.New("busy")
		hidden := eventtest.Unknown(true)
		hidden.Hidden = 1
		log.Inject(eventtest.Failed(busy), eventtest.DiskFull(), eventtest.Unknown(false), eventtest.Late(), hidden, eventtest.Fault{Delay: time.Hour})
		for i, want := range []error{busy, event.ErrDiskFull, event.ErrUnknownOutcome, event.ErrUnknownOutcome} {
			if err := log.Append(ctx, chunk(t, 1, 1)); !errors.Is(err, want) || len(log.Chunks("run_1")) != 0 {
				t.Errorf("append %d: %v", i, err)
			}
		}
		if log.Land() != 1 || log.Land() != 0 || len(log.Chunks("run_1")) != 1 {
			t.Error("the late chunk did not land once")
		}
		if err := log.Append(ctx, chunk(t, 2, 1)); !errors.Is(err, event.ErrUnknownOutcome) {
			t.Error(err)
		}
		for i, want := range []int64{1, 2} {
			if c, err := log.Tail(ctx, "run_1"); err != nil || c.First != want {
				t.Errorf("read %d: tail %d, %v", i, c.First, err)
			}
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := log.Append(short, chunk(t, 3, 1)); !errors.Is(err, context.DeadlineExceeded) || len(log.Chunks("run_1")) != 2 {
			t.Errorf("slow append: %v", err)
		}
		log.FailReads(busy)
		if _, err := log.Read(ctx, "run_1", 0, 1); !errors.Is(err, busy) {
			t.Errorf("read: %v", err)
		}
		if len(log.Tried()) != 6 || log.Reads() != 3 {
			t.Errorf("%d appends, %d reads", len(log.Tried()), log.Reads())
		}
	})
}
