package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// wantRemembered checks what a turn of recall says: each of these notes, in this order, and none of those.
func wantRemembered(t *testing.T, events []enginetest.Event, notes, none []string) {
	t.Helper()
	said := enginetest.Text(events)
	at := 0
	for _, n := range notes {
		i := strings.Index(said[at:], n)
		if i < 0 {
			t.Fatalf("the agent recalls %q; %s is missing or out of order", said, n)
		}
		at += i + len(n)
	}
	for _, n := range none {
		if strings.Contains(said, n) {
			t.Fatalf("the agent recalls %q; %s was never committed", said, n)
		}
	}
}

// wantCommitted fails unless the run's thread is committed at the revision.
func wantCommitted(t *testing.T, events []enginetest.Event, revision int64) {
	t.Helper()
	wantFinished(t, events)
	if end := enginetest.Last(events); end.Thread.Durability != "COMMITTED" || end.Thread.Revision == nil || *end.Thread.Revision != revision {
		t.Fatalf("the run ends with %s, want its thread committed at revision %d", end, revision)
	}
}

// TestConversationMoves tells a secret, and then lets each turn have another worker that finds nothing on its host: what
// the conversation knows comes from where the engine keeps it.
func TestConversationMoves(t *testing.T) {
	onEach(t, nil, func(t *testing.T, m manner) {
		ctx := bounded(t)
		engine := ownEngine(t)
		c := clientOf(t, engine)
		agent := newAgent(ctx, t, c, m.harness)
		first, events := complete(ctx, t, c, agent.ID, "talk", m.say("note-one: the password is swordfish."))
		wantCommitted(t, events, 1)
		for turn := int64(2); turn <= 3; turn++ {
			if n, err := engine.KillWorkers(ctx); err != nil || n != 1 {
				t.Fatalf("killed %d workers (%v), want 1", n, err)
			}
			if err := engine.LoseHost(first.SessionID); err != nil {
				t.Fatal(err)
			}
			_, events = complete(ctx, t, c, agent.ID, "talk", m.recall)
			wantCommitted(t, events, turn)
			wantRemembered(t, events, []string{"note-one", "swordfish"}, nil)
			if events[0].SandboxGeneration < turn {
				t.Fatalf("turn %d began with %s, want a new worker generation", turn, events[0])
			}
		}
		// What was forgotten on purpose stays forgotten, wherever the next worker is.
		if _, err := c.Clear(ctx, first.SessionID); err != nil {
			t.Fatal(err)
		}
		_, events = complete(ctx, t, c, agent.ID, "talk", m.recall)
		wantCommitted(t, events, 1)
		wantRemembered(t, events, nil, []string{"swordfish"})
	})
}

