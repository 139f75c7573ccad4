package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

func TestIdempotentStart(t *testing.T) {
	played := make(chan struct{}, 10)
	w := newWorker(t, &testDriver{turn: func(ctx context.Context, turn harness.Turn, s Sink) error {
		played <- struct{}{}
		return untilCancelled(ctx, turn, s)
	}})
	c := w.bound(t)
	for i := range 5 {
		// An engine that took over has a fresh capability and less time.
		if err := c.StartTurn(t.Context(), harness.Turn{RunID: "run_1", Text: "x", Capability: fmt.Sprint(i), DeadlineMs: int64(100_000 - i)}); err != nil {
			t.Fatal(err)
		}
	}
	if g, _, ok := w.host.facade.current(); !ok || g.capability != "4" {
		t.Fatalf("capability is %+v", g)
	}
	if err := c.StartTurn(t.Context(), harness.Turn{RunID: "run_2", Text: "x"}); !errors.Is(err, harness.ErrConflict) {
		t.Fatalf("a second run: %v, want ErrConflict", err)
	} else if e := new(Error); !errors.As(err, &e) || e.Code != CodeBusy {
		t.Fatalf("a second run: %v, want busy", err)
	}
	if err := c.Cancel(t.Context(), "run_1", event.CancelClientRequest); err != nil {
		t.Fatal(err)
	}
	drain(t, c, "run_1", 0)
	if len(played) != 1 {
		t.Fatalf("played %d times", len(played))
	}
	if _, _, ok := w.host.facade.current(); ok {
		t.Fatal("the model can be called without a run")
	}
}

func TestLease(t *testing.T) {
	calls := map[string]func(c *Client) error{
		"bind":   func(c *Client) error { return c.Bind(context.Background(), bindRequest()) },
		"attach": func(c *Client) error { return c.Attach(context.Background(), "") },
		"start": func(c *Client) error {
			return c.StartTurn(context.Background(), harness.Turn{RunID: "run_1", Text: "x"})
		},
		"cancel": func(c *Client) error { return c.Cancel(context.Background(), "run_0", event.CancelSuperseded) },
		"ack":    func(c *Client) error { return c.Ack(context.Background(), "run_1", 1) },
		"events": func(c *Client) error {
			s, err := c.Events(context.Background(), "run_1", 0)
			if err == nil {
				s.Close()
			}
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			w := newWorker(t, &testDriver{turn: func(ctx context.Context, turn harness.Turn, s Sink) error {
				if turn.RunID == "run_0" {
					return echo(ctx, turn, s)
				}
				if err := yield(s); err != nil {
					return err
				}
				return untilCancelled(ctx, turn, s)
			}})
			old := w.bound(t)
			startTurn(t, old, "run_0", "x")
			drain(t, old, "run_0", 0)
			startTurn(t, old, "run_1", "x")
			s := openEvents(t, old, "run_1", 0)
			if _, err := s.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := call(w.dial(t, lease(3))); err != nil {
				t.Fatal("the higher lease:", err)
			}
			if _, err := s.Next(t.Context()); !errors.Is(err, harness.ErrStaleLease) {
				t.Fatalf("the old stream: %v, want ErrStaleLease", err)
			}
			for _, n := range []int64{1, 2} {
				stale := w.dial(t, lease(n))
				for name, call := range calls {
					if err := call(stale); !errors.Is(err, harness.ErrStaleLease) {
						t.Errorf("%s with lease %d: %v, want ErrStaleLease", name, n, err)
					}
				}
				if err := stale.Shutdown(t.Context()); !errors.Is(err, harness.ErrStaleLease) {
					t.Errorf("shutdown with lease %d: %v, want ErrStaleLease", n, err)
				}
			}
			r, err := old.Ready(t.Context())
			if err != nil || r.Bound.LeaseGen != 3 || r.ActiveRun != "run_1" {
				t.Fatalf("a stale call had an effect: %+v %v", r, err)
			}
		})
	}
}

func TestReadyClaimsNothing(t *testing.T) {
	w := newWorker(t, &testDriver{turn: echo})
	c := w.bound(t)
	w.dial(t, lease(9))
	startTurn(t, c, "run_1", "x")
}

func TestBindOnce(t *testing.T) {
	opened := make(chan struct{}, 10)
	release := make(chan struct{})
	w := newWorker(t, &testDriver{turn: echo, open: func(ctx context.Context, env Environment, c harness.Construction) error {
		opened <- struct{}{}
		<-release
		return nil
	}})
	// The engine goes away while the harness opens; another one finds it opening.
	ctx, cancel := context.WithCancel(t.Context())
	first := w.dial(t)
	gone := make(chan error, 1)
	go func() { gone <- first.Bind(ctx, bindRequest()) }()
	<-opened
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	second := w.dial(t, lease(2))
	if err := second.StartTurn(t.Context(), harness.Turn{RunID: "run_1"}); err == nil {
		t.Fatal("a turn on a harness that is not open")
	}
	attached := make(chan error, 2)
	go func() { attached <- second.Attach(t.Context(), "") }()
	go func() {
		r := bindRequest()
		r.Construction.Options = json.RawMessage(` { "a" : 1 } `) // spelled otherwise
		attached <- second.Bind(t.Context(), r)
	}()
	close(release)
	for range 2 {
		if err := <-attached; err != nil {
			t.Fatal(err)
		}
	}
	if len(opened) != 0 {
		t.Fatal("the harness was opened twice")
	}
	startTurn(t, second, "run_1", "x")
}

func TestOpenFails(t *testing.T) {
	for name, tc := range map[string]struct {
		open    func() error
		message string
	}{
		"error":   {func() error { return errors.New("no /secret/path") }, "the harness could not be opened"},
		"panic":   {func() error { panic("no /secret/path") }, "the harness could not be opened"},
		"failure": {func() error { return &Failure{Code: "x", Message: "Node is missing.", Cause: errors.New("/secret")} }, "Node is missing."},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorker(t, &testDriver{open: func(context.Context, Environment, harness.Construction) error { return tc.open() }})
			c := w.dial(t)
			for range 2 {
				err := c.Bind(t.Context(), bindRequest())
				e := new(Error)
				if !errors.As(err, &e) || e.Code != CodeOpenFailed || e.Message != tc.message {
					t.Fatalf("got %v", err)
				}
			}
			if err := c.StartTurn(t.Context(), harness.Turn{RunID: "run_1"}); !errors.Is(err, harness.ErrGone) {
				t.Fatalf("got %v, want ErrGone", err)
			}
			if err := c.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
