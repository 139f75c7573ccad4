package e2e

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/worker/procfs"
)

// TestInterruptOutlives kills what it takes while a question waits: the worker, the engine, both. Where the harness keeps
// its questions the decision goes on from it; where it does not, the decision's run says that the question was lost, and
// the conversation goes on.
func TestInterruptOutlives(t *testing.T) {
	cases := []struct {
		name           string
		worker, engine bool
		stop           bool // the engine is asked to end, and not killed
		elsewhere      bool // the next worker finds nothing on its host
	}{
		{name: "worker", worker: true},
		{name: "engine", engine: true},
		{name: "shutdown", engine: true, stop: true},
		{name: "host", worker: true, engine: true, elsewhere: true},
	}
	onEach(t, nil, func(t *testing.T, m manner) {
		for _, tc := range cases {
			t.Run(tc.name, func(t *testing.T) {
				ctx := bounded(t)
				engine := ownEngine(t)
				c := clientOf(t, engine)
				agent := asking(ctx, t, c, m.harness, nil)
				_, events := complete(ctx, t, c, agent.ID, "talk", m.say("note-one"))
				wantFinished(t, events)
				first, q := interrupted(ctx, t, c, agent.ID, "talk", m.ask("later.md"))
				before, err := c.Log(ctx, first.ID, 0)
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case tc.stop:
					if err := engine.Stop(); err != nil {
						t.Fatal(err)
					}
				case tc.engine:
					engine.Kill()
				}
				if tc.worker {
					if n, err := engine.KillWorkers(ctx); err != nil || n != 1 {
						t.Fatalf("killed %d workers (%v), want the one that asked", n, err)
					}
				}
				if tc.elsewhere {
					if err := engine.LoseHost(first.SessionID); err != nil {
						t.Fatal(err)
					}
				}
				if tc.engine {
					if err := engine.Restart(ctx); err != nil {
						t.Fatal(err)
					}
					c = clientOf(t, engine)
				}
				wantReplays(ctx, t, c, first.ID, before)
				if talk, err := c.Talk(ctx, first.SessionID); err != nil || talk.Status != enginetest.SessionInterrupted || talk.Pending == nil || !same(*talk.Pending, q) {
					t.Fatalf("afterwards the session is %+v with %+v (%v), want it to wait as before", talk, talk.Pending, err)
				}

				second, events := decide(ctx, t, c, q, verdict(q, approve))
				call := q.Calls[0].ToolCallID
				if end := enginetest.Last(events); tc.worker && !m.survives {
					if end.Type != enginetest.RunFailed || end.Failure.Code != "interrupt_lost" {
						t.Fatalf("the decision's run ends with %s, want the error interrupt_lost", end)
					}
					if n := len(enginetest.Find(events, enginetest.ToolFinished)); n != 0 {
						t.Fatalf("%d calls are said to have returned: %v", n, events)
					}
					m.wantFile(t, engine, first.SessionID, "later.md", "")
				} else {
					wantFinished(t, events)
					wantCallEnded(t, events, call, enginetest.ToolFinished)
					m.wantFile(t, engine, first.SessionID, "later.md", "kept words")
				}
				wantIdle(ctx, t, c, first.SessionID)
				wantInterrupt(ctx, t, c, first.ID, "RESUMED", second.ID)

				_, events = complete(ctx, t, c, agent.ID, "talk", m.recall)
				wantFinished(t, events)
				wantRemembered(t, events, []string{"note-one", "later.md"}, nil)
			})
		}
	})
}

