package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// undecided is a way in which a question is given up but by a decision.
type undecided struct {
	name, status string
	giveUp       func(t *testing.T, c *enginetest.Client, agentID string, q enginetest.Interrupt, sessionID string, m manner)
	cleared      bool
}

// TestUndecided gives up a question in each way that needs no waiting. The call is never made, a decision comes too late
// and is told why, and the conversation goes on.
func TestUndecided(t *testing.T) {
	cases := []undecided{
		{
			name: "dismiss", status: "DISMISSED",
			giveUp: func(t *testing.T, c *enginetest.Client, _ string, q enginetest.Interrupt, _ string, _ manner) {
				for range 2 { // it is idempotent
					if r, err := c.Resume(t.Context(), q, enginetest.Decision{Dismiss: true}); err != nil || r != nil {
						t.Fatalf("a dismissal gives %+v (%v), want no run", r, err)
					}
				}
			},
		},
		{
			name: "another run", status: "SUPERSEDED",
			giveUp: func(t *testing.T, c *enginetest.Client, agentID string, _ enginetest.Interrupt, _ string, m manner) {
				_, events := complete(bounded(t), t, c, agentID, "talk", m.say("never mind"))
				wantFinished(t, events)
			},
		},
		{
			name: "clear", status: "CLEARED", cleared: true,
			giveUp: func(t *testing.T, c *enginetest.Client, _ string, _ enginetest.Interrupt, sessionID string, _ manner) {
				if s, err := c.Clear(t.Context(), sessionID); err != nil || s.Epoch != 2 {
					t.Fatalf("a clear gives %+v (%v), want epoch 2", s, err)
				}
			},
		},
	}
	onEach(t, nil, func(t *testing.T, m manner) {
		agent := asking(bounded(t), t, clientOf(t, sharedEngine(t)), m.harness, nil)
		for _, tc := range cases {
			t.Run(tc.name, func(t *testing.T) { tc.play(t, m, agent) })
		}
	})
}

// TestDeadline lets the agent's own limit pass.
func TestDeadline(t *testing.T) {
	tc := undecided{
		name: "deadline", status: "EXPIRED",
		giveUp: func(t *testing.T, c *enginetest.Client, _ string, q enginetest.Interrupt, sessionID string, _ manner) {
			if left := time.Until(*q.Deadline); left > 11*time.Second {
				t.Fatalf("there are %s left, want the agent's 10 seconds", left)
			}
			if _, err := c.AwaitStatus(bounded(t), sessionID, enginetest.SessionIdle); err != nil {
				t.Fatal(err)
			}
			if time.Now().Before(*q.Deadline) {
				t.Fatalf("the question is given up %s before its deadline", time.Until(*q.Deadline))
			}
		},
	}
	onEach(t, nil, func(t *testing.T, m manner) {
		t.Parallel() // it waits
		agent := asking(bounded(t), t, clientOf(t, sharedEngine(t)), m.harness, &enginetest.Limits{InterruptSeconds: 10})
		tc.play(t, m, agent)
	})
}

func (u undecided) play(t *testing.T, m manner, agent enginetest.Agent) {
	t.Helper()
	ctx := bounded(t)
	engine := sharedEngine(t)
	c := clientOf(t, engine)
	file := fmt.Sprintf("undecided-%d.md", names.Add(1))
	first, q := interrupted(ctx, t, c, agent.ID, "talk", m.ask(file))
	u.giveUp(t, c, agent.ID, q, first.SessionID, m)
	wantIdle(ctx, t, c, first.SessionID)
	wantInterrupt(ctx, t, c, first.ID, u.status, "")
	_, err := c.Resume(ctx, q, verdict(q, approve))
	wantConflict(t, err, u.status)

	next, events := complete(ctx, t, c, agent.ID, "talk", m.recall)
	wantFinished(t, events)
	if next.SessionID != first.SessionID {
		t.Fatalf("the next run is of session %s, want %s", next.SessionID, first.SessionID)
	}
	if got := strings.Contains(enginetest.Text(events), file); got == u.cleared {
		t.Fatalf("the next turn says %q: it must know of the question unless the conversation was cleared", enginetest.Text(events))
	}
	m.wantFile(t, engine, first.SessionID, file, "")
}

// TestDeadlineOfTheOperator lets a question lapse by the operator's limit, also while no engine runs.
func TestDeadlineOfTheOperator(t *testing.T) {
	ctx := bounded(t)
	const limit = 3 * time.Second
	engine := ownEngineWith(t, enginetest.Options{Args: []string{"--interrupt-deadline", limit.String()}})
	c := clientOf(t, engine)
	agent := asking(ctx, t, c, scripted, nil)
	lapsed, q := interrupted(ctx, t, c, agent.ID, "one", scriptedManner.ask("one.md"))
	if left := time.Until(*q.Deadline); left > limit {
		t.Fatalf("there are %s left, want at most %s", left, limit)
	}
	wantIdle(ctx, t, c, lapsed.SessionID)
	wantInterrupt(ctx, t, c, lapsed.ID, "EXPIRED", "")

	var down enginetest.Run
	var late enginetest.Interrupt
	for inTime := false; !inTime; { // to kill the engine before the deadline, which a slow machine may miss
		down, late = interrupted(ctx, t, c, agent.ID, "two", scriptedManner.ask("two.md"))
		engine.Kill()
		inTime = time.Now().Before(*late.Deadline)
		time.Sleep(time.Until(*late.Deadline) + 100*time.Millisecond) // nobody is there to be asked
		if err := engine.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		c = clientOf(t, engine)
	}
	wantIdle(ctx, t, c, down.SessionID)
	wantInterrupt(ctx, t, c, down.ID, "EXPIRED", "")
	_, err := c.Resume(ctx, late, verdict(late, approve))
	wantConflict(t, err, "EXPIRED")
}
