package client

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func renewal(f func() Target) func(context.Context) (Target, error) {
	return func(context.Context) (Target, error) { return f(), nil }
}

// readAll reads a feed to its end and returns the sequences.
func readAll(ctx context.Context, f *Feed) (sequences []int64, err error) {
	defer f.Close()
	for {
		b, err := f.Next(ctx)
		if errors.Is(err, io.EOF) {
			return sequences, nil
		}
		if err != nil {
			return sequences, err
		}
		if len(b.Events) == 0 {
			return sequences, errors.New("an empty batch")
		}
		for _, e := range b.Events {
			sequences = append(sequences, e.Sequence)
		}
	}
}

func upTo(from, to int64) (all []int64) {
	for n := from; n <= to; n++ {
		all = append(all, n)
	}
	return all
}

// Whatever connections do, a feed gives each event once, in order.
func TestFeedLosesAndDoublesNothing(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		acts := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) act {
			return act{
				through: rapid.Int64Range(0, terminalAt-1).Draw(r, "through"),
				overlap: rapid.Int64Range(0, 5).Draw(r, "overlap"),
				skip:    rapid.Bool().Draw(r, "skip"),
				end: rapid.SampledFrom([]string{"complete", "cut", "error INTERNAL", "error CAPACITY",
					"error AUTHORIZATION_UNAVAILABLE", "error RATE_LIMITED"}).Draw(r, "end"),
			}
		}), 0, 3).Draw(r, "acts")
		after := rapid.Int64Range(0, terminalAt-1).Draw(r, "after")
		s := newServer(t, slices.Clone(acts)...)
		lost, found := 0, 0
		f := s.client(t, nil).Feed("run_x", FeedOptions{After: after, Lost: func(error) { lost++ }, Found: func() { found++ }})
		f.waits.InitialInterval, f.waits.MaxInterval = time.Millisecond, 2*time.Millisecond
		f.waits.Reset()
		got, err := readAll(t.Context(), f)
		if err != nil {
			r.Fatal(err)
		}
		if want := upTo(after+1, terminalAt); !slices.Equal(got, want) {
			r.Fatalf("got %v, want %v", got, want)
		}
		if lost != found {
			r.Fatalf("told of %d losses and %d returns", lost, found)
		}
		if f.Through() != terminalAt {
			r.Fatalf("through %d", f.Through())
		}
	})
}

func TestFeedEndsForGood(t *testing.T) {
	for _, code := range []string{CodeNotFound, "FORBIDDEN", CodeBadUserInput} {
		s := newServer(t, act{through: 3, end: "error " + code})
		got, err := readAll(t.Context(), s.client(t, nil).Feed("run_x", FeedOptions{}))
		if Code(err) != code || !slices.Equal(got, upTo(1, 3)) {
			t.Errorf("%s: got %v after %v", code, err, got)
		}
	}
}

func TestFeedRenewsTheToken(t *testing.T) {
	s := newServer(t)
	s.accept = func(token string) bool { return token == "Bearer second" }
	c := s.client(t, func() Target { return Target{URL: s.URL, Token: "second"} })
	got, err := readAll(t.Context(), c.Feed("run_x", FeedOptions{}))
	if err != nil || len(got) != terminalAt {
		t.Fatalf("got %d events, %v", len(got), err)
	}
	if want := []string{"Bearer first", "Bearer second"}; !slices.Equal(s.tokens, want) {
		t.Errorf("tokens %v, want %v", s.tokens, want)
	}
}

func TestFeedGivesUpARefusedToken(t *testing.T) {
	s := newServer(t)
	s.accept = func(string) bool { return false }
	_, err := readAll(t.Context(), s.client(t, nil).Feed("run_x", FeedOptions{}))
	if Code(err) != CodeUnauthenticated || len(s.tokens) != 2 {
		t.Errorf("got %v after %d attempts, want %s after 2", err, len(s.tokens), CodeUnauthenticated)
	}
}

// An engine that was started anew listens elsewhere.
func TestFeedFollowsTheEngine(t *testing.T) {
	before := newServer(t, act{through: 7, end: "cut"})
	after := newServer(t)
	c := before.client(t, func() Target { return Target{URL: after.URL} })
	got, err := readAll(t.Context(), c.Feed("run_x", FeedOptions{}))
	if err != nil || !slices.Equal(got, upTo(1, terminalAt)) {
		t.Fatalf("got %v, %v", got, err)
	}
	if !slices.Equal(after.afters, []int64{7}) {
		t.Errorf("went on behind %v, want 7", after.afters)
	}
}

func TestFeedLosesPatience(t *testing.T) {
	s := newServer(t)
	s.Close()
	told := 0
	f := s.client(t, nil).Feed("run_x", FeedOptions{Patience: 300 * time.Millisecond, Lost: func(error) { told++ }})
	_, err := f.Next(t.Context())
	if !errors.Is(err, ErrCut) || !strings.Contains(err.Error(), "gave up") || told != 1 {
		t.Errorf("got %v, told %d times", err, told)
	}
}

func TestFeedEndsWithItsContext(t *testing.T) {
	why := errors.New("enough")
	for name, s := range map[string]*server{"connected": newServer(t, act{}), "not connected": func() *server { s := newServer(t); s.Close(); return s }()} {
		ctx, cancel := context.WithCancelCause(t.Context())
		f := s.client(t, nil).Feed("run_x", FeedOptions{Lost: func(error) { cancel(why) }})
		if name == "connected" {
			time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
		}
		if _, err := readAll(ctx, f); !errors.Is(err, why) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A connection that is there again counts as found, also when nothing happens in the run.
func TestFeedIsFoundWithoutEvents(t *testing.T) {
	s := newServer(t, act{through: 2, end: "cut"}, act{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := s.client(t, nil).Feed("run_x", FeedOptions{Found: cancel})
	got, err := readAll(ctx, f)
	if !errors.Is(err, context.Canceled) || !slices.Equal(got, upTo(1, 2)) {
		t.Errorf("got %v, %v", got, err)
	}
}
