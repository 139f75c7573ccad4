package run_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/event/eventtest"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// talk is one conversation as a feed reads it: its binding, its runs and their logs. Hints come only when told.
type talk struct {
	t       *testing.T
	log     *eventtest.Log
	hub     *event.Hub
	changes *session.Changes
	feed    *run.SessionFeed

	mu      sync.Mutex
	looks   int // readings of the binding
	binding session.Binding
	runs    []run.Run // by order
	writers map[int64]*event.Writer
}

func newTalk(t *testing.T) *talk {
	t.Helper()
	k := &talk{t: t, log: eventtest.NewLog(), writers: map[int64]*event.Writer{},
		binding: session.Binding{ID: "ses_1", Rev: 1, Epoch: 1, NextOrd: 1}}
	k.hub = event.NewHub(event.HubOptions{Log: k.log})
	k.changes = session.NewChanges(session.ChangesOptions{Sessions: k})
	k.feed = run.NewSessionFeed(run.SessionFeedOptions{Runs: k, Sessions: k, Hub: k.hub, Changes: k.changes})
	t.Cleanup(k.hub.Close)
	t.Cleanup(k.changes.Close)
	return k
}

func (k *talk) Session(context.Context, string) (session.Binding, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looks++
	return k.binding, nil
}

func (*talk) SessionsOf(context.Context, string, string, string, string, int) ([]session.Binding, error) {
	return nil, nil
}

func (k *talk) SessionRuns(_ context.Context, _ string, epoch, afterOrd int64, limit int) (page []run.Run, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.runs {
		if r.Ord > afterOrd && len(page) < limit && (epoch == 0 || r.Epoch == epoch) {
			page = append(page, r)
		}
	}
	return page, nil
}

// give gives out the next order in the binding only, as its active run where active.
func (k *talk) give(active bool) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	ord := k.binding.NextOrd
	k.binding.NextOrd++
	k.binding.Active = nil
	if active {
		k.binding.Active = &session.Active{Run: fmt.Sprintf("run_%d", ord), Ord: ord}
	}
	return ord
}

// write stores the run's document with its order, and begins its log.
func (k *talk) write(ord int64) *event.Writer {
	k.t.Helper()
	id := fmt.Sprintf("run_%d", ord)
	k.mu.Lock()
	at := 0
	for at < len(k.runs) && k.runs[at].Ord < ord {
		at++
	}
	now := time.Now()
	r := run.Run{ID: id, Ord: ord, Epoch: k.binding.Epoch, SessionID: "ses_1", StartedAt: &now}
	k.runs = append(k.runs[:at], append([]run.Run{r}, k.runs[at:]...)...)
	k.mu.Unlock()
	w, err := event.OpenWriter(context.Background(), event.WriterConfig{Log: k.log, Publish: k.hub.Publish, RunID: id, SessionID: "ses_1",
		Gen: 1, Nonce: "n", Bounds: event.DefaultBounds()})
	if err != nil {
		k.t.Fatal(err)
	}
	k.writers[ord] = w
	k.say(ord, event.RunStarted{Harness: "scripted", AdapterVersion: "1", AgentVersion: 1})
	return w
}

func (k *talk) say(ord int64, data ...event.Data) {
	k.t.Helper()
	events := make([]event.Event, len(data))
	for i, d := range data {
		events[i].Data = d
	}
	if _, err := k.writers[ord].Append(context.Background(), event.Batch{Events: events}); err != nil {
		k.t.Fatal(err)
	}
}

func (k *talk) end(ord int64) {
	k.t.Helper()
	k.say(ord, event.RunFinished{Outcome: "success", StopReason: "end_turn", Thread: event.ThreadState{Durability: event.DurabilityLocal}})
}

// whole is a run from its order to its end.
func (k *talk) whole() int64 {
	k.t.Helper()
	ord := k.give(true)
	k.write(ord)
	k.end(ord)
	return ord
}

func (k *talk) hint() {
	k.mu.Lock()
	b := k.binding
	k.mu.Unlock()
	k.changes.Publish(b)
}

