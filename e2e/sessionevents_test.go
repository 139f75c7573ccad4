package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// TestSessionEvents follows a conversation through a run, a question, the run that goes on, and a clear with one more run:
// live, with cuts in mid-stream, and from the beginning afterwards. Each is the runs' logs, one after the other.
func TestSessionEvents(t *testing.T) {
	onEach(t, nil, func(t *testing.T, m manner) {
		ctx := bounded(t)
		engine := sharedEngine(t)
		c := clientOf(t, engine)
		agent := asking(ctx, t, c, m.harness, nil)
		first := start(ctx, t, c, agent.ID, "talk", m.say("note-one"))
		live := newFollower(ctx, t, c, first.SessionID, 3)

		if _, err := c.Follow(ctx, first.ID, 0); err != nil {
			t.Fatal(err)
		}
		second, q := interrupted(ctx, t, c, agent.ID, "talk", m.ask("events.md"))
		third, _ := decide(ctx, t, c, q, verdict(q, approve))
		if _, err := c.Free(ctx, first.SessionID); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Clear(ctx, first.SessionID); err != nil {
			t.Fatal(err)
		}
		fourth, _ := complete(ctx, t, c, agent.ID, "talk", m.say("note-four"))

		var logs [][]enginetest.Event
		total := 0
		ids := []string{first.ID, second.ID, third.ID, fourth.ID}
		for _, id := range ids {
			events, err := c.Log(ctx, id, 0)
			if err != nil {
				t.Fatal(err)
			}
			logs = append(logs, events)
			total += len(events)
		}
		got, cuts := live.until(ctx, t, total)
		wantConcatenated(t, "live with cuts", got, ids, logs)
		if cuts == 0 {
			t.Fatal("the live follower was never cut, so this shows nothing")
		}
		for _, times := range []int{0, 5} { // afterwards, whole and with cuts
			got, _ := newFollower(ctx, t, c, first.SessionID, times).until(ctx, t, total)
			wantConcatenated(t, "afterwards", got, ids, logs)
		}

		// From any cursor on, what follows is the rest.
		for i, b := range got {
			w, err := c.WatchSession(ctx, first.SessionID, b.Through)
			if err != nil {
				t.Fatal(err)
			}
			want := total - len(enginetest.Joined(got[:i+1]))
			rest, err := w.Until(ctx, func(batches []enginetest.SessionBatch) bool {
				return len(enginetest.Joined(batches)) >= want
			})
			w.Close()
			if err != nil {
				t.Fatal(err)
			}
			wantConcatenated(t, "behind a cursor", append(got[:i+1:i+1], rest...), ids, logs)
		}

		stranger := clientAs(t, engine, "mallory")
		if w, err := stranger.WatchSession(ctx, first.SessionID, ""); err == nil {
			_, err = w.Next(ctx)
			w.Close()
			if enginetest.Code(err) != "NOT_FOUND" {
				t.Fatalf("a stranger's subscription ends with %v, want NOT_FOUND", err)
			}
		}
		for _, cursor := range []string{"nonsense", got[0].Through + "x", "-1"} {
			w, err := c.WatchSession(ctx, first.SessionID, cursor)
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.Next(ctx)
			w.Close()
			if enginetest.Code(err) != "BAD_USER_INPUT" {
				t.Fatalf("the cursor %q gives %v, want BAD_USER_INPUT", cursor, err)
			}
		}
	})
}

// wantConcatenated compares what a follower got with the logs of the runs, one after the other.
func wantConcatenated(t *testing.T, how string, batches []enginetest.SessionBatch, ids []string, logs [][]enginetest.Event) {
	t.Helper()
	byRun := map[string][]enginetest.Event{}
	var order []string
	for _, b := range batches {
		if len(order) == 0 || order[len(order)-1] != b.RunID {
			order = append(order, b.RunID)
		}
		if ord := int64(len(order)); b.Ord != ord || b.Epoch != 1 && ord < 4 || b.Epoch != 2 && ord == 4 {
			t.Fatalf("%s: batch of run %s has order %d and epoch %d, want order %d", how, b.RunID, b.Ord, b.Epoch, ord)
		}
		for _, e := range b.Events {
			if e.RunID != b.RunID {
				t.Fatalf("%s: an event of run %s is in a batch of run %s", how, e.RunID, b.RunID)
			}
		}
		byRun[b.RunID] = append(byRun[b.RunID], b.Events...)
	}
	if len(order) != len(ids) {
		t.Fatalf("%s: the runs came as %v, want %v", how, order, ids)
	}
	for i, id := range ids {
		if order[i] != id {
			t.Fatalf("%s: the runs came as %v, want %v", how, order, ids)
		}
		if d := enginetest.Compare(byRun[id], logs[i]); !d.None() {
			t.Fatalf("%s: run %d of the session differs: %s", how, i+1, d)
		}
	}
}

// follower reads a session in the background, over connections that are cut after a few batches each, so many times.
type follower struct {
	batches chan enginetest.SessionBatch
	done    chan error
	cuts    chan struct{}
	stop    context.CancelFunc
}

