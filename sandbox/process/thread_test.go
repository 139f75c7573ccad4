package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/worker/procfs"
)

// conversation does what an engine does with one: it commits the state of each turn, and seats the next one on a worker
// that begins from the head.
type conversation struct {
	m       starter
	session string
	options string
	gen     int64
	head    harness.Head
	packed  []byte
	rt      harness.Runtime
}

type starter interface {
	Reserve(b harness.Binding) string
	Start(ctx context.Context, b harness.Binding, leaseGen int64, addr string, c harness.Construction, head *harness.Snapshot) (harness.Runtime, error)
	Destroy(ctx context.Context, addr string, leaseGen int64) error
}

func (c *conversation) binding() harness.Binding {
	return harness.Binding{SessionID: c.session, Epoch: 1, SandboxGen: c.gen}
}

func (c *conversation) snapshot() *harness.Snapshot {
	return &harness.Snapshot{
		Head: c.head, Codec: "tar+gzip", Size: int64(len(c.packed)),
		Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.packed)), nil },
	}
}

// seat starts the next worker.
func (c *conversation) seat(t *testing.T) {
	t.Helper()
	if c.rt != nil {
		_ = c.rt.Close()
		if err := c.m.Destroy(t.Context(), c.m.Reserve(c.binding()), math.MaxInt64); err != nil {
			t.Fatal(err)
		}
	}
	c.gen++
	var err error
	if c.rt, err = c.m.Start(t.Context(), c.binding(), 1, c.m.Reserve(c.binding()), construction(c.options), c.snapshot()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.rt.Close() })
}

func (c *conversation) start(t *testing.T, turn harness.Turn) {
	t.Helper()
	turn.Head = c.head
	if err := c.rt.StartTurn(t.Context(), turn); err != nil {
		t.Fatal(err)
	}
}

