package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// keeper is a driver whose state is a list of what was said, in one file.
type keeper struct {
	testDriver
	state string
	paths []string
	opens atomic.Int32
}

func newKeeper() *keeper {
	k := &keeper{paths: []string{"said"}}
	k.open = func(_ context.Context, env Environment, _ harness.Construction) error {
		k.state = env.State
		k.opens.Add(1)
		return nil
	}
	k.turn = func(_ context.Context, t harness.Turn, sink Sink) error {
		f, err := os.OpenFile(filepath.Join(k.state, "said"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(f, t.Text)
		return errors.Join(err, f.Close(), yield(sink, finished()))
	}
	return k
}

func (k *keeper) StatePaths() []string { return k.paths }

func (k *keeper) said(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(k.state, "said"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(raw), "\n", " ")
}

// apart gives a worker separate folders; a fresh state folder unless one is given.
func apart(t *testing.T, state string) func(*HostOptions) {
	if state == "" {
		state = t.TempDir()
	}
	scratch := t.TempDir()
	t.Cleanup(func() {
		if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
			t.Errorf("packed states are left: %v %v", left, err)
		}
	})
	return func(o *HostOptions) { o.State, o.Workspace, o.Scratch = state, t.TempDir(), scratch }
}

func startFrom(t *testing.T, c *Client, run, text string, head harness.Head) {
	t.Helper()
	if err := c.StartTurn(t.Context(), harness.Turn{RunID: run, Text: text, Head: head}); err != nil {
		t.Fatal(err)
	}
}

// readState reads the packed state of a run's end, checked against what the worker says of it.
func readState(t *testing.T, c *Client, run string) []byte {
	t.Helper()
	s, err := c.State(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Body.Close()
	raw, err := io.ReadAll(s.Body)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(raw)) != s.Size || hashOf(raw) != s.Hash || s.Codec != StateCodec {
		t.Fatalf("%d bytes with hash %s, announced %+v", len(raw), hashOf(raw), s)
	}
	return raw
}

func hashOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

func snapshot(rev int64, raw []byte) harness.Snapshot {
	return harness.Snapshot{
		Head: harness.Head{Rev: rev, Hash: hashOf(raw)}, Codec: StateCodec, Size: int64(len(raw)),
		Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil },
	}
}

// play runs a turn and commits its state, as an engine does, and returns the packed state with its head.
func playTurn(t *testing.T, c *Client, run, text string, from harness.Head) ([]byte, harness.Head) {
	t.Helper()
	startFrom(t, c, run, text, from)
	drain(t, c, run, 0)
	raw := readState(t, c, run)
	head := harness.Head{Rev: from.Rev + 1, Hash: hashOf(raw)}
	if err := c.Commit(t.Context(), run, head); err != nil {
		t.Fatal(err)
	}
	return raw, head
}

