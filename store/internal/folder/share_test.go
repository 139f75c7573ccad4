package folder

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"
)

func TestShare(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	var saw []bool
	prepare := func(sole bool) error { saw = append(saw, sole); return nil }
	first, err := Share(ctx, dir, "x.lock", prepare)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Share(ctx, dir, "x.lock", prepare)
	if err != nil {
		t.Fatal(err)
	}
	if len(saw) != 2 || !saw[0] || saw[1] {
		t.Fatalf("sole: %v", saw)
	}
	if _, err := Lock(dir, "x.lock"); !errors.Is(err, ErrHeld) {
		t.Fatalf("a folder that is shared was locked: %v", err)
	}
	_ = first.Close()
	if _, err := Lock(dir, "x.lock"); !errors.Is(err, ErrHeld) {
		t.Fatalf("a folder that one still has open was locked: %v", err)
	}
	_ = second.Close()
	alone, err := Lock(dir, "x.lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Share(ctx, dir, "x.lock", prepare); !errors.Is(err, ErrHeld) {
		t.Fatalf("a locked folder was shared: %v", err)
	}
	_ = alone.Close()
	broken := errors.New("broken")
	if _, err := Share(ctx, dir, "x.lock", func(bool) error { return broken }); !errors.Is(err, broken) {
		t.Fatalf("error of prepare: %v", err)
	}
	if again, err := Lock(dir, "x.lock"); err != nil {
		t.Fatalf("the lock stayed behind a failure: %v", err)
	} else {
		_ = again.Close()
	}
	opening, err := Lock(dir, "x.lock"+openingSuffix)
	if err != nil {
		t.Fatal(err)
	}
	defer opening.Close()
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := Share(short, dir, "x.lock", prepare); !errors.Is(err, ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("while another opens: %v", err)
	}
}

func TestGate(t *testing.T) {
	dir := t.TempDir()
	a, err := NewGate(dir, "gate")
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewGate(dir, "gate")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if ok, err := a.Enter(nil, time.Minute, nil); !ok || err != nil {
		t.Fatal(ok, err)
	}
	entered, blocked := make(chan error, 1), make(chan int)
	go func() {
		ok, err := b.Enter(nil, time.Millisecond, func() {
			select {
			case blocked <- b.Holder():
			default:
			}
		})
		if err == nil && !ok {
			err = errors.New("given up")
		}
		entered <- err
	}()
	select {
	case <-entered:
		t.Fatal("two inside")
	case pid := <-blocked:
		if pid != os.Getpid() && runtime.GOOS == "linux" {
			t.Errorf("process %d is inside, want %d", pid, os.Getpid())
		}
	}
	if err := a.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	close(gone)
	if ok, err := a.Enter(gone, time.Minute, nil); ok || err != nil {
		t.Fatalf("entered %v, %v while another is inside", ok, err)
	}
	_ = a.Close()
}