// fetch reads the state of a run's end and says which head it will be.
func (c *conversation) fetch(t *testing.T, run string) ([]byte, harness.Head) {
	t.Helper()
	s, err := c.rt.(harness.StateKeeper).State(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Body.Close()
	raw, err := io.ReadAll(s.Body)
	if err != nil {
		t.Fatal(err)
	}
	return raw, harness.Head{Rev: c.head.Rev + 1, Hash: s.Hash}
}

func (c *conversation) commit(t *testing.T, run string) {
	t.Helper()
	c.packed, c.head = c.fetch(t, run)
	if err := c.rt.(harness.StateKeeper).Commit(t.Context(), run, c.head); err != nil {
		t.Fatal(err)
	}
}

func (c *conversation) play(t *testing.T, turn harness.Turn) []event.Event {
	t.Helper()
	c.start(t, turn)
	out := readAll(t, c.rt, turn.RunID, 0)
	c.commit(t, turn.RunID)
	return out
}

// TestKilledAtEachStep: the worker is killed between every two steps of a turn's end. The next one recalls exactly the
// turns that were committed, whatever the dead one left in the folder.
func TestKilledAtEachStep(t *testing.T) {
	data := shortDir(t)
	m := manager(t, data)
	for i, step := range []struct {
		name      string
		script    string
		until     func(t *testing.T, c *conversation, run string)
		committed bool
	}{
		{"before the terminal", `[{"text":"secret"},{"hang":true}]`, func(t *testing.T, c *conversation, run string) { readUntil(t, c.rt, run, event.TypeTextFinished) }, false},
		{"before the state is packed", `[{"text":"secret"},{"hang_before_end":5000}]`, func(t *testing.T, c *conversation, run string) { readUntil(t, c.rt, run, event.TypeTextFinished) }, false},
		{"after it is packed", `{"text":"secret"}`, func(t *testing.T, c *conversation, run string) { readUntil(t, c.rt, run, event.TypeRunFinished) }, false},
		{"after it was read, not committed", `{"text":"secret"}`, func(t *testing.T, c *conversation, run string) {
			readAll(t, c.rt, run, 0)
			c.fetch(t, run)
		}, false},
		{"after the head was committed", `{"text":"secret"}`, func(t *testing.T, c *conversation, run string) {
			readAll(t, c.rt, run, 0)
			c.packed, c.head = c.fetch(t, run)
		}, true},
		{"after the worker was told", `{"text":"secret"}`, func(t *testing.T, c *conversation, run string) {
			readAll(t, c.rt, run, 0)
			c.commit(t, run)
		}, true},
	} {
		t.Run(step.name, func(t *testing.T) {
			c := &conversation{m: m, session: fmt.Sprint("ses_k", i)}
			c.seat(t)
			c.play(t, harness.Turn{RunID: "run_1", Text: "first"})
			c.start(t, harness.Turn{RunID: "run_2", Text: step.script})
			step.until(t, c, "run_2")
			kill(t, data, m.Reserve(c.binding()))
			c.seat(t)
			want := "I remember 1 message:\n1. first"
			if step.committed {
				want = "I remember 2 messages:\n1. first\n2. " + step.script
			}
			if got := texts(c.play(t, harness.Turn{RunID: "run_3", Text: `{"recall":true}`})); got != want {
				t.Fatalf("recalls %q, want %q", got, want)
			}
		})
	}
}

// TestKilledBeforeTheFirstCommit: there is no head yet, and nothing of the lost turn is left.
func TestKilledBeforeTheFirstCommit(t *testing.T) {
	data := shortDir(t)
	m := manager(t, data)
	c := &conversation{m: m, session: "ses_f"}
	c.seat(t)
	c.start(t, harness.Turn{RunID: "run_1", Text: "lost"})
	readAll(t, c.rt, "run_1", 0)
	kill(t, data, m.Reserve(c.binding()))
	c.seat(t)
	if got := texts(c.play(t, harness.Turn{RunID: "run_2", Text: `{"recall":true}`})); got != "I remember nothing." {
		t.Fatalf("recalls %q", got)
	}
}

// TestInterruptSurvivesTheWorker: the decision goes on in another worker, in the middle of the script.
func TestInterruptSurvivesTheWorker(t *testing.T) {
	data := shortDir(t)
	m := manager(t, data)
	c := &conversation{m: m, session: "ses_i"}
	c.seat(t)
	c.play(t, harness.Turn{RunID: "run_1", Text: `[{"approval":{"calls":[{"id":"a","name":"send","arguments":{"to":"x"},"result":"sent"}]}},{"text":"done"}]`})
	kill(t, data, m.Reserve(c.binding()))
	c.seat(t)
	events := c.play(t, harness.Turn{RunID: "run_2", Resume: &harness.Resume{
		RunID: "run_1", InterruptID: id.OfInterrupt("run_1"), Revision: 1,
		Decision: harness.Decision{Calls: []harness.CallDecision{{ToolCallID: "a", Verdict: harness.Edit, Arguments: []byte(`{"to":"y"}`)}}},
		Inherit:  event.Inheritance{Tools: []event.OpenTool{{ID: "a"}}},
	}})
	got, ok := events[0].Data.(event.ToolFinished)
	if !ok || got.Result != "sent\narguments: {\"to\":\"y\"}" || texts(events) != "done" {
		t.Fatalf("got %+v", events)
	}
}

// TestHeadIsVerified: a state that is not what the head says is not used, and nothing is left running.
func TestHeadIsVerified(t *testing.T) {
	data := shortDir(t)
	m := manager(t, data)
	c := &conversation{m: m, session: "ses_v"}
	c.seat(t)
	c.play(t, harness.Turn{RunID: "run_1", Text: "kept"})
	if err := m.Destroy(t.Context(), m.Reserve(c.binding()), math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	workspace := filepath.Join(data, "state", c.session, "1", "workspace", "mine")
	if err := os.WriteFile(workspace, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.gen++
	why := errors.New("why")
	for name, tc := range map[string]struct {
		change func(s *harness.Snapshot)
		is     func(err error) bool
	}{
		"flipped": {func(s *harness.Snapshot) {
			raw := bytes.Clone(c.packed)
			raw[len(raw)/2] ^= 1
			s.Open = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }
		}, func(err error) bool { return problem.Is(err, problem.HarnessUnavailable) }},
		"no source": {func(s *harness.Snapshot) { s.Open = func(context.Context) (io.ReadCloser, error) { return nil, why } },
			func(err error) bool { return errors.Is(err, why) }},
	} {
		s := c.snapshot()
		tc.change(s)
		_, err := m.Start(t.Context(), c.binding(), 1, m.Reserve(c.binding()), construction(""), s)
		if !tc.is(err) {
			t.Errorf("%s: %v", name, err)
		}
		if all, err := m.List(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%s: left behind: %v %v", name, all, err)
		}
	}
	c.gen, c.rt = c.gen-1, nil
	c.seat(t)
	if got := texts(c.play(t, harness.Turn{RunID: "run_2", Text: `{"recall":true}`})); !strings.HasSuffix(got, "kept") {
		t.Fatalf("recalls %q", got)
	}
	if _, err := os.Stat(workspace); err != nil {
		t.Fatal("the workspace was touched:", err)
	}
}

// readUntil reads until an event of the type has come.
func readUntil(t *testing.T, r harness.Runtime, run string, want event.Type) {
	t.Helper()
	s, err := r.Events(t.Context(), run, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for {
		e, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range e.Events {
			if ev.Type() == want {
				return
			}
		}
	}
}

func kill(t *testing.T, data, addr string) {
	t.Helper()
	p, err := procfs.ReadFile(filepath.Join(data, "sbx", addr, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	if err := procfs.Signal(p, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the worker is dead", func() bool { return gone(p) })
}
