package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAttendance(t *testing.T) {
	const ttl = 15 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		a := newAttendance(ttl, ttl, func() bool { return false })
		start := time.Now()
		done := make(chan time.Duration, 1)
		go func() {
			if a.orphaned(t.Context()) {
				done <- time.Since(start)
			}
		}()
		// Calls keep it.
		for range 3 {
			time.Sleep(ttl - time.Second)
			a.touch()
		}
		// An open stream keeps it for as long as it is open, whatever other calls end meanwhile.
		leave := a.enter()
		a.touch()
		time.Sleep(10 * ttl)
		synctest.Wait()
		select {
		case d := <-done:
			t.Fatalf("orphaned after %v with an open stream", d)
		default:
		}
		leave()
		leave() // twice is once
		want := time.Since(start) + ttl
		if got := <-done; got != want {
			t.Fatalf("orphaned after %v, want %v", got, want)
		}
	})
}

func TestAttendanceEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := newAttendance(time.Hour, time.Hour, func() bool { return false })
		defer a.enter()()
		done := make(chan bool, 1)
		go func() { done <- a.orphaned(ctx) }()
		synctest.Wait()
		cancel()
		if <-done {
			t.Fatal("orphaned, want ended")
		}
	})
}
