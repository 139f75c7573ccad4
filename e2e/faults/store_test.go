package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/e2e/faults/rig"
)

const (
	caseTimeout = 90 * time.Second
	lookPause   = 10 * time.Millisecond
)

// failing is an engine whose store fails by order.
type failing struct {
	*enginetest.Engine
	orders string
}

func startFailing(t *testing.T) failing {
	t.Helper()
	dir := folder(t)
	orders := filepath.Join(dir, "order")
	e, err := enginetest.Start(t.Context(), enginetest.Options{
		Binaries: programs(t), Data: filepath.Join(dir, "d"), Env: []string{rig.StoreFaults + "=" + orders},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("engine log:\n%s", e.Log())
		}
		if err := e.Cleanup(); err != nil {
			t.Error(err)
		}
	})
	return failing{e, orders}
}

// order has the store's next transaction fail, and waits until it has begun.
func (e failing) order(ctx context.Context, t *testing.T, kind string, d time.Duration) {
	t.Helper()
	if err := rig.Order(e.orders, kind, d, 0); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(e.orders); errors.Is(err, fs.ErrNotExist) {
			return
		}
		select {
		case <-time.After(lookPause):
		case <-ctx.Done():
			t.Fatalf("nobody took the order %s: %v", kind, context.Cause(ctx))
		}
	}
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
	t.Cleanup(cancel)
	return ctx
}

// begin starts a run with a script in a conversation of its own.
func begin(ctx context.Context, t *testing.T, c *enginetest.Client, agent string, steps ...enginetest.Step) enginetest.Run {
	t.Helper()
	r, err := c.Start(ctx, enginetest.StartInput{AgentID: agent, Message: enginetest.Input{Text: enginetest.Script(steps...)}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newClient(ctx context.Context, t *testing.T, e *enginetest.Engine) (*enginetest.Client, string) {
	t.Helper()
	c := e.Client()
	t.Cleanup(c.Close)
	a, err := c.NewAgent(ctx, fmt.Sprintf("agent-%d", time.Now().UnixNano()), "scripted")
	if err != nil {
		t.Fatal(err)
	}
	return c, a.ID
}

// witness follows a run until its connection ends, whatever ends it, and says how many events have come so far.
type witness struct {
	run  string
	mu   sync.Mutex
	seen []enginetest.Event
	done chan struct{}
}

func watch(ctx context.Context, t *testing.T, c *enginetest.Client, run string, after int64) *witness {
	t.Helper()
	s, err := c.Watch(ctx, run, after)
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{run: run, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer s.Close()
		for {
			b, err := s.Next(ctx)
			if err != nil {
				return
			}
			w.mu.Lock()
			w.seen = append(w.seen, b.Events...)
			w.mu.Unlock()
		}
	}()
	return w
}

func (w *witness) events() []enginetest.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]enginetest.Event(nil), w.seen...)
}

func (w *witness) await(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	for len(w.events()) < n {
		select {
		case <-time.After(lookPause):
		case <-ctx.Done():
			t.Fatalf("run %s shows %d events, want %d: %v", w.run, len(w.events()), n, context.Cause(ctx))
		}
	}
}

// TestDiskThatFails has the disk fail a commit of many runs, at its first write or at its sync. The engine says so and
// ends at once, without a word to anybody; the next one has everything that was shown, and every run is whole.
func TestDiskThatFails(t *testing.T) {
	for _, kind := range []string{"fsync", "io"} {
		t.Run(kind, func(t *testing.T) {
			const runs, words = 6, 100
			ctx := bounded(t)
			engine := startFailing(t)
			c, agent := newClient(ctx, t, engine.Engine)
			var shown []*witness
			for range runs {
				r := begin(ctx, t, c, agent, enginetest.Count(words, 20*time.Millisecond))
				shown = append(shown, watch(ctx, t, c, r.ID, 0))
			}
			for _, w := range shown {
				w.await(ctx, t, 10)
			}
			engine.order(ctx, t, kind, 0)
			select {
			case <-engine.Exited():
			case <-ctx.Done():
				t.Fatal("the engine goes on after its disk has failed")
			}
			if code := engine.ExitCode(); code != 1 || !strings.Contains(engine.Log(), "nothing more may be acknowledged") {
				t.Errorf("the engine ended with code %d", code)
			}
			if err := engine.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			again := engine.Client()
			t.Cleanup(again.Close)
			for _, w := range shown {
				<-w.done
				seen := w.events()
				rest, err := again.Follow(ctx, w.run, enginetest.Last(seen).Sequence)
				if err != nil {
					t.Fatal(err)
				}
				wantWhole(ctx, t, again, w.run, append(seen, rest...), words)
			}
		})
	}
}

