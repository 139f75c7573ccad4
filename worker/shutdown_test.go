package worker

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

func TestShutdown(t *testing.T) {
	closed := make(chan struct{})
	w := newWorker(t, &testDriver{turn: untilCancelled, close: func(context.Context) error { close(closed); return nil }})
	c := w.bound(t)
	startTurn(t, c, "run_1", "x")
	s := openEvents(t, c, "run_1", 0)
	if err := c.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-closed
	<-w.host.Done()
	e, err := s.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := e.Events[0].Data.(event.RunCancelled); got.Reason != event.CancelShutdown {
		t.Fatalf("got %+v", got)
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Fatalf("got %v, want EOF", err)
	}
	eventually(t, "the socket is gone", func() bool {
		_, err := os.Lstat(w.socket)
		return errors.Is(err, os.ErrNotExist)
	})
	if err := c.StartTurn(t.Context(), harness.Turn{RunID: "run_2"}); !errors.Is(err, harness.ErrUnreachable) {
		t.Fatalf("got %v, want ErrUnreachable", err)
	}
}

func TestShutdownIsBounded(t *testing.T) {
	free := make(chan struct{})
	defer close(free)
	w := newWorker(t, &testDriver{
		turn:  func(context.Context, harness.Turn, Sink) error { <-free; return nil },
		close: func(context.Context) error { <-free; return nil },
	})
	c := w.bound(t)
	startTurn(t, c, "run_1", "x")
	if err := c.Shutdown(t.Context()); err != nil { // and it returns, though nothing of the harness does
		t.Fatal(err)
	}
}

func TestEndIdle(t *testing.T) {
	w := newWorker(t, &testDriver{turn: untilCancelled})
	c := w.bound(t)
	if err := EndIdle(t.Context(), w.socket, testSecret, time.Hour); !errors.Is(err, harness.ErrConflict) {
		t.Fatalf("just called: %v, want ErrConflict", err)
	}
	startTurn(t, c, "run_1", "x")
	if err := EndIdle(t.Context(), w.socket, testSecret, time.Nanosecond); !errors.Is(err, harness.ErrConflict) {
		t.Fatalf("busy: %v, want ErrConflict", err)
	}
	if err := c.Cancel(t.Context(), "run_1", event.CancelClientRequest); err != nil {
		t.Fatal(err)
	}
	drain(t, c, "run_1", 0)
	s := openEvents(t, c, "run_1", 0)
	if err := EndIdle(t.Context(), w.socket, "wrong", time.Nanosecond); !errors.Is(err, harness.ErrConflict) {
		t.Fatalf("wrong secret: %v, want ErrConflict", err)
	}
	s.Close()
	eventually(t, "the idle worker ends", func() bool {
		return EndIdle(t.Context(), w.socket, testSecret, time.Millisecond) == nil
	})
	<-w.host.Done()
}