// read takes what comes within d, and checks that it is in order without gap or repeat after the cursor.
func (k *talk) read(r *run.SessionReader, after run.SessionCursor, d time.Duration, limit int) (out []run.SessionDelivery, through run.SessionCursor) {
	k.t.Helper()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		got, err := r.Next(ctx, limit)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return out, after
		}
		if err != nil {
			k.t.Fatal(err)
		}
		for _, e := range got.Events {
			if got.Ord == after.Ord && e.Sequence != after.Sequence+1 || got.Ord != after.Ord && (got.Ord < after.Ord || e.Sequence != 1) ||
				e.RunID != got.RunID || e.RunID != fmt.Sprintf("run_%d", got.Ord) {
				k.t.Fatalf("event %d of %s (order %d) comes after %+v", e.Sequence, e.RunID, got.Ord, after)
			}
			after = run.SessionCursor{Ord: got.Ord, Sequence: e.Sequence}
		}
		if len(got.Events) == 0 || len(got.Events) > limit || got.Through != after {
			k.t.Fatalf("%d events through %+v after %+v", len(got.Events), got.Through, after)
		}
		out = append(out, got)
	}
}

func orders(ds []run.SessionDelivery) (ords []int64) {
	for _, d := range ds {
		if len(ords) == 0 || ords[len(ords)-1] != d.Ord {
			ords = append(ords, d.Ord)
		}
	}
	return ords
}

func TestAFeedGoesFromRunToRunAcrossEpochs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		k.whole()
		k.whole()
		k.binding.Epoch = 2
		k.write(k.give(true))
		r := k.feed.Subscribe("ses_1", run.SessionCursor{})
		got, at := k.read(r, run.SessionCursor{}, time.Second, 1)
		if fmt.Sprint(orders(got)) != "[1 2 3]" || at != (run.SessionCursor{Ord: 3, Sequence: 1}) {
			t.Fatalf("got runs %v through %+v", orders(got), at)
		}
		for i, d := range got {
			if last := i == len(got)-1; d.CaughtUp != last || d.Epoch != map[int64]int64{1: 1, 2: 1, 3: 2}[d.Ord] {
				t.Errorf("delivery %d of run %d: caught up %v, epoch %d", i, d.Ord, d.CaughtUp, d.Epoch)
			}
		}
		k.end(3)
		if got, _ = k.read(r, at, time.Second, 10); len(got) != 1 || !got[0].CaughtUp {
			t.Errorf("the end: %+v", got)
		}
		// Any cursor goes on exactly behind it.
		for _, c := range []run.SessionCursor{{}, {Ord: 1, Sequence: 1}, {Ord: 1, Sequence: 2}, {Ord: 1, Sequence: 99}, {Ord: 2, Sequence: 0}, {Ord: 3, Sequence: 2}} {
			from := c
			if c.Sequence == 99 {
				from.Sequence = 2
			}
			if _, at := k.read(k.feed.Subscribe("ses_1", c), from, time.Second, 10); at.Ord != 3 || at.Sequence != 2 {
				t.Errorf("after %+v through %+v", c, at)
			}
		}
	})
}

// A run that begins while a reader waits is shown at once on a hint, and without one by the poll.
func TestAFeedIsWokenOrPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		r := k.feed.Subscribe("ses_1", run.SessionCursor{})
		var at run.SessionCursor
		for i, hinted := range []bool{true, false, true} {
			arrived := make(chan time.Duration, 1)
			begun := time.Now()
			go func() {
				got, err := r.Next(context.Background(), 10)
				if err != nil {
					t.Error(err)
				}
				at = got.Through
				arrived <- time.Since(begun)
			}()
			synctest.Wait()
			ord := k.give(true)
			if hinted {
				k.hint()
				time.Sleep(30 * time.Millisecond) // the document is written a moment after the binding
			}
			k.write(ord)
			took := <-arrived
			if most := map[bool]time.Duration{true: 200 * time.Millisecond, false: 2*time.Second + 200*time.Millisecond}[hinted]; took > most {
				t.Errorf("run %d, hinted %v: shown after %s", ord, hinted, took)
			}
			if at.Ord != int64(i+1) {
				t.Errorf("got %+v", at)
			}
			k.end(ord)
			_, at = k.read(r, at, time.Second, 10)
		}
	})
}