// TestStateMovesBetweenWorkers: a later worker begins with exactly what was committed, whatever its folder held.
func TestStateMovesBetweenWorkers(t *testing.T) {
	first := newKeeper()
	c := newWorker(t, first, apart(t, "")).bound(t)
	_, head := playTurn(t, c, "run_1", "one", harness.Head{})
	raw, head := playTurn(t, c, "run_2", "two", head)
	startFrom(t, c, "run_3", "never committed", head)
	drain(t, c, "run_3", 0)

	// The second worker has the first one's folder, with a turn in it that nobody committed.
	if err := os.WriteFile(filepath.Join(first.state, "cache"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second := newKeeper()
	c = newWorker(t, second, apart(t, first.state)).dial(t)
	for range 2 { // an engine that got no answer asks again
		if err := c.Restore(t.Context(), snapshot(head.Rev, raw)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Bind(t.Context(), bindRequest()); err != nil {
		t.Fatal(err)
	}
	if got := second.said(t); got != "one two " {
		t.Fatalf("the worker begins with %q", got)
	}
	if _, err := os.Stat(filepath.Join(second.state, "cache")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the folder was not emptied")
	}
	if err := c.Commit(t.Context(), "run_2", head); err != nil {
		t.Fatal("an engine asks whether the worker has the head:", err)
	}
	if err := c.Commit(t.Context(), "run_2", harness.Head{Rev: 9, Hash: head.Hash}); !errors.Is(err, harness.ErrUnknownRun) {
		t.Fatalf("another head: %v", err)
	}
	playTurn(t, c, "run_4", "four", head)
	if got := second.said(t); got != "one two four " {
		t.Fatalf("the state is %q", got)
	}

	// Without a head a worker begins with nothing.
	third := newKeeper()
	c = newWorker(t, third, apart(t, first.state)).bound(t)
	if got := third.said(t); got != "" {
		t.Fatalf("the worker begins with %q", got)
	}
	playTurn(t, c, "run_5", "five", harness.Head{})
}

// TestStateIsThereWithTheTerminal: whoever has read the terminal can read the state, at once.
func TestStateIsThereWithTheTerminal(t *testing.T) {
	k := newKeeper()
	c := newWorker(t, k, apart(t, "")).bound(t)
	var head harness.Head
	for i := range 50 {
		_, head = playTurn(t, c, fmt.Sprint("run_", i), "x", head)
	}
}

func TestStateAndCommitAreRefused(t *testing.T) {
	k := newKeeper()
	wait := make(chan struct{})
	play := k.turn
	k.turn = func(ctx context.Context, turn harness.Turn, sink Sink) error {
		if turn.Text == "slow" {
			<-wait
		}
		return play(ctx, turn, sink)
	}
	c := newWorker(t, k, apart(t, "")).bound(t)
	none := harness.Head{Rev: 1, Hash: strings.Repeat("0", 64)}
	is := func(what string, err, want error, code Code) {
		t.Helper()
		e := new(Error)
		if !errors.Is(err, want) || !errors.As(err, &e) || e.Code != code {
			t.Errorf("%s: %v, want %v and %s", what, err, want, code)
		}
	}
	state := func(run string) error {
		s, err := c.State(t.Context(), run)
		if err == nil {
			s.Body.Close()
		}
		return err
	}
	is("unknown run", state("run_9"), harness.ErrUnknownRun, CodeUnknownRun)
	is("unknown run", c.Commit(t.Context(), "run_9", none), harness.ErrUnknownRun, CodeUnknownRun)
	startFrom(t, c, "run_1", "slow", harness.Head{})
	is("active run", state("run_1"), harness.ErrConflict, CodeBusy)
	is("active run", c.Commit(t.Context(), "run_1", none), harness.ErrConflict, CodeBusy)
	close(wait)
	drain(t, c, "run_1", 0)
	is("another hash", c.Commit(t.Context(), "run_1", none), harness.ErrStaleHead, CodeStaleHead)
	is("turn before the commit", c.StartTurn(t.Context(), harness.Turn{RunID: "run_2"}), harness.ErrStaleHead, CodeStaleHead)
	is("turn from another state", c.StartTurn(t.Context(), harness.Turn{RunID: "run_2", Head: none}), harness.ErrStaleHead, CodeStaleHead)
	head := harness.Head{Rev: 1, Hash: hashOf(readState(t, c, "run_1"))}
	for range 2 {
		if err := c.Commit(t.Context(), "run_1", head); err != nil {
			t.Fatal(err)
		}
	}
	is("committed", state("run_1"), harness.ErrGone, CodeGone)
	is("committed as another", c.Commit(t.Context(), "run_1", harness.Head{Rev: 2, Hash: head.Hash}), harness.ErrStaleHead, CodeStaleHead)
	is("turn from the state before", c.StartTurn(t.Context(), harness.Turn{RunID: "run_2"}), harness.ErrStaleHead, CodeStaleHead)
	is("turn from a later state", c.StartTurn(t.Context(), harness.Turn{RunID: "run_2", Head: harness.Head{Rev: 2, Hash: head.Hash}}), harness.ErrStaleHead, CodeStaleHead)
	startFrom(t, c, "run_2", "two", head)
	drain(t, c, "run_2", 0)
	is("another turn since", state("run_1"), harness.ErrGone, CodeGone)
	startFrom(t, c, "run_2", "two", harness.Head{}) // it has started; from where is settled
}

// TestTheHeadOfATurnCommits: an engine that frees the conversation before it told the worker, or died in between.
func TestTheHeadOfATurnCommits(t *testing.T) {
	k := newKeeper()
	play, late := k.turn, make(chan struct{})
	k.turn = func(ctx context.Context, turn harness.Turn, sink Sink) error {
		if turn.Text == "two" {
			<-late
		}
		return play(ctx, turn, sink)
	}
	c := newWorker(t, k, apart(t, "")).bound(t)
	startFrom(t, c, "run_1", "one", harness.Head{})
	drain(t, c, "run_1", 0)
	head := harness.Head{Rev: 1, Hash: hashOf(readState(t, c, "run_1"))}
	startFrom(t, c, "run_2", "two", head)
	if err := c.Commit(t.Context(), "run_1", head); err != nil {
		t.Fatal("the commit that comes late:", err)
	}
	close(late)
	drain(t, c, "run_2", 0)
	if err := c.Commit(t.Context(), "run_1", head); !errors.Is(err, harness.ErrStaleHead) {
		t.Fatalf("a worker that has run ahead says %v, want ErrStaleHead", err)
	}
}

func TestHarnessWithoutState(t *testing.T) {
	for name, d := range map[string]Driver{"not stateful": &testDriver{turn: echo}, "no paths": &keeper{testDriver: testDriver{turn: echo}}} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			kept := filepath.Join(state, "kept")
			if err := os.WriteFile(kept, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			c := newWorker(t, d, apart(t, state)).bound(t)
			for _, run := range []string{"run_1", "run_2"} {
				startTurn(t, c, run, "x")
				drain(t, c, run, 0)
			}
			if _, err := c.State(t.Context(), "run_2"); !errors.Is(err, harness.ErrNoState) {
				t.Errorf("state: %v, want ErrNoState", err)
			}
			head := harness.Head{Rev: 1, Hash: strings.Repeat("0", 64)}
			if err := c.Commit(t.Context(), "run_2", head); !errors.Is(err, harness.ErrNoState) {
				t.Errorf("commit: %v, want ErrNoState", err)
			}
			if err := c.StartTurn(t.Context(), harness.Turn{RunID: "run_3", Head: head}); !errors.Is(err, harness.ErrStaleHead) {
				t.Errorf("turn from a state: %v, want ErrStaleHead", err)
			}
			if _, err := os.Stat(kept); err != nil {
				t.Error("the state folder was emptied:", err)
			}
			other := newWorker(t, d, apart(t, "")).dial(t)
			if err := other.Restore(t.Context(), snapshot(1, readStateOf(t))); err != nil {
				t.Fatal(err)
			}
			err := other.Bind(t.Context(), bindRequest())
			if e := new(Error); !errors.As(err, &e) || e.Code != CodeOpenFailed || !strings.Contains(e.Message, "no state") {
				t.Errorf("bound with a state that nobody reads: %v", err)
			}
		})
	}
}

// readStateOf makes a packed state.
func readStateOf(t *testing.T) []byte {
	t.Helper()
	c := newWorker(t, newKeeper(), apart(t, "")).bound(t)
	startFrom(t, c, "run_1", "packed", harness.Head{})
	drain(t, c, "run_1", 0)
	return readState(t, c, "run_1")
}

// TestPackFails: the run ends as it did, the thread is local, and the worker takes no turn that would build on it.
func TestPackFails(t *testing.T) {
	for name, change := range map[string]func(k *keeper){
		"link": func(k *keeper) { k.turn = planting(k, func(p string) error { return os.Symlink("/etc/hostname", p) }) },
		"too large": func(k *keeper) {
			k.turn = planting(k, func(p string) error { return os.Truncate(p, MaxStateContent+1) })
		},
		"path climbs":   func(k *keeper) { k.paths = []string{"../said"} },
		"path absolute": func(k *keeper) { k.paths = []string{"/etc"} },
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeper()
			change(k)
			w := newWorker(t, k, apart(t, ""))
			c := w.bound(t)
			startFrom(t, c, "run_1", "x", harness.Head{})
			got := last(t, drain(t, c, "run_1", 0)).(event.RunFinished)
			if got.Thread.Durability != event.DurabilityLocal {
				t.Errorf("thread %+v, want LOCAL", got.Thread)
			}
			_, err := c.State(t.Context(), "run_1")
			if e := new(Error); !errors.Is(err, harness.ErrNoState) || !errors.As(err, &e) || e.Code != CodeStateFailed {
				t.Errorf("state: %v, want ErrNoState and state_failed", err)
			}
			if err := c.Commit(t.Context(), "run_1", harness.Head{Rev: 1, Hash: strings.Repeat("0", 64)}); !errors.Is(err, harness.ErrNoState) {
				t.Errorf("commit: %v, want ErrNoState", err)
			}
			if err := c.StartTurn(t.Context(), harness.Turn{RunID: "run_2"}); !errors.Is(err, harness.ErrStaleHead) {
				t.Errorf("next turn: %v, want ErrStaleHead", err)
			}
			if r, err := c.Ready(t.Context()); err != nil || r.ActiveRun != "" {
				t.Errorf("%+v %v", r, err)
			}
		})
	}
}

