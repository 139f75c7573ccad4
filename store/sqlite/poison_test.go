package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	lib "modernc.org/sqlite/lib"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/store/sqlite/internal/faultdisk"
)

func TestPoison(t *testing.T) {
	for name, test := range map[string]struct {
		arm     func(d *faultdisk.Disk)
		unknown bool
	}{
		"sync of the log fails":     {func(d *faultdisk.Disk) { d.FailCommit(true) }, true},
		"write of the log fails":    {func(d *faultdisk.Disk) { d.FailCommit(false) }, true},
		"checkpoint fails to write": {func(d *faultdisk.Disk) { d.OnWrite.Store(faultdisk.Once(false, lib.SQLITE_IOERR_WRITE)) }, false},
		"checkpoint fails to sync":  {func(d *faultdisk.Disk) { d.OnSync.Store(faultdisk.Once(false, lib.SQLITE_IOERR_FSYNC)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFaultDisk(t)
			s := openAt(t, Options{Path: newPath(t), vfs: d.Name})
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
			d.Heal()
			again := openAt(t, Options{Path: s.opts.Path, vfs: d.Name})
			if cs, err := again.Read(ctx, "run_1", 0, 10); err != nil || len(cs) == 0 {
				t.Errorf("what was acknowledged is gone: %d chunks, %v", len(cs), err)
			}
		})
	}
}

// TestPoisonAnswersEverybody fails a commit while many wait: nobody waits for ever, and nobody is told success.
func TestPoisonAnswersEverybody(t *testing.T) {
	d := newFaultDisk(t)
	s := openAt(t, Options{Path: newPath(t), vfs: d.Name})
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
					d.FailCommit(true)
				}
			}
		})
	}
	group.Wait()
	_ = s.Close()
	d.Heal()
	again := openAt(t, Options{Path: s.opts.Path, vfs: d.Name})
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
