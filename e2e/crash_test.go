package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// crashSeed makes the moments of the kills the same in each test run, as far as the machine does.
const crashSeed = 11

// crashRounds are how often each harness is killed; a round of a real one takes seconds.
var crashRounds = map[string]int{scripted: 12, deepagents: 4, claudeAgentSDK: 3}

// TestKilledAtQuestion kills the engine, the worker, or both, at a random moment around a question. Either the run is
// interrupted, and can be decided, or its end is uncertain, and nothing waits; in both cases the conversation goes on.
func TestKilledAtQuestion(t *testing.T) {
	onEach(t, nil, func(t *testing.T, m manner) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*caseTimeout)
		defer cancel()
		random := rand.New(rand.NewPCG(crashSeed, 1))
		engine := ownEngine(t)
		c := clientOf(t, engine)
		agent := asking(ctx, t, c, m.harness, nil)
		ends := map[string]int{}
		for round := range crashRounds[m.harness] {
			file := fmt.Sprintf("question-%d.md", round)
			text := m.ask(file)
			if m.harness == scripted { // which else is too quick to be hit
				hold := enginetest.HoldEnd(time.Duration(1+random.IntN(40)) * time.Millisecond)
				text = enginetest.Script(hold, enginetest.Ask("/"+file), enginetest.Say("done"))
			}
			r := start(ctx, t, c, agent.ID, "talk", text)
			awaitEvent(ctx, t, c, r.ID, enginetest.ToolStarted)
			time.Sleep(time.Duration(random.IntN(30_000)) * time.Microsecond) // where the kill hits
			victim := random.IntN(3)
			if victim != 0 {
				engine.Kill()
			}
			if victim != 1 {
				if _, err := engine.KillWorkers(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if victim != 0 {
				if err := engine.Restart(ctx); err != nil {
					t.Fatal(err)
				}
				c = clientOf(t, engine)
			}
			events, err := c.Follow(ctx, r.ID, 0)
			if err != nil {
				t.Fatal(err)
			}
			end := enginetest.Last(events)
			ends[end.Type]++
			switch end.Type {
			case enginetest.RunInterrupted:
				q := awaitQuestion(ctx, t, c, r)
				_, events := decide(ctx, t, c, q, verdict(q, approve))
				if end := enginetest.Last(events); !m.survives && victim != 1 {
					if end.Type != enginetest.RunFailed || end.Failure.Code != "interrupt_lost" {
						t.Fatalf("round %d: the decision's run ends with %s, want interrupt_lost", round, end)
					}
				} else {
					wantFinished(t, events)
					wantCallEnded(t, events, q.Calls[0].ToolCallID, enginetest.ToolFinished)
					m.wantFile(t, engine, r.SessionID, file, "kept words")
				}
			case enginetest.RunFailed:
				if end.Failure.Code != "thread_durability_uncertain" || end.Thread.Durability != "UNCERTAIN" {
					t.Fatalf("round %d: the run ends with %s", round, end)
				}
				m.wantFile(t, engine, r.SessionID, file, "")
			default:
				t.Fatalf("round %d: the run ends with %s, want a question or an uncertain end; its log: %s", round, end, events)
			}
			wantIdle(ctx, t, c, r.SessionID)
		}
		_, events := complete(ctx, t, c, agent.ID, "talk", m.say("note-last"))
		wantFinished(t, events)
		t.Logf("seed %d: %v", crashSeed, ends)
	})
}

// TestKilledAtDecision kills the engine at a random moment while a decision is taken. The client cannot know whether it
// was, and repeats it: there is one run for it, whichever of the two got it, and another decision is refused.
func TestKilledAtDecision(t *testing.T) {
	onEach(t, nil, func(t *testing.T, m manner) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*caseTimeout)
		defer cancel()
		random := rand.New(rand.NewPCG(crashSeed, 2))
		engine := ownEngine(t)
		c := clientOf(t, engine)
		agent := asking(ctx, t, c, m.harness, nil)
		answered, runs := 0, 0
		for round := range crashRounds[m.harness] {
			file := fmt.Sprintf("decision-%d.md", round)
			first, q := interrupted(ctx, t, c, agent.ID, "talk", m.ask(file))
			type answer struct {
				run *enginetest.Run
				err error
			}
			early := make(chan answer, 1)
			asking := c
			go func() {
				r, err := asking.Resume(ctx, q, verdict(q, approve))
				early <- answer{r, err}
			}()
			time.Sleep(time.Duration(random.IntN(12_000)) * time.Microsecond) // where the kill hits
			engine.Kill()
			a := <-early
			if err := engine.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			c = clientOf(t, engine)
			second, events := decide(ctx, t, c, q, verdict(q, approve))
			switch {
			case a.err == nil && a.run.ID != second.ID:
				t.Fatalf("round %d: the decision gave run %s, and repeated it gives %s", round, a.run.ID, second.ID)
			case a.err == nil:
				answered++
			case !errors.Is(a.err, enginetest.ErrCut):
				t.Fatalf("round %d: the killed engine answered %v", round, a.err)
			}
			// A model call of the run that goes on, where it has begun, passes through the engine and goes with it.
			if end := enginetest.Last(events); !m.acts || end.Type != enginetest.RunFailed || end.Failure.Category != "unavailable" {
				wantFinished(t, events)
			}
			wantCallEnded(t, events, q.Calls[0].ToolCallID, enginetest.ToolFinished)
			m.wantFile(t, engine, first.SessionID, file, "kept words")
			_, err := c.Resume(ctx, q, verdict(q, reject("No.")))
			wantConflict(t, err, "RESUMED")
			wantIdle(ctx, t, c, first.SessionID)
			wantInterrupt(ctx, t, c, first.ID, "RESUMED", second.ID)
			runs += 2
			s, err := c.Session(ctx, first.SessionID)
			if err != nil || len(s.Runs.Nodes()) != runs {
				t.Fatalf("round %d: the session has the runs %+v (%v), want %d", round, s.Runs.Nodes(), err, runs)
			}
		}
		t.Logf("seed %d: %d of %d decisions were answered before the kill", crashSeed, answered, runs/2)
	})
}