// planting is a turn that makes something of the state's file.
func planting(k *keeper, f func(path string) error) func(context.Context, harness.Turn, Sink) error {
	return func(_ context.Context, _ harness.Turn, sink Sink) error {
		path := filepath.Join(k.state, "said")
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			return err
		}
		err := f(path)
		if errors.Is(err, os.ErrExist) {
			err = errors.Join(os.Remove(path), f(path))
		}
		return errors.Join(err, yield(sink, finished()))
	}
}

// TestEveryTerminalHasAState: how a turn ends does not matter, that the driver returned does.
func TestEveryTerminalHasAState(t *testing.T) {
	for name, turn := range map[string]func(ctx context.Context, t harness.Turn, sink Sink) error{
		"error": func(context.Context, harness.Turn, Sink) error { return errors.New("x") },
		"panic": func(context.Context, harness.Turn, Sink) error { panic("x") },
		"invalid": func(_ context.Context, _ harness.Turn, s Sink) error {
			return yield(s, event.TextFinished{MessageID: "m"})
		},
		"cancelled": untilCancelled,
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeper()
			k.turn = turn
			c := newWorker(t, k, apart(t, "")).bound(t)
			startFrom(t, c, "run_1", "x", harness.Head{})
			if name == "cancelled" {
				if err := c.Cancel(t.Context(), "run_1", event.CancelClientRequest); err != nil {
					t.Fatal(err)
				}
			}
			drain(t, c, "run_1", 0)
			readState(t, c, "run_1")
		})
	}
	t.Run("stuck", func(t *testing.T) {
		free := make(chan struct{})
		defer close(free)
		k := newKeeper()
		k.turn = func(context.Context, harness.Turn, Sink) error { <-free; return nil }
		c := newWorker(t, k, apart(t, "")).bound(t, Limits{CancelGraceMs: 5})
		startFrom(t, c, "run_1", "x", harness.Head{})
		if err := c.Cancel(t.Context(), "run_1", event.CancelClientRequest); err != nil {
			t.Fatal(err)
		}
		if got := last(t, drain(t, c, "run_1", 0)).(event.RunCancelled); got.Thread.Durability != event.DurabilityUncertain {
			t.Errorf("thread %+v, want UNCERTAIN", got.Thread)
		}
		if _, err := c.State(t.Context(), "run_1"); !errors.Is(err, harness.ErrNoState) {
			t.Errorf("state of a driver that may still write: %v, want ErrNoState", err)
		}
	})
}

