package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Waits between attempts to connect again.
const (
	firstWait = 100 * time.Millisecond
	longest   = 5 * time.Second
	// settled is how long a connection that was made again has to hold, where nothing comes, to count as found.
	settled = time.Second
)

// FeedOptions configure a Feed.
type FeedOptions struct {
	After    int64         // sequence to go on behind; 0 is everything
	Patience time.Duration // how long it tries to get a lost connection back; 0 is until the context ends
	Lost     func(error)   // told once when the connection is gone; may be nil
	Found    func()        // told when it is there again; may be nil
}

// Feed reads a run's events to the end of the run over as many connections as that takes: each event once, in order,
// with nothing left out. It is used by one goroutine.
type Feed struct {
	client *Client
	run    string
	opts   FeedOptions

	watch   *Watch // nil while there is no connection
	last    int64
	ended   bool
	lost    time.Time // when the connection was lost; zero while there is none to get back
	refused bool      // the token was refused at the last attempt
	waits   *backoff.ExponentialBackOff
}

// Feed makes a feed of the run. It connects at the first Next.
func (c *Client) Feed(runID string, o FeedOptions) *Feed {
	return &Feed{client: c, run: runID, opts: o, last: o.After, waits: newWaits()}
}

// Through is the last sequence that was given.
func (f *Feed) Through() int64 { return f.last }

// Next gives the next events; a batch is never empty. io.EOF behind the terminal event. Any other error is for good: the
// run is not to be read (Errors), or patience or the context has ended.
func (f *Feed) Next(ctx context.Context) (Batch, error) {
	for !f.ended {
		b, err := f.attempt(ctx)
		switch {
		case err == nil && len(b.Events) > 0:
			return b, nil
		case err == nil:
			continue
		case ctx.Err() != nil:
			return Batch{}, context.Cause(ctx)
		}
		if err := f.recover(ctx, err); err != nil {
			return Batch{}, err
		}
	}
	return Batch{}, io.EOF
}

// attempt gets what comes next on the connection, which it opens where there is none.
func (f *Feed) attempt(ctx context.Context) (Batch, error) {
	if f.watch == nil {
		w, err := f.client.Watch(ctx, f.run, f.last)
		if err != nil {
			return Batch{}, err
		}
		f.watch = w
	}
	if f.lost.IsZero() {
		b, err := f.watch.Next(ctx)
		if err != nil {
			return Batch{}, err
		}
		return f.take(b)
	}
	trial, cancel := context.WithTimeoutCause(ctx, settled, errSettled)
	defer cancel()
	b, err := f.watch.Next(trial)
	if err != nil && !errors.Is(err, errSettled) {
		return Batch{}, err
	}
	f.lost, f.refused = time.Time{}, false
	f.waits.Reset()
	if f.opts.Found != nil {
		f.opts.Found()
	}
	return f.take(b)
}

// errSettled: nothing came on a connection, and nothing is wrong with it.
var errSettled = errors.New("connection settled")

// take lets through what follows the last event, and nothing else.
func (f *Feed) take(b Batch) (Batch, error) {
	fresh := b.Events[:0]
	for _, e := range b.Events {
		switch {
		case e.Sequence <= f.last:
			continue
		case e.Sequence != f.last+1:
			return Batch{}, fmt.Errorf("%w: event %d came after %d", ErrCut, e.Sequence, f.last)
		}
		f.last, f.ended = e.Sequence, e.Terminal()
		fresh = append(fresh, e)
	}
	b.Events = fresh
	if f.ended {
		f.Close()
	}
	return b, nil
}

// recover decides whether to go on after a failure, and waits before the next attempt.
func (f *Feed) recover(ctx context.Context, failure error) error {
	f.Close()
	if errors.Is(failure, io.EOF) { // the server completed before the terminal
		failure = fmt.Errorf("%w: the subscription ended early", ErrCut)
	}
	refused := Code(failure) == CodeUnauthenticated
	if !Passing(failure) || refused && f.refused {
		return failure
	}
	f.refused = refused
	if f.lost.IsZero() {
		f.lost = time.Now()
		if f.opts.Lost != nil {
			f.opts.Lost(failure)
		}
	}
	if f.opts.Patience > 0 && time.Since(f.lost) >= f.opts.Patience {
		return fmt.Errorf("gave up after %s: %w", f.opts.Patience, failure)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(f.waits.NextBackOff()):
	}
	f.client.refresh(ctx)
	return nil
}

// Close drops the connection. The feed may be read on: it connects again.
func (f *Feed) Close() {
	if f.watch != nil {
		f.watch.Close()
		f.watch = nil
	}
}
