package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// The harnesses under test.
const (
	scripted       = "scripted"
	deepagents     = "deepagents"
	claudeAgentSDK = "claude_agent_sdk"
)

// theme is one thing that every harness must show, with what each is told so that it happens.
type theme struct {
	name  string
	texts map[string]string
	// cancel asks for the run's end when this many events have been seen; 0 never.
	cancel int
	check  func(t *testing.T, harness string, events []enginetest.Event)
}

var themes = []theme{
	{
		name: "text",
		texts: map[string]string{
			scripted:   enginetest.Script(enginetest.SayOften("word ", 12, 10*time.Millisecond)),
			deepagents: "[[slow 12 10]]", claudeAgentSDK: "[[slow 12 10]]",
		},
		check: func(t *testing.T, harness string, events []enginetest.Event) {
			wantFinished(t, events)
			want := strings.Repeat("word ", 12)
			if harness != scripted {
				want = ticks(12)
			}
			if got := enginetest.Text(events); got != want {
				t.Fatalf("text is %q, want %q", got, want)
			}
		},
	},
	{
		name: "thinking",
		texts: map[string]string{
			scripted:   enginetest.Script(enginetest.Reason("I am thinking."), enginetest.Say("done")),
			deepagents: "[[think]] [[text 2]]", claudeAgentSDK: "[[think]] [[text 2]]",
		},
		check: func(t *testing.T, _ string, events []enginetest.Event) {
			wantFinished(t, events)
			if got := enginetest.Reasoning(events); got != "I am thinking." {
				t.Fatalf("reasoning is %q", got)
			}
			if got := enginetest.Text(events); strings.Contains(got, "thinking") || got == "" {
				t.Fatalf("text is %q: reasoning must not be in it, and it must not be empty", got)
			}
		},
	},
	{
		name: "tool",
		texts: map[string]string{
			scripted:   enginetest.Script(enginetest.Call("read_file", `{"file_path":"/notes.md"}`, "kept words"), enginetest.Say("kept words")),
			deepagents: `[[tool write_file {"file_path":"/notes.md","content":"kept words"}]] [[then]] [[tool read_file {"file_path":"/notes.md"}]]`,

			claudeAgentSDK: `[[tool Write {"file_path":"notes.md","content":"kept words"}]] [[then]] [[tool Read {"file_path":"notes.md"}]]`,
		},
		check: func(t *testing.T, harness string, events []enginetest.Event) {
			wantFinished(t, events)
			want := map[string][]string{scripted: {"read_file"}, deepagents: {"write_file", "read_file"}, claudeAgentSDK: {"Write", "Read"}}[harness]
			started, finished := enginetest.Find(events, enginetest.ToolStarted), enginetest.Find(events, enginetest.ToolFinished)
			if len(started) != len(want) || len(finished) != len(want) {
				t.Fatalf("%d calls started and %d finished, want %d: %v", len(started), len(finished), len(want), events)
			}
			for i, name := range want {
				if started[i].Name != name || started[i].ToolCallID != finished[i].ToolCallID {
					t.Fatalf("call %d is %s, finished by %s", i, started[i], finished[i])
				}
			}
			if got := enginetest.Last(finished).Result; !strings.Contains(got, "kept words") {
				t.Fatalf("the file's content is not in the result %q", got)
			}
		},
	},
	{
		name: "model HTTP 400",
		texts: map[string]string{
			scripted:   enginetest.Script(enginetest.Fail("configuration", "model_refused_request")),
			deepagents: "[[http 400]]", claudeAgentSDK: "[[http 400]]",
		},
		check: wantFailure("configuration"),
	},
	{
		name: "model HTTP 500",
		texts: map[string]string{
			scripted:   enginetest.Script(enginetest.Fail("unavailable", "model_unavailable")),
			deepagents: "[[http 500]]", claudeAgentSDK: "[[http 500]]",
		},
		check: wantFailure("unavailable"),
	},
	{
		name: "cancel in mid-turn",
		texts: map[string]string{
			scripted:   enginetest.Script(enginetest.SayOften("word ", 5, 10*time.Millisecond), enginetest.Hang()),
			deepagents: "[[slow 5 10]] [[hang]]", claudeAgentSDK: "[[slow 5 10]] [[hang]]",
		},
		cancel: 4,
		check: func(t *testing.T, _ string, events []enginetest.Event) {
			end := enginetest.Last(events)
			if end.Type != enginetest.RunCancelled || end.Reason != "client_request" || end.SideEffects != "none" {
				t.Fatalf("the run ended with %s, want a cancel by request without side effects", end)
			}
		},
	},
}

func wantFailure(category string) func(*testing.T, string, []enginetest.Event) {
	return func(t *testing.T, _ string, events []enginetest.Event) {
		end := enginetest.Last(events)
		if end.Type != enginetest.RunFailed || end.Failure == nil || end.Failure.Category != category {
			t.Fatalf("the run ended with %s, want an error of category %s", end, category)
		}
		if end.Failure.SideEffects != "none" {
			t.Fatalf("side effects are %q, want none: no tool was called", end.Failure.SideEffects)
		}
		if strings.Contains(end.Failure.Message, "fake error") {
			t.Fatalf("the provider's own words are in the message %q", end.Failure.Message)
		}
	}
}

// ticks is what [[slow n ms]] says.
func ticks(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "tick%d ", i)
	}
	return b.String()
}

