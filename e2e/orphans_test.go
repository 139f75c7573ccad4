package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/worker/procfs"
)

// orphanTimeout is how long what has lost its purpose may take to be gone. Left alone it would stay for a quarter of an hour.
const orphanTimeout = 2 * time.Minute

// wantNoTraces fails unless nothing of the machine's processes has to do with the engine any more, but the engine.
func wantNoTraces(ctx context.Context, t *testing.T, e *enginetest.Engine, after string) {
	t.Helper()
	short, cancel := context.WithTimeout(ctx, orphanTimeout)
	defer cancel()
	if _, err := e.AwaitTraces(short, func(left []procfs.Process) bool { return len(left) == 0 }); err != nil {
		t.Fatalf("after %s: %v", after, err)
	}
}

// wantOnlyFamily fails unless each process that has to do with the engine descends from a worker that lives.
func wantOnlyFamily(ctx context.Context, t *testing.T, e *enginetest.Engine, after string) {
	t.Helper()
	short, cancel := context.WithTimeout(ctx, orphanTimeout)
	defer cancel()
	_, err := e.AwaitTraces(short, func(traces []procfs.Process) bool {
		family, err := e.Family()
		if err != nil {
			return false
		}
		mine := map[int]bool{}
		for _, p := range family {
			mine[p.PID] = true
		}
		for _, p := range traces {
			if !mine[p.PID] {
				return false
			}
		}
		return true
	})
	if err != nil {
		t.Fatalf("after %s: %v", after, err)
	}
}

