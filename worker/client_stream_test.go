package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// pumped is a stream over a pipe, whose reading end fails when its context ends, as a response's body does.
func pumped(t *testing.T) (*clientStream, *io.PipeWriter) {
	ctx, end := context.WithCancelCause(t.Context())
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { r.CloseWithError(context.Cause(ctx)) })
	s := &clientStream{steps: make(chan harness.SourceEvent, streamAhead), end: end, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = s.pump(ctx, r, 0)
		close(s.steps)
	}()
	return s, w
}

func TestSilentWorkerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := pumped(t)
		for range 5 {
			time.Sleep(SilenceLimit - time.Second)
			if _, err := io.WriteString(w, "{\"heartbeat\":true}\n"); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		_, err := s.Next(t.Context())
		if !errors.Is(err, harness.ErrUnreachable) {
			t.Fatalf("got %v, want ErrUnreachable", err)
		}
		if took := time.Since(begin); took != SilenceLimit {
			t.Fatalf("took %v, want %v", took, SilenceLimit)
		}
	})
}

// TestSlowReaderLosesNothing: a caller that takes its time is not mistaken for a silent worker.
func TestSlowReaderLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := pumped(t)
		const n = 3 * streamAhead
		go func() {
			for i := range n {
				fmt.Fprintf(w, "{\"seq\":%d}\n", i+1)
			}
			io.WriteString(w, "{\"end\":true}\n")
		}()
		time.Sleep(10 * SilenceLimit)
		for i := range n {
			e, err := s.Next(t.Context())
			if err != nil || e.Seq != int64(i+1) {
				t.Fatalf("step %d: %+v %v", i+1, e, err)
			}
			if i%50 == 0 {
				time.Sleep(2 * SilenceLimit)
			}
		}
		if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Fatalf("got %v, want EOF", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestNextHonoursItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := pumped(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		io.WriteString(w, "{\"seq\":1}\n") // the stream is as it was
		if e, err := s.Next(t.Context()); err != nil || e.Seq != 1 {
			t.Fatalf("%+v %v", e, err)
		}
		s.Close()
		if _, err := s.Next(t.Context()); !errors.Is(err, harness.ErrUnreachable) {
			t.Fatalf("got %v, want ErrUnreachable", err)
		}
	})
}
