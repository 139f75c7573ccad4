package e2e

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// takeoverWithin is how soon a subscriber of another engine sees the run go on, at the default lease, behind the death
// of its own. What a slow machine adds is measured beside it.
const takeoverWithin = 2 * time.Second

// otherEngine starts a second engine on the data folder of one.
func otherEngine(t *testing.T, first *enginetest.Engine, args ...string) *enginetest.Engine {
	t.Helper()
	e, err := first.Beside(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the other engine:\n%s", lastLines(e.Log(), 60))
		}
		e.Kill()
	})
	return e
}

// TestTakeover kills an engine in mid-text, in mid-tool and while a person is asked. Its run goes on under the other one,
// on the worker that it has, and a subscriber of that one sees no gap.
func TestTakeover(t *testing.T) {
	const words = 40
	cases := []struct {
		name, harness, text string
		seen                string // kind of event after which the engine is killed
		count               int    // of them
		want                func(t *testing.T, events []enginetest.Event)
	}{
		{"mid-text", scripted, enginetest.Script(enginetest.CountHeld(words, 20*time.Millisecond)), enginetest.TextDelta, 10,
			func(t *testing.T, events []enginetest.Event) {
				if got, want := enginetest.Text(events), enginetest.Counted(words); got != want {
					t.Fatalf("text is %q, want %q", got, want)
				}
			}},
		{"mid-tool", scripted, enginetest.Script(enginetest.CallHeld("build", "c1", "built"), enginetest.Say("done")), enginetest.ToolStarted, 1,
			func(t *testing.T, events []enginetest.Event) {
				wantCallEnded(t, events, "c1", enginetest.ToolFinished)
			}},
		{"mid-text", deepagents, slowTwice(30), enginetest.TextDelta, 10,
			func(t *testing.T, events []enginetest.Event) {
				// The call of the model was cut with the engine; the harness has asked anew, as a new message.
				wantLastMessage(t, events, ticks(30)+ticks(30))
			}},
		{"mid-tool", deepagents, `[[tool task {"description":"` + slowTwice(30) + `","subagent_type":"general-purpose"}]] [[then]] done`, enginetest.TextDelta, 10,
			func(t *testing.T, events []enginetest.Event) {
				wantCallEnded(t, events, enginetest.Find(events, enginetest.ToolStarted)[0].ToolCallID, enginetest.ToolFinished)
			}},
	}
	for _, tc := range cases {
		t.Run(tc.harness+" "+tc.name, func(t *testing.T) {
			needHarness(t, tc.harness)
			ctx := bounded(t)
			first := ownEngine(t)
			if tc.harness != scripted {
				first = engineWithModel(t)
			}
			other := otherEngine(t, first)
			c := clientOf(t, other)
			agent := newAgent(ctx, t, c, tc.harness)
			r := start(ctx, t, clientOf(t, first), agent.ID, "talk", tc.text)

			w, err := c.Watch(ctx, r.ID, 0)
			if err != nil {
				t.Fatal(err)
			}
			seen, completed, err := w.Until(ctx, func(events []enginetest.Event) bool {
				return len(enginetest.Find(events, tc.seen)) >= tc.count
			})
			if err != nil || completed {
				t.Fatalf("ended before the engine could be killed: %v, %s", err, seen)
			}
			pace := other.Pace(ctx)
			first.Kill()
			killed := time.Now()
			rest, completed, err := w.Until(ctx, func(events []enginetest.Event) bool { return len(enginetest.Find(events, enginetest.RunRecovered)) > 0 })
			took := time.Since(killed)
			if err != nil || completed {
				t.Fatalf("%v, %s", err, rest)
			}
			t.Logf("the run went on %s after the kill", took)
			if err := pace.Within("the run went on", took, takeoverWithin); err != nil {
				t.Error(err)
			}
			if tc.harness == scripted {
				release(ctx, t, first, r.SessionID)
			}
			last, err := c.Follow(ctx, r.ID, enginetest.Last(rest).Sequence)
			if err != nil {
				t.Fatal(err)
			}
			events := append(append(seen, rest...), last...)
			if err := enginetest.CheckLog(events); err != nil {
				t.Fatal(err)
			}
			wantFinished(t, events)
			tc.want(t, events)
			wantReplays(ctx, t, c, r.ID, events)
			wantProjection(ctx, t, c, r.ID, events)
			if err := first.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			wantReplays(ctx, t, clientOf(t, first), r.ID, events)
		})
	}
}

// wantLastMessage fails unless the last message of a log has the text.
func wantLastMessage(t *testing.T, events []enginetest.Event, want string) {
	t.Helper()
	started := enginetest.Find(events, enginetest.TextStarted)
	if len(started) == 0 {
		t.Fatalf("no message in %s", events)
	}
	got := ""
	for _, e := range enginetest.Find(events, enginetest.TextDelta) {
		if e.MessageID == started[len(started)-1].MessageID {
			got += e.Delta
		}
	}
	if got != want {
		t.Fatalf("the last message is %q, want %q", got, want)
	}
}