// wantWhole compares what was seen with the log, and the log with the script.
func wantWhole(ctx context.Context, t *testing.T, c *enginetest.Client, run string, seen []enginetest.Event, words int) {
	t.Helper()
	log, err := c.Log(ctx, run, 0)
	if err != nil {
		t.Fatal(err)
	}
	if d := enginetest.Compare(seen, log); !d.None() {
		t.Errorf("run %s: %s", run, d)
	}
	if err := enginetest.CheckLog(log); err != nil {
		t.Errorf("run %s: %v", run, err)
	}
	if end := enginetest.Last(log); end.Type != enginetest.RunFinished || enginetest.Text(log) != enginetest.Counted(words) {
		t.Errorf("run %s ended with %s, its text is %q", run, end, enginetest.Text(log))
	}
}

// TestDiskThatFailsAtStart has the disk fail one after the other of the commits of an engine that starts and takes runs over. It
// ends each time, soon, and keeps nothing that the next one needs.
func TestDiskThatFailsAtStart(t *testing.T) {
	const runs, words, commits = 4, 40, 8
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	engine := startFailing(t)
	c, agent := newClient(ctx, t, engine.Engine)
	var begun []*witness
	for range runs {
		r := begin(ctx, t, c, agent, enginetest.Count(words, 20*time.Millisecond))
		begun = append(begun, watch(ctx, t, c, r.ID, 0))
	}
	for _, w := range begun {
		w.await(ctx, t, 3)
	}
	engine.Kill()
	for after := range commits {
		if err := rig.Order(engine.orders, "io", 0, after); err != nil {
			t.Fatal(err)
		}
		brief, cancel := context.WithTimeout(ctx, 20*time.Second)
		if err := engine.Restart(brief); err == nil {
			select {
			case <-engine.Exited():
			case <-brief.Done():
				t.Fatalf("the engine goes on after its commit %d has failed", after+1)
			}
		} else if !errors.Is(err, enginetest.ErrExited) {
			t.Fatalf("the commit %d of the start failed, and the engine does not end: %v", after+1, err)
		}
		cancel()
	}
	if err := engine.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	again := engine.Client()
	t.Cleanup(again.Close)
	for _, w := range begun {
		<-w.done
		seen := w.events()
		rest, err := again.Follow(ctx, w.run, enginetest.Last(seen).Sequence)
		if err != nil {
			t.Fatal(err)
		}
		wantWhole(ctx, t, again, w.run, append(seen, rest...), words)
	}
}

// TestDiskThatIsFull fills the disk under runs at work: they pause, none of them ends by it, new work is refused, and
// what is cancelled lands its terminal in the room that is kept for that. With room again they go on where they were.
func TestDiskThatIsFull(t *testing.T) {
	const runs, words = 5, 80
	ctx := bounded(t)
	engine := startFailing(t)
	c, agent := newClient(ctx, t, engine.Engine)
	idle := begin(ctx, t, c, agent, enginetest.Say("nothing more"), enginetest.Hang())
	quiet := watch(ctx, t, c, idle.ID, 0)
	quiet.await(ctx, t, 5) // run.started, text.started, two deltas, text.finished
	var busy []*witness
	for range runs {
		r := begin(ctx, t, c, agent, enginetest.Count(words, 40*time.Millisecond))
		busy = append(busy, watch(ctx, t, c, r.ID, 0))
	}
	for _, w := range busy {
		w.await(ctx, t, 6)
	}
	const full = 4 * time.Second
	engine.order(ctx, t, "full", full)
	room := time.After(full - 500*time.Millisecond)
	if _, err := c.Cancel(ctx, idle.ID); err != nil {
		t.Errorf("a cancel on a full disk: %v", err)
	}
	select {
	case <-quiet.done:
	case <-room:
		t.Error("the terminal of the cancelled run has to land while the disk is full")
	}
	if end := enginetest.Last(quiet.events()); end.Type != enginetest.RunCancelled {
		t.Errorf("the cancelled run shows %s", end)
	}
	var refusal *enginetest.Refusal
	_, err := c.Start(ctx, enginetest.StartInput{AgentID: agent, Message: enginetest.Input{Text: "more"}})
	if !errors.As(err, &refusal) || refusal.Code != "CAPACITY" {
		t.Errorf("new work on a full disk: %v", err)
	}
	var before []int
	for _, w := range busy {
		before = append(before, len(w.events()))
	}
	<-room
	for i, w := range busy {
		if n := len(w.events()); n != before[i] {
			t.Errorf("run %s went on from %d to %d events on a full disk", w.run, before[i], n)
		}
	}
	for _, w := range busy {
		select {
		case <-w.done:
		case <-ctx.Done():
			t.Fatalf("run %s does not go on with room again", w.run)
		}
		wantWhole(ctx, t, c, w.run, w.events(), words)
	}
}
