package e2e

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// TestIdempotencyKey starts the same run many times at once under one key: there is one run. Another request under the
// key is refused and starts nothing.
func TestIdempotencyKey(t *testing.T) {
	ctx := bounded(t)
	engine := sharedEngine(t)
	c := clientAs(t, engine, "idempotent")
	agent := newAgent(ctx, t, c, scripted)
	in := enginetest.StartInput{AgentID: agent.ID, ConversationID: "talk", Message: enginetest.Input{Text: "hello"}, IdempotencyKey: "key-1"}

	const callers = 8
	var (
		wg   sync.WaitGroup
		runs [callers]enginetest.Run
		errs [callers]error
	)
	for i := range callers {
		wg.Go(func() { runs[i], errs[i] = c.Start(ctx, in) })
	}
	wg.Wait()
	for i := range callers {
		if errs[i] != nil || runs[i].ID != runs[0].ID {
			t.Fatalf("caller %d got run %q (%v), caller 0 got %q", i, runs[i].ID, errs[i], runs[0].ID)
		}
	}
	if _, err := c.Follow(ctx, runs[0].ID, 0); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Start(ctx, in); err != nil || r.ID != runs[0].ID {
		t.Fatalf("after its end the key gives run %q (%v), want %q", r.ID, err, runs[0].ID)
	}

	for name, change := range map[string]func(*enginetest.StartInput){
		"text":         func(in *enginetest.StartInput) { in.Message.Text = "goodbye" },
		"conversation": func(in *enginetest.StartInput) { in.ConversationID = "another talk" },
	} {
		other := in
		change(&other)
		_, err := c.Start(ctx, other)
		var refused *enginetest.Refusal
		if !errors.As(err, &refused) || refused.Type != "IdempotencyConflict" || refused.Code != "IDEMPOTENCY_CONFLICT" {
			t.Errorf("another %s under the key gives %v, want IdempotencyConflict", name, err)
		}
	}
	if n, err := c.Counts(ctx); err != nil || n.Runs != 1 {
		t.Fatalf("there are %+v (%v), want one run", n, err)
	}
}