// Order beats arrival: a later run, even one that has ended, waits for the active one and for one whose document is late.
func TestAFeedKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		first := k.give(true)
		k.mu.Lock()
		active := k.binding.Active
		k.mu.Unlock()
		dropped := k.give(false) // a queued run that was cancelled
		k.mu.Lock()
		k.binding.Active = active
		k.mu.Unlock()
		k.write(dropped)
		k.end(dropped)
		r := k.feed.Subscribe("ses_1", run.SessionCursor{})
		if got, _ := k.read(r, run.SessionCursor{}, time.Minute, 10); len(got) > 0 {
			t.Fatalf("shown before the active run: %v", orders(got))
		}
		k.write(first)
		got, at := k.read(r, run.SessionCursor{}, 3*time.Second, 10)
		if fmt.Sprint(orders(got)) != "[1]" {
			t.Fatalf("shown beside the active run: %v", orders(got))
		}
		k.end(first)
		if got, at = k.read(r, at, 3*time.Second, 10); fmt.Sprint(orders(got)) != "[1 2]" {
			t.Fatalf("then %v", orders(got))
		}

		late, third := k.give(false), k.give(false)
		k.write(third)
		k.end(third)
		if got, _ := k.read(r, at, 2*time.Second, 10); len(got) > 0 {
			t.Fatalf("shown before a run that may still come: %v", orders(got))
		}
		k.write(late)
		k.end(late)
		if got, _ = k.read(r, at, 3*time.Second, 10); fmt.Sprint(orders(got)) != "[3 4]" {
			t.Fatalf("then %v", orders(got))
		}
	})
}

// An order that was given for nothing is passed over: at once where it is old, else after a wait.
func TestAFeedPassesHoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		k.whole()
		k.give(false) // refused all the same
		k.whole()
		r := k.feed.Subscribe("ses_1", run.SessionCursor{})
		begun := time.Now()
		var ords []int64
		for len(ords) < 2 {
			d, err := r.Next(context.Background(), 10)
			if err != nil {
				t.Fatal(err)
			}
			ords = append(ords, d.Ord)
		}
		if took := time.Since(begun); fmt.Sprint(ords) != "[1 3]" || took < 5*time.Second || took > 8*time.Second {
			t.Errorf("runs %v after %s", ords, took)
		}
		time.Sleep(time.Minute)
		begun = time.Now()
		k.read(k.feed.Subscribe("ses_1", run.SessionCursor{Ord: 1, Sequence: 2}), run.SessionCursor{Ord: 1, Sequence: 2}, time.Millisecond, 10)
		if got, _ := k.read(k.feed.Subscribe("ses_1", run.SessionCursor{Ord: 2, Sequence: 7}), run.SessionCursor{Ord: 2, Sequence: 7}, time.Millisecond, 10); fmt.Sprint(orders(got)) != "[3]" {
			t.Errorf("from the hole on: %v", orders(got))
		}
		if took := time.Since(begun); took > 10*time.Millisecond {
			t.Errorf("an old hole took %s", took)
		}
	})
}

// A reader that is cut off again and again, anywhere, gets every event of every run once and in order, however writes
// and hints interleave.
func TestAFeedLosesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			k := newTalk(t)
			var at run.SessionCursor
			r := k.feed.Subscribe("ses_1", at)
			total := 0
			count := func(ds []run.SessionDelivery) {
				for _, d := range ds {
					total += len(d.Events)
				}
			}
			written, open, unwritten := 0, int64(0), int64(0)
			for range rapid.IntRange(5, 50).Draw(rt, "steps") {
				switch rapid.SampledFrom([]string{"begin", "write", "say", "end", "hint", "read", "reconnect", "pause"}).Draw(rt, "kind") {
				case "begin":
					if open == 0 && unwritten == 0 {
						unwritten = k.give(true)
					}
				case "write":
					if unwritten != 0 {
						k.write(unwritten)
						open, unwritten, written = unwritten, 0, written+1
					}
				case "say":
					if open != 0 {
						k.say(open, event.Warning{Code: "w", Message: "m"})
						written++
					}
				case "end":
					if open != 0 {
						k.end(open)
						open, written = 0, written+1
						k.mu.Lock()
						k.binding.Active = nil
						k.mu.Unlock()
					}
				case "hint":
					k.hint()
				case "read":
					var got []run.SessionDelivery
					got, at = k.read(r, at, time.Millisecond, rapid.IntRange(1, 5).Draw(rt, "limit"))
					count(got)
				case "reconnect":
					r = k.feed.Subscribe("ses_1", at)
				case "pause":
					time.Sleep(3 * time.Second) // the bubble's clock
				}
			}
			got, _ := k.read(r, at, 10*time.Second, 3)
			count(got)
			if total != written {
				t.Errorf("%d events were delivered of %d", total, written)
			}
			k.hub.Close()
			k.changes.Close()
		})
	})
}
