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
	caseTimeout = 10 * time.Minute // for what never comes; what comes late on a slow machine is no failure
	lookPause   = 10 * time.Millisecond
	idleStore   = time.Second // without a transaction, before one is caused
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

// order has the store's next transaction fail, and waits until it has begun. Where everybody is done with writing, one is caused.
func (e failing) order(ctx context.Context, t *testing.T, kind string, d time.Duration) {
	t.Helper()
	if err := rig.Order(e.orders, kind, d, 0); err != nil {
		t.Fatal(err)
	}
	idle := time.NewTicker(idleStore)
	defer idle.Stop()
	var writes sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); writes.Wait() }()
	for {
		if _, err := os.Stat(e.orders); errors.Is(err, fs.ErrNotExist) {
			return
		}
		select {
		case <-time.After(lookPause):
		case <-idle.C:
			writes.Go(func() { e.write(ctx) })
		case <-ctx.Done():
			t.Fatalf("nobody took the order %s: %v", kind, context.Cause(ctx))
		}
	}
}

// write has the store write something; whether it does is not asked.
func (e failing) write(ctx context.Context) {
	c := e.Client()
	defer c.Close()
	_, _ = c.NewAgent(ctx, fmt.Sprintf("extra-%d", time.Now().UnixNano()), "scripted")
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
				r := begin(ctx, t, c, agent, enginetest.CountHeld(words, 20*time.Millisecond))
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
			if err := engine.Release(ctx, ""); err != nil {
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
	ctx := bounded(t)
	engine := startFailing(t)
	c, agent := newClient(ctx, t, engine.Engine)
	var begun []*witness
	for range runs {
		r := begin(ctx, t, c, agent, enginetest.CountHeld(words, 20*time.Millisecond))
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
		brief, cancel := context.WithTimeout(ctx, 2*time.Minute)
		if err := engine.Restart(brief); err == nil { // with fewer commits than that; others follow
			for ended := false; !ended; {
				engine.write(brief)
				select {
				case <-engine.Exited():
					ended = true
				case <-brief.Done():
					t.Fatalf("the engine goes on after its commit %d has failed", after+1)
				case <-time.After(lookPause):
				}
			}
		} else if !errors.Is(err, enginetest.ErrExited) {
			t.Fatalf("the commit %d of the start failed, and the engine does not end: %v", after+1, err)
		}
		cancel()
	}
	if err := engine.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if err := engine.Release(ctx, ""); err != nil {
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
// what is cancelled lands its terminal in the room that is kept for that. With room again they go on where they were. On a machine
// that is too slow to look at all of this while the disk is full, it is full for longer.
func TestDiskThatIsFull(t *testing.T) {
	for full := 4 * time.Second; ; full *= 4 {
		err := fillDisk(t, full)
		if err == nil {
			return
		}
		if full > time.Minute {
			t.Fatal(err)
		}
		t.Logf("within %s: %v", full, err)
	}
}

// fillDisk has the disk full for so long. Its error is what was not seen while it was.
func fillDisk(t *testing.T, full time.Duration) error {
	t.Helper()
	const runs, words = 5, 80
	ctx := bounded(t)
	engine := startFailing(t)
	c, agent := newClient(ctx, t, engine.Engine)
	idle := begin(ctx, t, c, agent, enginetest.Say("nothing more"), enginetest.Hang())
	quiet := watch(ctx, t, c, idle.ID, 0)
	quiet.await(ctx, t, 5) // run.started, text.started, two deltas, text.finished
	var busy []*witness
	for range runs {
		r := begin(ctx, t, c, agent, enginetest.CountHeld(words, 40*time.Millisecond))
		busy = append(busy, watch(ctx, t, c, r.ID, 0))
	}
	for _, w := range busy {
		w.await(ctx, t, 6)
	}
	ordered := time.Now()
	engine.order(ctx, t, "full", full)
	room := time.After(time.Until(ordered.Add(full - 500*time.Millisecond)))
	inTime := func() bool { return time.Since(ordered) < full }
	if _, err := c.Cancel(ctx, idle.ID); err != nil {
		t.Errorf("a cancel on a full disk: %v", err)
	}
	select {
	case <-quiet.done:
	case <-room:
		return errors.New("the terminal of the cancelled run has to land while the disk is full")
	}
	if end := enginetest.Last(quiet.events()); end.Type != enginetest.RunCancelled {
		t.Errorf("the cancelled run shows %s", end)
	}
	var refusal *enginetest.Refusal
	_, err := c.Start(ctx, enginetest.StartInput{AgentID: agent, Message: enginetest.Input{Text: "more"}})
	if !inTime() {
		return errors.New("new work has to be refused while the disk is full")
	}
	if !errors.As(err, &refusal) || refusal.Code != "CAPACITY" {
		t.Errorf("new work on a full disk: %v", err)
	}
	before := durable(ctx, t, c, busy)
	<-room
	after := durable(ctx, t, c, busy)
	if !inTime() {
		return errors.New("the runs have to be looked at while the disk is full")
	}
	for i, w := range busy {
		if after[i] != before[i] {
			t.Errorf("run %s went on from %d to %d events on a full disk", w.run, before[i], after[i])
		}
	}
	if err := engine.Release(ctx, ""); err != nil {
		t.Fatal(err)
	}
	for _, w := range busy {
		select {
		case <-w.done:
		case <-ctx.Done():
			t.Fatalf("run %s does not go on with room again", w.run)
		}
		wantWhole(ctx, t, c, w.run, w.events(), words)
	}
	return nil
}

// durable is how many events each run has in the store.
func durable(ctx context.Context, t *testing.T, c *enginetest.Client, runs []*witness) []int {
	t.Helper()
	var out []int
	for _, w := range runs {
		log, err := c.Log(ctx, w.run, 0)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, len(log))
	}
	return out
}