// TestOneRunAtATime refuses a second run of a busy conversation, names the first, and accepts it afterwards.
func TestOneRunAtATime(t *testing.T) {
	ctx := bounded(t)
	c := clientOf(t, sharedEngine(t))
	agent := newAgent(ctx, t, c, scripted)
	first := start(ctx, t, c, agent.ID, "talk", enginetest.Script(enginetest.Hang()))
	in := enginetest.StartInput{AgentID: agent.ID, ConversationID: "talk", Message: enginetest.Input{Text: "hello"}}

	_, err := c.Start(ctx, in)
	var refused *enginetest.Refusal
	if !errors.As(err, &refused) || refused.Type != "SessionBusy" || refused.ActiveRunID != first.ID {
		t.Fatalf("a second start gives %v (%+v), want SessionBusy with run %s", err, refused, first.ID)
	}
	if _, err := c.Cancel(ctx, first.ID); err != nil {
		t.Fatal(err)
	}
	events, err := c.Follow(ctx, first.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if end := enginetest.Last(events); end.Type != enginetest.RunCancelled {
		t.Fatalf("the first run ended with %s", end)
	}
	if _, err := c.Free(ctx, first.SessionID); err != nil {
		t.Fatal(err)
	}
	_, events = complete(ctx, t, c, agent.ID, "talk", "hello")
	wantFinished(t, events)
}

// TestNextStartOnTerminal starts the next run of a conversation the moment that the terminal event of the last one
// arrives, as a chat does whose user types ahead. The schema says that a run is in the way until it has ended, and by
// its log it has.
func TestNextStartOnTerminal(t *testing.T) {
	ctx := bounded(t)
	c := clientOf(t, sharedEngine(t))
	agent := newAgent(ctx, t, c, scripted)
	for turn := range 20 {
		r, err := c.Start(ctx, enginetest.StartInput{AgentID: agent.ID, ConversationID: "talk", Message: enginetest.Input{Text: "hello"}})
		if err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
		w, err := c.Watch(ctx, r.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		events, _, err := w.Until(ctx, func(events []enginetest.Event) bool { return enginetest.Last(events).Terminal() })
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		wantFinished(t, events)
	}
}

// TestConversationKeepsVersion edits an agent in mid-conversation: the conversation stays on the version that it
// began with, a new one gets the new version, and so does the old one after a clear.
func TestConversationKeepsVersion(t *testing.T) {
	ctx := bounded(t)
	c := clientOf(t, sharedEngine(t))
	agent := newAgent(ctx, t, c, scripted)
	first, _ := complete(ctx, t, c, agent.ID, "old talk", "hello")
	if first.AgentVersion != agent.Version {
		t.Fatalf("the first run has version %d, want %d", first.AgentVersion, agent.Version)
	}
	edited, err := c.Save(ctx, enginetest.SaveInput{AgentID: agent.ID, ExpectedRevision: agent.Revision, Draft: enginetest.Draft{
		Name: "edited", Slug: agent.Slug, Harness: &enginetest.HarnessChoice{ID: scripted}, Prompt: &enginetest.Prompt{System: "Be brief."},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if edited.Version <= agent.Version {
		t.Fatalf("the edit made version %d after %d", edited.Version, agent.Version)
	}
	for _, step := range []struct {
		name, conversation string
		clear              bool
		want               int64
	}{
		{"old conversation", "old talk", false, agent.Version},
		{"new conversation", "new talk", false, edited.Version},
		{"old conversation after a clear", "old talk", true, edited.Version},
	} {
		if step.clear {
			if s, err := c.Clear(ctx, first.SessionID); err != nil || s.Epoch != 2 {
				t.Fatalf("clear gives %+v (%v), want epoch 2", s, err)
			}
		}
		r, events := complete(ctx, t, c, agent.ID, step.conversation, "hello")
		wantFinished(t, events)
		if r.AgentVersion != step.want || events[0].AgentVersion != step.want {
			t.Errorf("%s: the run has version %d and its log says %d, want %d", step.name, r.AgentVersion, events[0].AgentVersion, step.want)
		}
	}
	// A draft made from the revision before the edit is refused.
	_, err = c.Save(ctx, enginetest.SaveInput{AgentID: agent.ID, ExpectedRevision: agent.Revision, Draft: enginetest.Draft{Name: "late", Slug: agent.Slug}})
	var refused *enginetest.Refusal
	if !errors.As(err, &refused) || refused.Type != "RevisionConflict" || refused.CurrentRevision != edited.Revision {
		t.Fatalf("a late save gives %v (%+v), want RevisionConflict at %d", err, refused, edited.Revision)
	}
}

// TestClearEndsActiveRun clears a conversation in mid-run: the run ends for that reason, and the next one begins a new
// epoch.
func TestClearEndsActiveRun(t *testing.T) {
	ctx := bounded(t)
	c := clientOf(t, sharedEngine(t))
	agent := newAgent(ctx, t, c, scripted)
	r := start(ctx, t, c, agent.ID, "talk", enginetest.Script(enginetest.Count(5, 10*time.Millisecond), enginetest.Hang()))
	beforeKill(ctx, t, c, r.ID, 0, 5)
	if _, err := c.Clear(ctx, r.SessionID); err != nil {
		t.Fatal(err)
	}
	events, err := c.Follow(ctx, r.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if end := enginetest.Last(events); end.Type != enginetest.RunCancelled || end.Reason != "session_cleared" {
		t.Fatalf("the run ended with %s, want a cancel by the clear", end)
	}
	if _, err := c.Free(ctx, r.SessionID); err != nil {
		t.Fatal(err)
	}
	next, events := complete(ctx, t, c, agent.ID, "talk", "hello")
	wantFinished(t, events)
	s, err := c.Session(ctx, r.SessionID)
	if err != nil || next.SessionID != r.SessionID || s.Epoch != 2 || len(s.Runs.Nodes()) != 1 {
		t.Fatalf("after the clear the session is %+v (%v), want epoch 2 with one run", s, err)
	}
}