// TestOldStatesGo plays many turns: what the engine keeps of the thread does not grow with them, and goes with a clear.
func TestOldStatesGo(t *testing.T) {
	ctx := bounded(t)
	engine := ownEngine(t)
	c := clientOf(t, engine)
	agent := newAgent(ctx, t, c, scripted)
	states := func() int {
		t.Helper()
		n := 0
		err := filepath.WalkDir(filepath.Join(engine.Data(), "blobs"), func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && !strings.Contains(d.Name(), ".") { // a state is named by its hash
				n++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := states()
	var r enginetest.Run
	for turn := range 6 {
		var events []enginetest.Event
		r, events = complete(ctx, t, c, agent.ID, "talk", scriptedManner.say(fmt.Sprint("note ", turn)))
		wantCommitted(t, events, int64(turn+1))
		wantStates(ctx, t, fmt.Sprintf("after turn %d", turn+1), 1, 2, func() int { return states() - before })
	}
	if _, err := c.Clear(ctx, r.SessionID); err != nil {
		t.Fatal(err)
	}
	wantStates(ctx, t, "after a clear", 0, 0, func() int { return states() - before })
}

// wantStates waits until there are so many states; older ones go soon, and beside what is answered.
func wantStates(ctx context.Context, t *testing.T, when string, least, most int, states func() int) {
	t.Helper()
	for {
		n := states()
		if n >= least && n <= most {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s the engine keeps %d states, want %d to %d", when, n, least, most)
		}
	}
}

// TestLostTurnLeavesNothing kills the worker in mid-turn, first in the conversation's first turn: the run is said to be
// uncertain, and the next turn knows the committed turns and nothing of the lost one.
func TestLostTurnLeavesNothing(t *testing.T) {
	onEach(t, nil, func(t *testing.T, m manner) {
		ctx := bounded(t)
		engine := ownEngine(t)
		c := clientOf(t, engine)
		agent := newAgent(ctx, t, c, m.harness)
		var kept, lost []string
		lose := func(turn int) {
			note := fmt.Sprintf("note-lost-%d", turn)
			r := start(ctx, t, c, agent.ID, "talk", m.slow(note))
			seen := beforeKill(ctx, t, c, r.ID, 0, 5)
			if n, err := engine.KillWorkers(ctx); err != nil || n != 1 {
				t.Fatalf("killed %d workers (%v), want 1", n, err)
			}
			rest, err := c.Follow(ctx, r.ID, enginetest.Last(seen).Sequence)
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, rest...)
			if err := enginetest.CheckLog(seen); err != nil {
				t.Fatal(err)
			}
			end := enginetest.Last(seen)
			if end.Type != enginetest.RunFailed || end.Failure.Code != "thread_durability_uncertain" || end.Thread.Durability != "UNCERTAIN" {
				t.Fatalf("the lost run ends with %s, want thread_durability_uncertain", end)
			}
			if _, err := c.Free(ctx, r.SessionID); err != nil {
				t.Fatal(err)
			}
			lost = append(lost, note)
		}
		lose(0)
		for turn := 1; turn <= 2; turn++ {
			note := fmt.Sprintf("note-kept-%d", turn)
			_, events := complete(ctx, t, c, agent.ID, "talk", m.say(note))
			wantFinished(t, events)
			kept = append(kept, note)
			lose(turn)
			_, events = complete(ctx, t, c, agent.ID, "talk", m.recall)
			wantFinished(t, events)
			wantRemembered(t, events, kept, lost)
		}
	})
}

// TestTurnEndSteps stops the end of a turn at a step that a script can hold on to: the state that cannot be packed, a
// worker that dies before it has packed, an engine that dies before it has asked. Only where the thread is said to be
// committed does the next turn know of it.
func TestTurnEndSteps(t *testing.T) {
	cases := []struct {
		name           string
		unpackable     bool
		worker, engine bool // what is killed when all text has been seen
		committed      bool
	}{
		{name: "state cannot be packed", unpackable: true},
		{name: "worker dies before it packs", worker: true},
		{name: "engine dies before it asks", engine: true, committed: true},
		{name: "both die", engine: true, worker: true},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			ctx := bounded(t)
			engine := ownEngine(t)
			c := clientOf(t, engine)
			agent := newAgent(ctx, t, c, scripted)
			_, events := complete(ctx, t, c, agent.ID, "talk", scriptedManner.say("note-one"))
			wantCommitted(t, events, 1)
			kept := []string{"note-one"}
			var lost []string
			for hold := 2 * time.Second; ; hold = min(2*hold, maxHold) {
				note := fmt.Sprintf("note-held-%d", len(kept))
				text := enginetest.Script(enginetest.HoldEnd(hold), enginetest.Say(note))
				if tc.unpackable {
					text = enginetest.Script(enginetest.FailSnapshot(), enginetest.Say(note))
				}
				r := start(ctx, t, c, agent.ID, "talk", text)
				awaitEvent(ctx, t, c, r.ID, enginetest.TextFinished)
				killed := time.Now()
				if tc.engine {
					engine.Kill()
				}
				if tc.worker {
					if n, err := engine.KillWorkers(ctx); err != nil || n != 1 {
						t.Fatalf("killed %d workers (%v), want 1", n, err)
					}
				}
				if tc.engine {
					if err := engine.Restart(ctx); err != nil {
						t.Fatal(err)
					}
					c = clientOf(t, engine)
				}
				events, err := c.Follow(ctx, r.ID, 0)
				if err != nil {
					t.Fatal(err)
				}
				if err := enginetest.CheckLog(events); err != nil {
					t.Fatal(err)
				}
				if _, err := c.Free(ctx, r.SessionID); err != nil {
					t.Fatal(err)
				}
				end := enginetest.Last(events)
				if tc.worker && end.Time.Before(killed) {
					t.Logf("the turn had ended %s before the kill: the machine is slow, so once more", killed.Sub(end.Time))
					wantCommitted(t, events, int64(len(kept)+1))
					kept = append(kept, note)
					continue
				}
				if tc.committed {
					wantCommitted(t, events, 2)
					kept = append(kept, note)
				} else if lost = append(lost, note); end.Type != enginetest.RunFailed || end.Failure.Code != "thread_durability_uncertain" ||
					end.Thread.Durability != "UNCERTAIN" {
					t.Fatalf("the run ends with %s, want thread_durability_uncertain", end)
				}
				break
			}
			_, events = complete(ctx, t, c, agent.ID, "talk", scriptedManner.recall)
			wantFinished(t, events)
			wantRemembered(t, events, kept, lost)
		})
	}
}