// TestTakeoverWhileAsked kills the engine whose run asked a person: the decision is taken by the other one.
func TestTakeoverWhileAsked(t *testing.T) {
	onEach(t, func(m manner) bool { return m.survives }, func(t *testing.T, m manner) {
		ctx := bounded(t)
		first := ownEngine(t)
		other := otherEngine(t, first)
		c := clientOf(t, first)
		agent := asking(ctx, t, c, m.harness, nil)
		asked, q := interrupted(ctx, t, c, agent.ID, "talk", m.ask("a.md"))
		first.Kill()
		_, events := decide(ctx, t, clientOf(t, other), q, verdict(q, approve))
		wantFinished(t, events)
		wantCallEnded(t, events, q.Calls[0].ToolCallID, enginetest.ToolFinished)
		m.wantFile(t, other, asked.SessionID, "a.md", "kept words")
	})
}

// TestRequestsReachTheOwner makes requests of an engine that another one's run has to obey: within a second.
func TestRequestsReachTheOwner(t *testing.T) {
	ctx := bounded(t)
	first := ownEngine(t)
	other := otherEngine(t, first)
	a, b := clientOf(t, first), clientOf(t, other)
	agent := newAgent(ctx, t, a, scripted)
	hang := enginetest.Script(enginetest.Say("begun"), enginetest.Hang())
	begun := func(conversation string) (enginetest.Run, []enginetest.Event) {
		t.Helper()
		r := start(ctx, t, a, agent.ID, conversation, hang)
		return r, beforeKill(ctx, t, b, r.ID, 0, 1)
	}
	ended := func(r enginetest.Run, seen []enginetest.Event, reason string, since time.Time, pace *enginetest.Pace) {
		t.Helper()
		rest, err := b.Follow(ctx, r.ID, enginetest.Last(seen).Sequence)
		if err != nil {
			t.Fatal(err)
		}
		if end := enginetest.Last(rest); end.Type != enginetest.RunCancelled || end.Reason != reason {
			t.Fatalf("the run ended with %s, want it cancelled: %s", end, reason)
		}
		if err := pace.Within(reason+" was obeyed", time.Since(since), time.Second); err != nil {
			t.Error(err)
		}
	}

	r, seen := begun("cancelled")
	asked, pace := time.Now(), other.Pace(ctx)
	if _, err := b.Cancel(ctx, r.ID); err != nil {
		t.Fatal(err)
	}
	ended(r, seen, "client_request", asked, pace)

	r, seen = begun("cleared")
	asked, pace = time.Now(), other.Pace(ctx)
	if _, err := b.Clear(ctx, r.SessionID); err != nil {
		t.Fatal(err)
	}
	ended(r, seen, "session_cleared", asked, pace)
	_, events := complete(ctx, t, b, agent.ID, "cleared", enginetest.Script(enginetest.Recall()))
	wantFinished(t, events)

	r, seen = begun("superseded")
	asked, pace = time.Now(), other.Pace(ctx)
	next, err := startIn(t, b, agent.ID, "superseded", "INTERRUPT", enginetest.Script(enginetest.Say("instead")))
	if err != nil {
		t.Fatal(err)
	}
	ended(r, seen, "superseded", asked, pace)
	if events, err = a.Follow(ctx, next.ID, 0); err != nil {
		t.Fatal(err)
	}
	wantFinished(t, events)

	// Asked through one engine and decided through the other, both ways, on one conversation.
	asks := asking(ctx, t, a, scripted, nil)
	for _, on := range [][2]*enginetest.Client{{a, b}, {b, a}} {
		_, q := interrupted(ctx, t, on[0], asks.ID, "talk", scriptedManner.ask("x"))
		_, events := decide(ctx, t, on[1], q, verdict(q, approve))
		wantFinished(t, events)
	}
}

