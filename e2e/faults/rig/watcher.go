package rig

import (
	"context"
	"errors"
	"hash/fnv"
	"io"
	"strconv"
	"sync"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/e2e/faults/judge"
	"github.com/harness-engine/harness-engine/internal/client"
)

// printOf digests everything that came with an event.
func printOf(e enginetest.Event) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, e.String()) // never fails
	return h.Sum64()
}

// watcher is a client that listens to one run, on one connection after the other, and writes down all that it gets.
type watcher struct {
	run  string
	done chan struct{}

	mu      sync.Mutex
	view    judge.View
	asked   *enginetest.Interrupt
	waiting string // what it waits for
}

func (w *watcher) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

func (w *watcher) last() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(len(w.view.Events))
}

func (w *watcher) state() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting
}

func (w *watcher) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = what
}

// question is what the run stopped to ask, nil where it did not.
func (w *watcher) question() *enginetest.Interrupt {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// follow sends two clients to listen to an acknowledged run: one stays where it can, the other leaves by itself, too. It
// returns the first. A run that is followed already has who follows it.
func (t *talk) follow(ctx context.Context, run, session string, leave int) *watcher {
	t.mu.Lock()
	if t.session == "" && session != "" {
		t.session = session
		t.whole = newSessionWatcher(t, session)
		go t.whole.listen(ctx)
	}
	t.runs[run] = true
	for _, w := range t.views {
		if w.run == run {
			t.mu.Unlock()
			return w
		}
	}
	var out []*watcher
	for i, leaves := range []int{0, leave} {
		if i > 0 && leave == 0 {
			break
		}
		w := &watcher{run: run, done: make(chan struct{}), view: judge.View{Client: name(t.n, i), Run: run}}
		t.views = append(t.views, w)
		out = append(out, w)
		go func() {
			defer close(w.done)
			t.listen(ctx, w, leaves)
		}()
	}
	t.mu.Unlock()
	return out[0]
}

func name(talk, i int) string {
	return "client " + string(rune('a'+i)) + " of talk " + strconv.Itoa(talk)
}

// listen reads the run to its end.
func (t *talk) listen(ctx context.Context, w *watcher, leave int) {
	at, after := -1, int64(0)
	for ctx.Err() == nil {
		at = t.somewhere(at)
		w.note("connecting to " + strconv.Itoa(at))
		through, ended, err := t.hear(ctx, w, at, after, leave)
		after = through
		if ended {
			return
		}
		if code := enginetest.Code(err); code != "" && !client.Passing(err) {
			t.rig.note(judge.Other, w.run, "is not to be read behind %d: %s", after, err)
			return
		}
		w.note("cut off at " + strconv.FormatInt(after, 10))
		pause(ctx, retryPause)
	}
}

// hear reads on one connection. It returns the cursor to go on from, which is what the engine said, not what was counted.
func (t *talk) hear(ctx context.Context, w *watcher, at int, after int64, leave int) (through int64, ended bool, err error) {
	limited, cancel := context.WithTimeout(ctx, callLimit)
	s, err := t.clients[at].Watch(limited, w.run, after)
	cancel()
	if err != nil {
		return after, false, err
	}
	defer s.Close()
	t.rig.connections.Add(1)
	w.note("listening to " + strconv.Itoa(at))
	for got := 0; ; {
		b, err := s.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			w.mu.Lock()
			defer w.mu.Unlock()
			w.view.Whole = true
			return s.Through(), true, nil
		case err != nil:
			return s.Through(), false, err
		}
		w.take(b.Events)
		if got += len(b.Events); leave > 0 && got >= leave && !enginetest.Last(b.Events).Terminal() {
			s.Cut()
			return s.Through(), false, nil
		}
	}
}

func (w *watcher) take(events []enginetest.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		w.view.Events = append(w.view.Events, judge.Seen{Sequence: e.Sequence, Print: printOf(e)})
		if e.Type == enginetest.InterruptRequested {
			q := e.Interrupt()
			w.asked = &q
		}
		if e.Terminal() && e.Type != enginetest.RunInterrupted {
			w.asked = nil
		}
	}
}

// sessionWatcher is a client that listens to a whole conversation.
type sessionWatcher struct {
	t       *talk
	session string
	done    chan struct{}
	finishC chan struct{}

	mu    sync.Mutex
	view  judge.SessionView
	ends  map[string]bool // runs whose terminal came
	moved chan struct{}   // closed and replaced with each batch
}

func newSessionWatcher(t *talk, session string) *sessionWatcher {
	return &sessionWatcher{t: t, session: session, done: make(chan struct{}), finishC: make(chan struct{}), ends: map[string]bool{},
		moved: make(chan struct{}), view: judge.SessionView{Client: "client of all of talk " + strconv.Itoa(t.n), Session: session}}
}

// listen reads until finish lets it go.
func (w *sessionWatcher) listen(ctx context.Context) {
	defer close(w.done)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.finishC:
			cancel()
		case <-ctx.Done():
		}
	}()
	at, after := -1, ""
	for ctx.Err() == nil {
		at = w.t.somewhere(at)
		var err error
		after, err = w.hear(ctx, at, after)
		if ctx.Err() != nil {
			return
		}
		if code := enginetest.Code(err); code != "" && !client.Passing(err) {
			w.t.rig.note(judge.Other, "", "session %s is not to be read behind %q: %s", w.session, after, err)
			return
		}
		if errors.Is(err, io.EOF) {
			w.t.rig.note(judge.Lost, "", "session %s: its subscription was completed behind %q", w.session, after)
		}
		pause(ctx, retryPause)
	}
}

func (w *sessionWatcher) hear(ctx context.Context, at int, after string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, callLimit)
	s, err := w.t.clients[at].WatchSession(limited, w.session, after)
	cancel()
	if err != nil {
		return after, err
	}
	defer s.Close()
	w.t.rig.connections.Add(1)
	for {
		b, err := s.Next(ctx)
		if err != nil {
			return after, err
		}
		after = b.Through
		w.mu.Lock()
		for _, e := range b.Events {
			w.view.Events = append(w.view.Events, judge.SessionSeen{Ord: b.Ord, Run: b.RunID, Seen: judge.Seen{Sequence: e.Sequence, Print: printOf(e)}})
			if e.Terminal() {
				w.ends[b.RunID] = true
			}
		}
		close(w.moved)
		w.moved = make(chan struct{})
		w.mu.Unlock()
	}
}

// finish waits until the end of every acknowledged run has come, and lets the client go.
func (w *sessionWatcher) finish(ctx context.Context) {
	defer close(w.finishC)
	for {
		w.t.mu.Lock()
		runs := make([]string, 0, len(w.t.runs))
		for run := range w.t.runs {
			runs = append(runs, run)
		}
		w.t.mu.Unlock()
		w.mu.Lock()
		missing := ""
		for _, run := range runs {
			if !w.ends[run] {
				missing = run
				break
			}
		}
		moved := w.moved
		w.mu.Unlock()
		if missing == "" {
			return
		}
		w.t.say("waiting for the end of run " + missing + " in the session's events")
		select {
		case <-moved:
		case <-w.done:
			return
		case <-ctx.Done():
			return
		}
	}
}