// maxHold is the longest time for which a script can hold the end of its turn.
const maxHold = 5 * time.Second

// awaitEvent waits until the run has an event of the type, or has ended.
func awaitEvent(ctx context.Context, t *testing.T, c *enginetest.Client, runID, kind string) {
	t.Helper()
	w, err := c.Watch(ctx, runID, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = w.Until(ctx, func(events []enginetest.Event) bool {
		return len(enginetest.Find(events, kind)) > 0 || enginetest.Last(events).Terminal()
	})
	w.Cut()
	if err != nil {
		t.Fatal(err)
	}
}

// TestKilledAtTurnEnd kills the engine, the worker, or both, at a random moment around the end of a turn, again and
// again in one conversation. However each run ends, the next turn knows exactly the turns whose thread was committed.
func TestKilledAtTurnEnd(t *testing.T) {
	const seed = 7
	rounds := map[string]int{scripted: 14, deepagents: 6}
	onEach(t, nil, func(t *testing.T, m manner) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*caseTimeout)
		defer cancel()
		random := rand.New(rand.NewPCG(seed, seed))
		engine := ownEngine(t)
		c := clientOf(t, engine)
		agent := newAgent(ctx, t, c, m.harness)
		var kept, lost []string
		ends := map[string]int{}
		for round := range max(rounds[m.harness], 4) {
			note := fmt.Sprintf("note-%d-end", round)
			text := m.say(note)
			if m.harness == scripted { // which else is too quick to be hit
				text = enginetest.Script(enginetest.HoldEnd(time.Duration(1+random.IntN(60))*time.Millisecond), enginetest.Say(note))
			}
			r := start(ctx, t, c, agent.ID, "talk", text)
			awaitEvent(ctx, t, c, r.ID, enginetest.TextDelta)
			time.Sleep(time.Duration(random.IntN(50_000)) * time.Microsecond) // where in the turn's end the kill hits
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
			if err := enginetest.CheckLog(events); err != nil {
				t.Fatal(err)
			}
			end := enginetest.Last(events)
			ends[end.Type+" "+end.Thread.Durability]++
			switch {
			case end.Thread.Durability == "COMMITTED":
				kept = append(kept, note)
			case end.Type == enginetest.RunFailed && end.Thread.Durability == "UNCERTAIN":
				lost = append(lost, note)
			default:
				t.Fatalf("round %d: the run ends with %s, want it committed, or an error and uncertain", round, end)
			}
			if _, err := c.Free(ctx, r.SessionID); err != nil {
				t.Fatal(err)
			}
			_, events = complete(ctx, t, c, agent.ID, "talk", m.recall)
			wantFinished(t, events)
			wantRemembered(t, events, kept, lost)
		}
		t.Logf("seed %d: %v", seed, ends)
	})
}