// TestSessionChangesReachTheOther watches through one engine what happens through the other.
func TestSessionChangesReachTheOther(t *testing.T) {
	ctx := bounded(t)
	first := ownEngine(t)
	other := otherEngine(t, first)
	a, b := clientOf(t, first), clientOf(t, other)
	agent := newAgent(ctx, t, a, scripted)
	changes, err := b.WatchChanges(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Close()
	untilSeen(ctx, t, b, agent.ID, changes)
	begin, pace := time.Now(), other.Pace(ctx)
	r := start(ctx, t, a, agent.ID, "talk", enginetest.Script(enginetest.Hang()))
	for {
		talk, err := changes.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if talk.ID == r.SessionID {
			break
		}
	}
	if err := pace.Within("by the poll and not by a hint, the change was seen", time.Since(begin), 2*time.Second); err != nil {
		t.Error(err)
	}
	feed, err := b.WatchSession(ctx, r.SessionID, "")
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	if _, err := a.Cancel(ctx, r.ID); err != nil {
		t.Fatal(err)
	}
	batches, err := feed.Until(ctx, func(batches []enginetest.SessionBatch) bool {
		events := enginetest.Joined(batches)
		return len(events) > 0 && enginetest.Last(events).Terminal()
	})
	if err != nil {
		t.Fatal(err)
	}
	wantReplays(ctx, t, a, r.ID, enginetest.Joined(batches))
}

// TestStoppedEngine stops an engine for longer than its lease and lets it go on: the other one has taken its runs over,
// the log has one whole text, and the engine that came back has cancelled nothing and serves on.
func TestStoppedEngine(t *testing.T) {
	const lease, words, talks = "1s", 60, 4
	ctx := bounded(t)
	first := ownEngineWith(t, enginetest.Options{Args: []string{"--lease", lease}})
	other := otherEngine(t, first, "--lease", lease)
	a, b := clientOf(t, first), clientOf(t, other)
	agent := newAgent(ctx, t, a, scripted)
	var runs [talks]enginetest.Run
	var seen [talks][]enginetest.Event
	for i := range runs {
		runs[i] = start(ctx, t, a, agent.ID, fmt.Sprintf("talk %d", i), enginetest.Script(enginetest.CountHeld(words, 20*time.Millisecond)))
	}
	for i := range runs {
		seen[i] = beforeKill(ctx, t, b, runs[i].ID, 0, 5)
	}
	if err := syscall.Kill(first.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for i := range runs {
		// On a machine that stood still for a lease it may have happened before.
		if len(enginetest.Find(seen[i], enginetest.RunRecovered)) == 0 {
			seen[i] = append(seen[i], untilRecovered(ctx, t, b, runs[i].ID, enginetest.Last(seen[i]).Sequence)...)
		}
	}
	if err := syscall.Kill(first.PID(), syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) { // see below
		t.Fatal(err)
	}
	for i := range runs {
		release(ctx, t, other, runs[i].SessionID)
		rest, err := b.Follow(ctx, runs[i].ID, enginetest.Last(seen[i]).Sequence)
		if err != nil {
			t.Fatal(err)
		}
		events := append(seen[i], rest...)
		if err := enginetest.CheckLog(events); err != nil {
			t.Fatal(err)
		}
		wantFinished(t, events)
		if got, want := enginetest.Text(events), enginetest.Counted(words); got != want {
			t.Fatalf("text is %q, want %q", got, want)
		}
	}
	select {
	case <-first.Exited(): // it was stopped in the middle of a commit, and stood in the way
		if err := first.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		a = clientOf(t, first)
	default:
	}
	for i := range runs {
		log, err := a.Follow(ctx, runs[i].ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		wantReplays(ctx, t, b, runs[i].ID, log)
	}
	_, events := complete(ctx, t, a, agent.ID, "talk 0", enginetest.Script(enginetest.Recall()))
	wantFinished(t, events)
}

func untilRecovered(ctx context.Context, t *testing.T, c *enginetest.Client, runID string, after int64) []enginetest.Event {
	t.Helper()
	w, err := c.Watch(ctx, runID, after)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Cut()
	events, completed, err := w.Until(ctx, func(events []enginetest.Event) bool { return len(enginetest.Find(events, enginetest.RunRecovered)) > 0 })
	if err != nil || completed {
		t.Fatalf("not taken over: %v, %s", err, events)
	}
	return events
}

// TestHandOver ends an engine with SIGTERM: the other takes its runs over at once, and none is cancelled or lost.
func TestHandOver(t *testing.T) {
	const words, talks = 60, 4
	ctx := bounded(t)
	first := ownEngine(t)
	other := otherEngine(t, first)
	a, b := clientOf(t, first), clientOf(t, other)
	agent := newAgent(ctx, t, a, scripted)
	var runs [talks]enginetest.Run
	for i := range runs {
		runs[i] = start(ctx, t, a, agent.ID, fmt.Sprintf("talk %d", i), enginetest.Script(enginetest.CountHeld(words, 20*time.Millisecond)))
	}
	for i := range runs {
		beforeKill(ctx, t, b, runs[i].ID, 0, 5)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- first.Stop() }()
	for i := range runs {
		untilRecovered(ctx, t, b, runs[i].ID, 0)
		release(ctx, t, other, runs[i].SessionID)
		events, err := b.Follow(ctx, runs[i].ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := enginetest.CheckLog(events); err != nil {
			t.Fatal(err)
		}
		wantFinished(t, events)
		if got, want := enginetest.Text(events), enginetest.Counted(words); got != want {
			t.Fatalf("text is %q, want %q", got, want)
		}
		if len(enginetest.Find(events, enginetest.RunRecovered)) != 1 {
			t.Fatalf("the run was not handed over once: %s", events)
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