// TestNoOrphans ends turns in each way that there is, and looks what is left on the machine.
func TestNoOrphans(t *testing.T) {
	onEach(t, nil, func(t *testing.T, m manner) {
		ctx := bounded(t)
		engine := ownEngine(t)
		c := clientOf(t, engine)
		agent := asking(ctx, t, c, m.harness, nil)
		wantNoTraces(ctx, t, engine, "the start")
		slowly := func(conversation string) enginetest.Run {
			t.Helper()
			r := start(ctx, t, c, agent.ID, conversation, m.slow("note"))
			beforeKill(ctx, t, c, r.ID, 0, 3)
			return r
		}
		clear := func(r enginetest.Run, after string) {
			t.Helper()
			if _, err := c.Clear(ctx, r.SessionID); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Follow(ctx, r.ID, 0); err != nil {
				t.Fatal(err)
			}
			wantNoTraces(ctx, t, engine, after)
		}

		// Cancel: the worker stays for the next turn, and nothing beside it. Then a clear ends it.
		r := slowly("cancelled")
		family, err := engine.Family()
		if err != nil {
			t.Fatal(err)
		}
		if m.acts && len(family) < 2 {
			t.Fatalf("in mid-turn there are only %s: this shows nothing", enginetest.Describe(family))
		}
		if _, err := c.Cancel(ctx, r.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Follow(ctx, r.ID, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Free(ctx, r.SessionID); err != nil {
			t.Fatal(err)
		}
		wantOnlyFamily(ctx, t, engine, "a cancel")
		clear(r, "a clear of an idle conversation")

		clear(slowly("cleared"), "a clear in mid-turn")

		// A question may keep its worker; a clear ends it.
		r, _ = interrupted(ctx, t, c, agent.ID, "asked", m.ask("orphan.md"))
		wantOnlyFamily(ctx, t, engine, "a question")
		clear(r, "a clear of a question")

		// The worker alone is killed: what it had started goes too.
		r = slowly("killed")
		if n, err := engine.KillWorkersAlone(ctx); err != nil || n != 1 {
			t.Fatalf("killed %d workers (%v), want 1", n, err)
		}
		events, err := c.Follow(ctx, r.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		if end := enginetest.Last(events); end.Type != enginetest.RunFailed {
			t.Fatalf("the run of the killed worker ends with %s", end)
		}
		wantNoTraces(ctx, t, engine, "a kill of the worker")

		// Shutdown with an idle conversation, and with a turn at work, which goes on and ends with the next engine.
		complete(ctx, t, c, agent.ID, "idle", m.say("note"))
		if err := engine.Stop(); err != nil {
			t.Fatal(err)
		}
		wantNoTraces(ctx, t, engine, "a shutdown")
		if err := engine.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		c = clientOf(t, engine)
		r = slowly("at work")
		if err := engine.Stop(); err != nil {
			t.Fatal(err)
		}
		wantOnlyFamily(ctx, t, engine, "a shutdown in mid-turn")
		if err := engine.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		c = clientOf(t, engine)
		clear(r, "a clear by the next engine")

		// The engine is killed, and with the worker alone: the next engine removes what is left.
		slowly("lost")
		engine.Kill()
		if n, err := engine.KillWorkersAlone(ctx); err != nil || n != 1 {
			t.Fatalf("killed %d workers (%v), want 1", n, err)
		}
		if err := engine.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		c = clientOf(t, engine)
		wantNoTraces(ctx, t, engine, "a kill of engine and worker")
		if err := engine.Stop(); err != nil {
			t.Fatal(err)
		}
		wantNoTraces(ctx, t, engine, "the last shutdown")
	})
}

// TestNoOrphansOfTools ends turns in which a tool runs a program: it goes with the turn, however that ends.
func TestNoOrphansOfTools(t *testing.T) {
	onEach(t, func(m manner) bool { return m.shell != "" }, func(t *testing.T, m manner) {
		ctx := bounded(t)
		engine := ownEngine(t)
		c := clientOf(t, engine)
		agent, err := c.Save(ctx, enginetest.SaveInput{Draft: enginetest.Draft{
			Name: "shell", Slug: "shell", Tools: &enginetest.Tools{Approval: "NEVER"},
			Harness: &enginetest.HarnessChoice{ID: m.harness, Options: json.RawMessage(`{"tools":["Bash"]}`)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		asleep := func(traces []procfs.Process) bool {
			return strings.Contains(enginetest.Describe(traces), "(sleep 600)")
		}
		cases := []struct {
			name string
			end  func(t *testing.T, r enginetest.Run)
			left bool // the conversation's worker may go on
		}{
			{"cancel", func(t *testing.T, r enginetest.Run) {
				if _, err := c.Cancel(ctx, r.ID); err != nil {
					t.Fatal(err)
				}
			}, true},
			{"clear", func(t *testing.T, r enginetest.Run) {
				if _, err := c.Clear(ctx, r.SessionID); err != nil {
					t.Fatal(err)
				}
			}, false},
			{"kill of the worker", func(t *testing.T, _ enginetest.Run) {
				if n, err := engine.KillWorkersAlone(ctx); err != nil || n != 1 {
					t.Fatalf("killed %d workers (%v), want 1", n, err)
				}
			}, false},
			{"kill of engine and worker", func(t *testing.T, _ enginetest.Run) {
				engine.Kill()
				if n, err := engine.KillWorkersAlone(ctx); err != nil || n != 1 {
					t.Fatalf("killed %d workers (%v), want 1", n, err)
				}
				if err := engine.Restart(ctx); err != nil {
					t.Fatal(err)
				}
				c = clientOf(t, engine)
			}, false},
		}
		for _, tc := range cases {
			r := start(ctx, t, c, agent.ID, tc.name, m.shell)
			if _, err := engine.AwaitTraces(ctx, asleep); err != nil {
				t.Fatalf("the program does not run: %v", err)
			}
			tc.end(t, r)
			if _, err := c.Follow(ctx, r.ID, 0); err != nil {
				t.Fatal(err)
			}
			short, cancel := context.WithTimeout(ctx, orphanTimeout)
			_, err := engine.AwaitTraces(short, func(traces []procfs.Process) bool { return !asleep(traces) })
			cancel()
			if err != nil {
				t.Fatalf("after a %s: %v", tc.name, err)
			}
			if tc.left {
				wantOnlyFamily(ctx, t, engine, tc.name)
				if _, err := c.Clear(ctx, r.SessionID); err != nil {
					t.Fatal(err)
				}
			}
			wantNoTraces(ctx, t, engine, tc.name)
		}
	})
}