// TestInterruptOutlivesIdleness lets idle workers go while a question waits: one whose question would be lost with it
// stays, and the decision goes on in each case.
func TestInterruptOutlivesIdleness(t *testing.T) {
	onEach(t, nil, func(t *testing.T, m manner) {
		ctx := bounded(t)
		engine := ownEngineWith(t, enginetest.Options{Args: []string{"--idle-worker", "100ms"}})
		c := clientOf(t, engine)
		agent := asking(ctx, t, c, m.harness, nil)
		first, q := interrupted(ctx, t, c, agent.ID, "talk", m.ask("idle.md"))
		// A conversation that was at work later has lost its worker: then the time of the other one's is over too.
		_, events := complete(ctx, t, c, newAgent(ctx, t, c, scripted).ID, "", "hello")
		wantFinished(t, events)
		left := 0
		if !m.survives {
			left = 1
		}
		if _, err := engine.AwaitTraces(ctx, func([]procfs.Process) bool {
			workers, err := engine.Workers()
			return err == nil && len(workers) <= left
		}); err != nil {
			t.Fatal(err)
		}
		if workers, err := engine.Workers(); err != nil || len(workers) != left {
			t.Fatalf("%d workers are left (%v), want %d", len(workers), err, left)
		}
		_, events = decide(ctx, t, c, q, verdict(q, approve))
		wantFinished(t, events)
		m.wantFile(t, engine, first.SessionID, "idle.md", "kept words")
	})
}

// TestThousandDecisions takes a thousand decisions on one question at once, of three kinds: there is one run, whose
// decision is of one kind, and all others of that kind get it too.
func TestThousandDecisions(t *testing.T) {
	const callers = 1000
	ctx := bounded(t)
	engine := sharedEngine(t)
	c := clientAs(t, engine, "decider")
	agent := asking(ctx, t, c, scripted, nil)
	first, q := interrupted(ctx, t, c, agent.ID, "talk", scriptedManner.ask("contested.md"))
	decisions := []enginetest.Decision{
		verdict(q, approve), verdict(q, edit(scriptedManner.arguments("contested.md", "edited words"))), verdict(q, reject("No.")),
	}
	var (
		wg   sync.WaitGroup
		runs [callers]*enginetest.Run
		errs [callers]error
		gate = make(chan struct{})

		repeated atomic.Int64
	)
	for i := range callers {
		wg.Go(func() {
			<-gate
			runs[i], errs[i] = c.Resume(ctx, q, decisions[i%len(decisions)])
			for ; enginetest.Code(errs[i]) == "AUTHORIZATION_UNAVAILABLE"; repeated.Add(1) { // an engine that is asked too much at once says so
				runs[i], errs[i] = c.Resume(ctx, q, decisions[i%len(decisions)])
			}
		})
	}
	close(gate)
	wg.Wait()
	won, taken := "", -1
	for i, r := range runs {
		if errs[i] == nil && r != nil {
			won, taken = r.ID, i%len(decisions)
		}
	}
	if won == "" {
		t.Fatalf("no decision was taken: %v", errs[0])
	}
	counts := map[string]int{}
	for i := range callers {
		var refused *enginetest.Refusal
		switch {
		case i%len(decisions) == taken && errs[i] == nil && runs[i].ID == won:
			counts["run"]++
		case i%len(decisions) != taken && errors.As(errs[i], &refused) && refused.Code == "INTERRUPT_CONFLICT" && refused.Status == "RESUMED":
			counts["conflict"]++
		default:
			counts[fmt.Sprintf("decision %d, where %d was taken: %+v %v", i%len(decisions), taken, runs[i], errs[i])]++
		}
	}
	if counts["run"]+counts["conflict"] != callers {
		t.Fatalf("outcomes: %v", counts)
	}
	events, err := c.Follow(ctx, won, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := enginetest.CheckLog(events); err != nil {
		t.Fatal(err)
	}
	wantFinished(t, events)
	wantIdle(ctx, t, c, first.SessionID)
	if n, err := c.Counts(ctx); err != nil || n.Runs != 2 {
		t.Fatalf("there are %+v (%v), want two runs", n, err)
	}
	t.Logf("%d decisions: %d got the run, %d were refused; %d had to be repeated", callers, counts["run"], counts["conflict"], repeated.Load())
}