func TestRestoreIsRefused(t *testing.T) {
	good := readStateOf(t)
	why := errors.New("why")
	for name, tc := range map[string]struct {
		change func(s *harness.Snapshot)
		want   error
		code   Code
	}{
		"another hash":  {func(s *harness.Snapshot) { s.Hash = strings.Repeat("0", 64) }, nil, CodeBadRequest},
		"another codec": {func(s *harness.Snapshot) { s.Codec = "zip" }, nil, CodeBadRequest},
		"no hash":       {func(s *harness.Snapshot) { s.Hash = "" }, harness.ErrConflict, ""},
		"no revision":   {func(s *harness.Snapshot) { s.Head = harness.Head{} }, harness.ErrConflict, ""},
		"too large":     {func(s *harness.Snapshot) { s.Size = harness.MaxStateBytes + 1 }, harness.ErrConflict, ""},
		"not packed":    {func(s *harness.Snapshot) { *s = snapshot(1, []byte("what is this?")) }, nil, CodeBadRequest},
		"cut":           {func(s *harness.Snapshot) { *s = snapshot(1, good[:len(good)-5]) }, nil, CodeBadRequest},
		"source fails": {func(s *harness.Snapshot) {
			s.Open = func(context.Context) (io.ReadCloser, error) {
				return io.NopCloser(io.MultiReader(bytes.NewReader(good[:9]), failing{why})), nil
			}
		}, why, ""},
		"no source": {func(s *harness.Snapshot) {
			s.Open = func(context.Context) (io.ReadCloser, error) { return nil, why }
		}, why, ""},
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			if err := os.WriteFile(filepath.Join(state, "said"), []byte("not committed"), 0o600); err != nil {
				t.Fatal(err)
			}
			k := newKeeper()
			w := newWorker(t, k, apart(t, state))
			c := w.dial(t)
			s := snapshot(1, good)
			tc.change(&s)
			err := c.Restore(t.Context(), s)
			e := new(Error)
			if tc.code != "" && (!errors.As(err, &e) || e.Code != tc.code) || tc.want != nil && !errors.Is(err, tc.want) || err == nil {
				t.Fatalf("got %v, want %v %s", err, tc.want, tc.code)
			}
			// The worker is as it was, and takes a good one, when it has noticed that nothing more comes.
			eventually(t, "a good state is taken", func() bool {
				err := c.Restore(t.Context(), snapshot(1, good))
				if e := new(Error); err != nil && (!errors.As(err, &e) || e.Code != CodeBusy) {
					t.Fatal(err)
				}
				return err == nil
			})
			if err := c.Bind(t.Context(), bindRequest()); err != nil {
				t.Fatal(err)
			}
			if got := k.said(t); got != "packed " {
				t.Fatalf("the worker begins with %q", got)
			}
			err = c.Restore(t.Context(), snapshot(1, good))
			if !errors.Is(err, harness.ErrConflict) {
				t.Fatalf("on a bound worker: %v, want ErrConflict", err)
			}
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestStateThatIsCutOff: a reader that loses the worker gets an error, never a short state.
func TestStateThatIsCutOff(t *testing.T) {
	k := newKeeper()
	noise := make([]byte, 8<<20)
	x := uint32(7)
	for i := range noise {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	k.turn = func(_ context.Context, _ harness.Turn, sink Sink) error {
		return errors.Join(os.WriteFile(filepath.Join(k.state, "said"), noise, 0o600), yield(sink, finished()))
	}
	c := newWorker(t, k, apart(t, "")).bound(t)
	startFrom(t, c, "run_1", "x", harness.Head{})
	drain(t, c, "run_1", 0)
	s, err := c.State(t.Context(), "run_1")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Body.Close()
	if _, err := io.ReadFull(s.Body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if n, err := io.Copy(io.Discard, s.Body); !errors.Is(err, harness.ErrUnreachable) {
		t.Fatalf("%d bytes, then %v, want ErrUnreachable", n, err)
	}
}

// TestThreadTransitions: over any order of ends, commits and starts, a turn begins only from the committed state, and a
// committed head never goes back.
func TestThreadTransitions(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var th thread
		active := false
		content := "" // what the native state is
		committed := map[harness.Head]string{{}: ""}
		known := []harness.Head{{}}
		hash := func(s string) string { return hashOf([]byte(s)) }
		runs := 0
		for range rapid.IntRange(1, 30).Draw(r, "steps") {
			switch op := rapid.SampledFrom([]string{"start", "end", "fail", "commit"}).Draw(r, "op"); op {
			case "start":
				if active {
					continue
				}
				head := rapid.SampledFrom(known).Draw(r, "head")
				if rapid.Bool().Draw(r, "implied") && th.last.uncommitted() && th.last.err == nil {
					head = harness.Head{Rev: th.head.Rev + 1, Hash: th.last.hash} // the engine committed and did not say so
					committed[head] = content
					known = append(known, head)
				}
				if err := th.begin(head); err == nil {
					if committed[head] != content {
						r.Fatalf("began from %q, the head is %q", content, committed[head])
					}
					active = true
					runs++
					content += "x"
				}
			case "end", "fail":
				if !active {
					continue
				}
				active = false
				th.last = &packed{run: fmt.Sprint(runs), hash: hash(content)}
				if op == "fail" {
					th.last.err = errors.New("x")
				}
			case "commit":
				if active {
					continue
				}
				before := th.head
				head := harness.Head{Rev: rapid.Int64Range(1, 5).Draw(r, "rev"), Hash: hash(strings.Repeat("x", rapid.IntRange(0, 5).Draw(r, "n")))}
				if th.commit(fmt.Sprint(rapid.IntRange(0, runs).Draw(r, "run")), head) == nil {
					if head.Hash != hash(content) || head.Rev < before.Rev {
						r.Fatalf("committed %+v over %+v, the state is %q", head, before, content)
					}
					committed[head] = content
					known = append(known, head)
				}
			}
		}
	})
}
