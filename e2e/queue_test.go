package e2e

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// maxQueue is how many runs may wait in one conversation.
const maxQueue = 16

// startIn starts a run of a conversation with a busy policy.
func startIn(t *testing.T, c *enginetest.Client, agentID, conversation, policy, text string) (enginetest.Run, error) {
	t.Helper()
	return c.Start(t.Context(), enginetest.StartInput{
		AgentID: agentID, ConversationID: conversation, Message: enginetest.Input{Text: text}, BusyPolicy: policy,
	})
}

// TestQueueKeepsOrder starts a hundred runs at once behind one that is active: as many as may wait do, the others are
// refused, and those that wait begin one after the other in the order of the queue.
func TestQueueKeepsOrder(t *testing.T) {
	const callers = 100
	ctx := bounded(t)
	c := clientAs(t, sharedEngine(t), "queue")
	agent := newAgent(ctx, t, c, scripted)
	active := start(ctx, t, c, agent.ID, "talk", enginetest.Script(enginetest.Hang()))
	var (
		wg   sync.WaitGroup
		runs [callers]enginetest.Run
		errs [callers]error
	)
	for i := range callers {
		wg.Go(func() {
			// An engine that is asked too much at once says so, and admits nothing.
			for again := true; again; again = enginetest.Code(errs[i]) == "AUTHORIZATION_UNAVAILABLE" && ctx.Err() == nil {
				runs[i], errs[i] = startIn(t, c, agent.ID, "talk", "ENQUEUE", scriptedManner.say("queued"))
			}
		})
	}
	wg.Wait()
	var admitted []string
	for i := range callers {
		var refused *enginetest.Refusal
		switch {
		case errs[i] == nil:
			admitted = append(admitted, runs[i].ID)
		case !errors.As(errs[i], &refused) || refused.Type != "SessionBusy" || refused.ActiveRunID != active.ID:
			t.Fatalf("start %d gives %v, want a place in the queue or SessionBusy with the active run", i, errs[i])
		}
	}
	talk, err := c.Talk(ctx, active.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	if len(admitted) != maxQueue || len(talk.Queue) != maxQueue || talk.ActiveRunID != active.ID {
		t.Fatalf("%d starts were admitted, and the session is %+v, want %d runs in the queue", len(admitted), talk, maxQueue)
	}
	var queue []string
	for i, w := range talk.Queue {
		if w.QueuePosition != int64(i+1) || w.Status != "QUEUED" || !slices.Contains(admitted, w.ID) {
			t.Fatalf("place %d of the queue has %+v", i+1, w)
		}
		queue = append(queue, w.ID)
	}

	// One that is cancelled while it waits never begins, and the others move up.
	const gone = 5
	if _, err := c.Cancel(ctx, queue[gone]); err != nil {
		t.Fatal(err)
	}
	events, err := c.Follow(ctx, queue[gone], 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 2 || events[0].Type != enginetest.RunStarted || events[1].Type != enginetest.RunCancelled || events[1].SideEffects != "none" {
		t.Fatalf("the run that was cancelled in the queue has the log %v", events)
	}
	if p, err := c.Place(ctx, queue[gone+1]); err != nil || p.QueuePosition != gone+1 {
		t.Fatalf("the run behind it is %+v (%v), want it at place %d", p, err, gone+1)
	}

	if _, err := c.Cancel(ctx, active.ID); err != nil {
		t.Fatal(err)
	}
	before, err := c.Follow(ctx, active.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	ord := int64(2) // the cancelled one has its order too
	for i, id := range queue {
		if i == gone {
			continue
		}
		events, err := c.Follow(ctx, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := enginetest.CheckLog(events); err != nil {
			t.Fatal(err)
		}
		wantFinished(t, events)
		if end := enginetest.Last(before); events[0].Time.Before(end.Time) {
			t.Fatalf("place %d began at %s, before the run in front of it ended at %s", i+1, events[0].Time, end.Time)
		}
		p, err := c.Place(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if ord++; p.Ord != ord {
			t.Fatalf("place %d of the queue became run %d of the session, want %d", i+1, p.Ord, ord)
		}
		before = events
	}
	wantIdle(ctx, t, c, active.SessionID)
}

// TestInterruptingStart starts a run that puts an end to the active one: it goes before those that wait, and begins only
// when the end of the active one is in the log.
func TestInterruptingStart(t *testing.T) {
	onEach(t, nil, func(t *testing.T, m manner) {
		ctx := bounded(t)
		c := clientOf(t, sharedEngine(t))
		agent := newAgent(ctx, t, c, m.harness)
		text := m.slow
		if m.long != nil {
			text = m.long
		}
		active := start(ctx, t, c, agent.ID, "talk", text("note-active"))
		beforeKill(ctx, t, c, active.ID, 0, 3)
		waiting, err := startIn(t, c, agent.ID, "talk", "ENQUEUE", m.say("note-waiting"))
		if err != nil {
			t.Fatal(err)
		}
		urgent, err := startIn(t, c, agent.ID, "talk", "INTERRUPT", m.say("note-urgent"))
		if err != nil {
			t.Fatal(err)
		}
		witness, err := c.Watch(ctx, urgent.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer witness.Close()
		if _, _, err := witness.Until(ctx, func(events []enginetest.Event) bool { return len(events) > 0 }); err != nil {
			t.Fatal(err)
		}
		old, err := c.Log(ctx, active.ID, 0) // at the moment that the first event of the new run is seen
		if err != nil {
			t.Fatal(err)
		}
		if end := enginetest.Last(old); end.Type != enginetest.RunCancelled || end.Reason != "superseded" {
			t.Fatalf("the new run has begun, and the log of the old one ends with %s, want its cancel as superseded", end)
		}
		var logs [][]enginetest.Event
		for _, id := range []string{active.ID, urgent.ID, waiting.ID} {
			events, err := c.Follow(ctx, id, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := enginetest.CheckLog(events); err != nil {
				t.Fatal(err)
			}
			if n := len(logs); n > 0 {
				wantFinished(t, events)
				if end := enginetest.Last(logs[n-1]); events[0].Time.Before(end.Time) {
					t.Fatalf("run %d began at %s, before the one in front of it ended at %s", n+1, events[0].Time, end.Time)
				}
			}
			p, err := c.Place(ctx, id)
			if err != nil || p.Ord != int64(len(logs)+1) {
				t.Fatalf("run %s is %+v (%v), want it number %d of the session", id, p, err, len(logs)+1)
			}
			logs = append(logs, events)
		}
		wantIdle(ctx, t, c, active.SessionID)
	})
}

// TestQueueOutlivesEngine kills the engine while runs wait: they begin in their order under the next one.
func TestQueueOutlivesEngine(t *testing.T) {
	ctx := bounded(t)
	engine := ownEngine(t)
	c := clientOf(t, engine)
	agent := newAgent(ctx, t, c, scripted)
	active := start(ctx, t, c, agent.ID, "talk", enginetest.Script(enginetest.CountHeld(60, 20*time.Millisecond)))
	var queue []string
	for range 3 {
		r, err := startIn(t, c, agent.ID, "talk", "ENQUEUE", scriptedManner.say("queued"))
		if err != nil {
			t.Fatal(err)
		}
		queue = append(queue, r.ID)
	}
	beforeKill(ctx, t, c, active.ID, 0, 3)
	engine.Kill()
	if err := engine.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	c = clientOf(t, engine)
	release(ctx, t, engine, active.SessionID)
	for i, id := range append([]string{active.ID}, queue...) {
		events, err := c.Follow(ctx, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := enginetest.CheckLog(events); err != nil {
			t.Fatal(err)
		}
		wantFinished(t, events)
		if p, err := c.Place(ctx, id); err != nil || p.Ord != int64(i+1) {
			t.Fatalf("run %d is %+v (%v)", i+1, p, err)
		}
	}
	wantIdle(ctx, t, c, active.SessionID)
}