func newFollower(ctx context.Context, t *testing.T, c *enginetest.Client, sessionID string, cuts int) *follower {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	f := &follower{batches: make(chan enginetest.SessionBatch, 10_000), done: make(chan error, 1), cuts: make(chan struct{}, cuts), stop: stop}
	t.Cleanup(stop)
	go func() { f.done <- f.read(ctx, c, sessionID, cuts) }()
	return f
}

func (f *follower) read(ctx context.Context, c *enginetest.Client, sessionID string, cuts int) error {
	for after := ""; ; {
		w, err := c.WatchSession(ctx, sessionID, after)
		if err != nil {
			return err
		}
		for n := 0; n < 2 || cuts == 0; n++ {
			b, err := w.Next(ctx)
			if err != nil {
				w.Close()
				return err
			}
			f.batches <- b
			after = b.Through
		}
		cuts--
		f.cuts <- struct{}{}
		w.Cut()
	}
}

// until waits for so many events and ends the following.
func (f *follower) until(ctx context.Context, t *testing.T, events int) (batches []enginetest.SessionBatch, cuts int) {
	t.Helper()
	for n := 0; n < events; {
		select {
		case b := <-f.batches:
			batches = append(batches, b)
			n += len(b.Events)
		case err := <-f.done:
			t.Fatalf("the following ended after %d of %d events: %v", n, events, err)
		case <-ctx.Done():
			t.Fatalf("%d of %d events came: %v", n, events, context.Cause(ctx))
		}
	}
	f.stop()
	<-f.done // wherever it was: it may have been cut behind the last batch and be on its way back
	return batches, len(f.cuts)
}

// TestSessionChanged watches the caller's sessions while one goes from work to a question, on from it and to rest.
// Somebody else's watch shows nothing.
func TestSessionChanged(t *testing.T) {
	ctx := bounded(t)
	engine := sharedEngine(t)
	c, other := clientAs(t, engine, "watcher"), clientAs(t, engine, "bystander")
	w, err := c.WatchChanges(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	foreign, err := other.WatchChanges(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	mine, theirs := newAgent(ctx, t, c, scripted), newAgent(ctx, t, other, scripted)
	untilSeen(ctx, t, c, mine.ID, w)
	before := untilSeen(ctx, t, other, theirs.ID, foreign)
	session := ""
	await := func(status string) enginetest.Talk {
		t.Helper()
		for {
			talk, err := w.Next(ctx)
			if err != nil {
				t.Fatalf("waiting for %s: %v", status, err)
			}
			if talk.Status == status && talk.ID == session {
				return talk
			}
		}
	}
	// The first run waits for a person, so that each status lasts until it was seen.
	text := enginetest.Script(enginetest.Ask("/changed.md"), enginetest.SayOften("word ", 10_000, 50*time.Millisecond))
	r := start(ctx, t, c, mine.ID, "talk", text)
	session = r.SessionID
	talk := await(enginetest.SessionInterrupted)
	if talk.Pending == nil || talk.Pending.RunID != r.ID || talk.ActiveRunID != "" {
		t.Fatalf("the session came as %+v, want it with its question", talk)
	}
	next, err := c.Resume(ctx, *talk.Pending, verdict(*talk.Pending, approve))
	if err != nil {
		t.Fatal(err)
	}
	if talk = await(enginetest.SessionRunning); talk.ActiveRunID != next.ID || talk.Pending != nil {
		t.Fatalf("the session came as %+v, want run %s at work", talk, next.ID)
	}
	queued, err := startIn(t, c, mine.ID, "talk", "ENQUEUE", "hello")
	if err != nil {
		t.Fatal(err)
	}
	for len(talk.Queue) == 0 {
		if talk, err = w.Next(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if talk.Queue[0].ID != queued.ID {
		t.Fatalf("the session came as %+v, want run %s in its queue", talk, queued.ID)
	}
	if _, err := c.Cancel(ctx, next.ID); err != nil {
		t.Fatal(err)
	}
	if talk = await(enginetest.SessionIdle); talk.ActiveRunID != "" || talk.Pending != nil || len(talk.Queue) != 0 {
		t.Fatalf("the session came as %+v, want it at rest", talk)
	}

	// A change of the bystander's own is the first that it sees.
	own, _ := complete(ctx, t, other, theirs.ID, "", "hello")
	seen, err := foreign.Next(ctx)
	for err == nil && seen.ID == before {
		seen, err = foreign.Next(ctx)
	}
	if err != nil || seen.ID != own.SessionID {
		t.Fatalf("somebody else's watch shows %+v (%v), want nothing but its own session %s", seen, err, own.SessionID)
	}
}

// untilSeen changes a conversation of the caller until a change is seen, and returns the conversation: from then on the
// subscription is known to be there. What happens before it is made may be missed.
func untilSeen(ctx context.Context, t *testing.T, c *enginetest.Client, agentID string, w enginetest.ChangeWatch) string {
	t.Helper()
	const patience = 2 * time.Second // before it is changed once more
	for {
		r, _ := complete(ctx, t, c, agentID, "probe", "hello")
		short, cancel := context.WithTimeout(ctx, patience)
		talk, err := w.Next(short)
		for err == nil && talk.ID != r.SessionID {
			talk, err = w.Next(short)
		}
		late := short.Err() != nil
		cancel()
		switch {
		case err == nil:
			return r.SessionID
		case !late || ctx.Err() != nil:
			t.Fatal(err)
		}
	}
}
