// Package e2e proves the engine from outside: the built programs, real processes, real sockets.
package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// binaryFolder names a folder of built programs; without it the tests build their own.
const binaryFolder = "HARNESS_BIN"

// caseTimeout bounds one test case: what never comes. What comes late on a machine that is slow is no failure.
const caseTimeout = 5 * time.Minute

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	code := m.Run()
	if shared.engine != nil {
		if err := shared.engine.Cleanup(); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			code = 1
		}
		os.RemoveAll(shared.engine.Data())
	}
	if built.folder != "" {
		os.RemoveAll(built.folder)
	}
	if err := enginetest.FindLeaks(); err != nil && code == 0 { // of the clients; a failed test may leave some
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	return code
}

// built is what the tests run: the folder's programs that the environment names, or their own.
var built struct {
	once     sync.Once
	folder   string // to be removed
	binaries enginetest.Binaries
	err      error
}

// programs returns the programs under test. It is called by tests, not before them: only what is read while they run
// counts for the go command when it decides whether an earlier result still holds.
func programs(t *testing.T) enginetest.Binaries {
	t.Helper()
	built.once.Do(func() {
		if built.err = enginetest.DependOnSources(); built.err != nil {
			return
		}
		if bin := os.Getenv(binaryFolder); bin != "" {
			built.binaries, built.err = enginetest.FindBinaries(bin)
			return
		}
		if built.folder, built.err = os.MkdirTemp("", "harness-e2e-"); built.err != nil {
			return
		}
		built.binaries, built.err = enginetest.Build(context.Background(), built.folder)
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.binaries
}

// sharedIdle is how long the workers of the shared engine wait for another turn: its tests begin many conversations,
// and a warm worker of a real harness takes its memory.
const sharedIdle = 5 * time.Second

// shared is the engine of the tests that do it no harm.
var shared struct {
	once   sync.Once
	engine *enginetest.Engine
	err    error
}

// sharedEngine returns the engine that tests share.
func sharedEngine(t *testing.T) *enginetest.Engine {
	t.Helper()
	binaries := programs(t)
	shared.once.Do(func() {
		var data string
		if data, shared.err = os.MkdirTemp("", "harness-e2e-"); shared.err != nil {
			return
		}
		shared.engine, shared.err = enginetest.Start(context.Background(), enginetest.Options{
			Binaries: binaries, Data: data, Args: []string{"--idle-worker", sharedIdle.String()},
		})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("engine log:\n%s", lastLines(shared.engine.Log(), 40))
		}
	})
	return shared.engine
}

// ownEngine starts an engine that the test may kill.
func ownEngine(t *testing.T, env ...string) *enginetest.Engine {
	t.Helper()
	return ownEngineWith(t, enginetest.Options{Env: env})
}

// ownEngineWith is ownEngine with further options; the programs and the data folder are this package's.
func ownEngineWith(t *testing.T, o enginetest.Options) *enginetest.Engine {
	t.Helper()
	data, err := os.MkdirTemp("", "harness-e2e-") // not t.TempDir: the path of a unix socket is short
	if err != nil {
		t.Fatal(err)
	}
	o.Binaries, o.Data = programs(t), data
	engine, err := enginetest.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("engine log:\n%s", lastLines(engine.Log(), 60))
		}
		if err := engine.Cleanup(); err != nil {
			t.Error(err)
		}
		if !damaged[t.Name()] {
			left(t, data)
		}
		os.RemoveAll(data)
	})
	return engine
}

// clientOf is the development caller of an engine.
func clientOf(t *testing.T, e *enginetest.Engine) *enginetest.Client {
	t.Helper()
	c := e.Client()
	t.Cleanup(c.Close)
	return c
}

// clientAs is another caller of an engine, who has nothing there yet.
func clientAs(t *testing.T, e *enginetest.Engine, name string) *enginetest.Client {
	t.Helper()
	c, err := e.ClientAs(t.Context(), fmt.Sprintf("%s-%d", name, names.Add(1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// bounded is the test's context with the time limit of a case.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
	t.Cleanup(cancel)
	return ctx
}

// needHarness fails the test, with what to do, where the harness cannot run. No harness test is ever skipped.
func needHarness(t *testing.T, harness string) {
	t.Helper()
	checks := map[string]func() error{deepagents: programs(t).CheckNode, claudeAgentSDK: programs(t).CheckClaude}
	if check := checks[harness]; check != nil {
		if err := check(); err != nil {
			t.Fatal(err)
		}
	}
}

// names numbers what tests make on an engine that they share.
var names atomic.Int64

// newAgent saves an agent with a slug of its own.
func newAgent(ctx context.Context, t *testing.T, c *enginetest.Client, harness string) enginetest.Agent {
	t.Helper()
	needHarness(t, harness)
	a, err := c.NewAgent(ctx, fmt.Sprintf("agent-%d", names.Add(1)), harness)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// start starts a run in a conversation; an empty one is new.
func start(ctx context.Context, t *testing.T, c *enginetest.Client, agentID, conversation, text string) enginetest.Run {
	t.Helper()
	r, err := c.Start(ctx, enginetest.StartInput{AgentID: agentID, ConversationID: conversation, Message: enginetest.Input{Text: text}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// complete starts a run, follows it to its end, and waits until the conversation is free.
func complete(ctx context.Context, t *testing.T, c *enginetest.Client, agentID, conversation, text string) (enginetest.Run, []enginetest.Event) {
	t.Helper()
	r := start(ctx, t, c, agentID, conversation, text)
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
	if r, err = c.Settled(ctx, r.ID); err != nil {
		t.Fatal(err)
	}
	return r, events
}

// release lets what is held in a conversation go on.
func release(ctx context.Context, t *testing.T, e *enginetest.Engine, sessionID string) {
	t.Helper()
	if err := e.Release(ctx, sessionID); err != nil {
		t.Fatal(err)
	}
}

// wantFinished fails unless the run came to its own end.
func wantFinished(t *testing.T, events []enginetest.Event) {
	t.Helper()
	if end := enginetest.Last(events); end.Type != enginetest.RunFinished {
		t.Fatalf("the run ended with %s, want %s; its log: %s", end, enginetest.RunFinished, events)
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
