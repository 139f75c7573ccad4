package e2e

import (
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// TestMemorySurvivesWorker kills the worker of a conversation between two turns, with everything below it: the next
// turn gets a new worker, which remembers what was said.
func TestMemorySurvivesWorker(t *testing.T) {
	cases := []struct{ harness, first, second string }{
		{deepagents, "The password is swordfish. [[text 2]]", "[[recall]]"},
		{scripted, "The password is swordfish.", enginetest.Script(enginetest.Recall())},
	}
	for _, c := range cases {
		t.Run(c.harness, func(t *testing.T) {
			ctx := bounded(t)
			engine := ownEngine(t)
			client := clientOf(t, engine)
			agent := newAgent(ctx, t, client, c.harness)

			first, events := complete(ctx, t, client, agent.ID, "talk", c.first)
			wantFinished(t, events)
			if end := enginetest.Last(events); end.Thread == nil || end.Thread.Durability != "COMMITTED" {
				t.Fatalf("the first turn ended with %s, want thread durability COMMITTED", end)
			}
			if n, err := engine.KillWorkers(ctx); err != nil || n != 1 {
				t.Fatalf("killed %d workers (%v), want 1", n, err)
			}
			second, events := complete(ctx, t, client, agent.ID, "talk", c.second)
			wantFinished(t, events)
			if got := enginetest.Text(events); !strings.Contains(got, "swordfish") {
				t.Fatalf("the second turn says %q, it does not remember the first", got)
			}
			if events[0].SandboxGeneration < 2 {
				t.Fatalf("the second turn began with %s, want a new worker generation", events[0])
			}
			wantMessages(t, client, second.SessionID, []string{first.ID, second.ID})

			// What was forgotten on purpose stays forgotten.
			if _, err := client.Clear(ctx, second.SessionID); err != nil {
				t.Fatal(err)
			}
			_, events = complete(ctx, t, client, agent.ID, "talk", c.second)
			wantFinished(t, events)
			if got := enginetest.Text(events); strings.Contains(got, "swordfish") {
				t.Fatalf("after a clear the agent says %q: it still remembers", got)
			}
		})
	}
}

// wantMessages checks that the conversation's transcript has a word of each side for each run, in order.
func wantMessages(t *testing.T, c *enginetest.Client, sessionID string, runs []string) {
	t.Helper()
	s, err := c.Session(t.Context(), sessionID)
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, r := range runs {
		want = append(want, r+" USER", r+" ASSISTANT")
	}
	for _, m := range s.Messages.Nodes() {
		got = append(got, m.RunID+" "+m.Role)
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Fatalf("the transcript has %v, want %v", got, want)
	}
}