// TestHarness runs each theme on each harness. Beside the theme itself every case proves the log: a client that was
// killed in mid-stream and comes back, a client that reads again from the start or from the middle, and a reader of
// the log's pages all get what the client that stayed has seen.
func TestHarness(t *testing.T) {
	for _, harness := range []string{scripted, deepagents, claudeAgentSDK} {
		t.Run(harness, func(t *testing.T) {
			needHarness(t, harness)
			c := clientOf(t, sharedEngine(t))
			agent := newAgent(bounded(t), t, c, harness)
			for _, th := range themes {
				t.Run(th.name, func(t *testing.T) {
					ctx := bounded(t)
					r := start(ctx, t, c, agent.ID, "", th.texts[harness])
					stayed := th.play(ctx, t, c, r.ID)
					if err := enginetest.CheckLog(stayed); err != nil {
						t.Fatal(err)
					}
					th.check(t, harness, stayed)
					wantReplays(ctx, t, c, r.ID, stayed)
					wantProjection(ctx, t, c, r.ID, stayed)
				})
			}
		})
	}
}

// TestFileTools has each real harness's file tools write into the workspace and looks there; then it has them reach for
// a file outside and looks that nothing came of it.
func TestFileTools(t *testing.T) {
	onEach(t, func(m manner) bool { return m.acts }, func(t *testing.T, m manner) {
		ctx := bounded(t)
		engine := ownEngine(t)
		c := clientOf(t, engine)
		agent := newAgent(ctx, t, c, m.harness)
		outside := filepath.Join(t.TempDir(), "stolen.txt")
		r, events := complete(ctx, t, c, agent.ID, "", m.ask("kept.md")+"[[then]] "+
			modelWrites(m.tool, "", "[[then]] ", []string{outside, "/../../../../../../../../.." + outside, "../../../../../../../.." + outside}))
		wantFinished(t, events)
		m.wantFile(t, engine, r.SessionID, "kept.md", "kept words")
		if n := len(enginetest.Find(events, enginetest.ToolStarted)); n != 4 {
			t.Fatalf("%d calls were made, want 4: this shows nothing", n)
		}
		if _, err := os.Stat(outside); !os.IsNotExist(err) {
			t.Fatalf("a file tool wrote outside the workspace (%v)", err)
		}
	})
}

// play follows the run to its end with a client that stays, while another is killed in mid-stream.
func (th theme) play(ctx context.Context, t *testing.T, c *enginetest.Client, runID string) []enginetest.Event {
	t.Helper()
	witness, err := c.NewWitness(ctx, runID)
	if err != nil {
		t.Fatal(err)
	}
	victim, err := c.Watch(ctx, runID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := victim.Until(ctx, func(events []enginetest.Event) bool { return len(events) > 0 }); err != nil {
		t.Fatal(err)
	}
	victim.Cut()
	if th.cancel > 0 {
		if _, err := witness.Until(ctx, func(events []enginetest.Event) bool { return len(events) >= th.cancel }); err != nil {
			t.Fatal(err)
		}
		for range 2 { // it is idempotent
			if _, err := c.Cancel(ctx, runID); err != nil {
				t.Fatal(err)
			}
		}
	}
	stayed, err := witness.All(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// The killed client comes back from where it was.
	rest, err := c.Follow(ctx, runID, victim.Through())
	if err != nil {
		t.Fatal(err)
	}
	if d := enginetest.Compare(rest, stayed[min(int(victim.Through()), len(stayed)):]); !d.None() {
		t.Fatalf("the killed client came back and got something else: %s", d)
	}
	return stayed
}

// wantReplays reads an ended run again, from the start, the middle and the end, by subscription and by pages.
func wantReplays(ctx context.Context, t *testing.T, c *enginetest.Client, runID string, want []enginetest.Event) {
	t.Helper()
	for _, after := range []int{0, len(want) / 2, len(want) - 1, len(want)} {
		replayed, err := c.Follow(ctx, runID, int64(after))
		if err != nil {
			t.Fatal(err)
		}
		if d := enginetest.Compare(replayed, want[after:]); !d.None() {
			t.Fatalf("replay after %d differs: %s", after, d)
		}
		paged, err := c.Log(ctx, runID, int64(after))
		if err != nil {
			t.Fatal(err)
		}
		if d := enginetest.Compare(paged, want[after:]); !d.None() {
			t.Fatalf("pages after %d differ: %s", after, d)
		}
	}
}

// wantProjection compares the run's document with its log.
func wantProjection(ctx context.Context, t *testing.T, c *enginetest.Client, runID string, events []enginetest.Event) {
	t.Helper()
	r, err := c.Settled(ctx, runID)
	if err != nil {
		t.Fatal(err)
	}
	end := enginetest.Last(events)
	want := map[string]string{
		enginetest.RunFinished: "FINISHED", enginetest.RunCancelled: "CANCELLED", enginetest.RunFailed: "FAILED",
		enginetest.RunInterrupted: "INTERRUPTED",
	}[end.Type]
	if r.Status != want || r.LastSequence != end.Sequence || r.Isolation != "none" {
		t.Fatalf("the run is %+v, want it %s, through %d, with isolation none", r, want, end.Sequence)
	}
	if (r.Failure != nil) != (end.Type == enginetest.RunFailed) {
		t.Fatalf("the run's error is %+v after %s", r.Failure, end)
	}
	var said strings.Builder
	for _, o := range r.Output {
		said.WriteString(o.Text)
	}
	if end.Type == enginetest.RunFinished && said.String() != enginetest.Text(events) {
		t.Fatalf("the run's output is %q, its log says %q", said.String(), enginetest.Text(events))
	}
}
