package run_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
)

// crowd is many readers of one session that poll when they are notified, and only then.
type crowd struct {
	t       *testing.T
	readers []*run.SessionReader
	woken   chan int
	got     [][]int64 // orders of the runs of the events, by reader
}

func newCrowd(t *testing.T, k *talk, n int) *crowd {
	c := &crowd{t: t, woken: make(chan int, 10*n), got: make([][]int64, n)}
	for i := range n {
		c.readers = append(c.readers, k.feed.Subscribe("ses_1", run.SessionCursor{}))
		c.poll(i)
	}
	return c
}

func (c *crowd) poll(i int) {
	c.t.Helper()
	for {
		s, ok, err := c.readers[i].PollSpan(context.Background(), 256)
		if err != nil {
			c.t.Fatal(err)
		}
		if ok {
			for range s.Through - s.First + 1 {
				c.got[i] = append(c.got[i], s.Ord)
			}
		}
		if !ok || s.Waiting {
			c.readers[i].Notify(func() { c.woken <- i })
			return
		}
	}
}

// settle polls whoever was woken, and says how many were.
func (c *crowd) settle() (n int) {
	c.t.Helper()
	for {
		synctest.Wait()
		select {
		case i := <-c.woken:
			c.poll(i)
			n++
		default:
			return n
		}
	}
}

func (c *crowd) want(ords ...int64) {
	c.t.Helper()
	for i, got := range c.got {
		if fmt.Sprint(got) != fmt.Sprint(ords) {
			c.t.Fatalf("reader %d has %v, want %v", i, got, ords)
		}
	}
}

func (c *crowd) close() {
	for _, r := range c.readers {
		r.Close()
		r.Close()
	}
}

// Readers that wait for the next run of a session have no goroutine, look together, and are woken by a hint or the poll.
func TestReadersOfASessionWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		k.whole()
		k.mu.Lock()
		k.binding.Active = nil
		k.mu.Unlock()
		c := newCrowd(t, k, 1000)
		defer c.close()
		c.want(1, 1)
		k.looks = 0
		for range 10 {
			time.Sleep(2 * time.Second)
			if n := c.settle(); n != 1000 {
				t.Fatalf("%d were woken by the poll", n)
			}
		}
		if k.looks > 20 {
			t.Errorf("%d looks in ten polls", k.looks)
		}
		// A hint wakes all at once; the run's events come from its log.
		ord := k.give(true)
		k.hint()
		k.write(ord)
		k.hint()
		begun := time.Now()
		c.settle()
		for time.Since(begun) < 20*time.Millisecond {
			time.Sleep(time.Millisecond)
			c.settle()
		}
		c.want(1, 1, 2)
		k.looks = 0
		k.say(ord, event.Warning{Code: "w", Message: "m"})
		c.settle()
		c.want(1, 1, 2, 2)
		if k.looks != 0 {
			t.Errorf("%d looks while a run is at work", k.looks)
		}
		k.end(ord)
		c.settle()
		c.want(1, 1, 2, 2, 2)
		if k.looks > 10 {
			t.Errorf("%d looks at a run's end", k.looks)
		}
	})
}

// What happens between a poll that found nothing and the wait is told at once.
func TestNoWakeUpOfASessionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		r := k.feed.Subscribe("ses_1", run.SessionCursor{})
		defer r.Close()
		if _, ok, err := r.PollSpan(t.Context(), 10); ok || err != nil {
			t.Fatal(ok, err)
		}
		k.write(k.give(true))
		k.hint()
		calls := 0
		r.Notify(func() { calls++ })
		if calls != 1 {
			t.Fatalf("%d calls", calls)
		}
		if s, ok, err := r.PollSpan(t.Context(), 10); !ok || err != nil || s.Ord != 1 {
			t.Fatal(s, ok, err)
		}
	})
}

// Readers that only poll when they are notified get everything, whatever hints are lost and whoever closes in between.
func TestPolledReadersOfASessionLoseNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			k := newTalk(t)
			c := newCrowd(t, k, 3)
			defer c.close()
			var want []int64
			open := int64(0)
			for range rapid.IntRange(5, 40).Draw(rt, "steps") {
				switch rapid.SampledFrom([]string{"begin", "say", "end", "hint", "settle", "pause", "close"}).Draw(rt, "kind") {
				case "begin":
					if open == 0 {
						open = k.give(true)
						k.write(open)
						want = append(want, open)
					}
				case "say":
					if open != 0 {
						k.say(open, event.Warning{Code: "w", Message: "m"})
						want = append(want, open)
					}
				case "end":
					if open != 0 {
						k.end(open)
						want = append(want, open)
						open = 0
						k.mu.Lock()
						k.binding.Active = nil
						k.mu.Unlock()
					}
				case "hint":
					k.hint()
				case "settle":
					c.settle()
				case "pause":
					time.Sleep(time.Second)
				case "close":
					i := rapid.IntRange(0, 2).Draw(rt, "reader")
					c.readers[i].Close()
					c.poll(i)
				}
			}
			for range 10 {
				time.Sleep(time.Second)
				c.settle()
			}
			c.want(want...)
			c.close()
			k.hub.Close()
			k.changes.Close()
		})
	})
}
