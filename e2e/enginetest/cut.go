package enginetest

import (
	"context"
	"errors"
	"io"
	"sync"
)

// Cutting says how a subscriber loses its connection.
type Cutting struct {
	Times int // how often at most
	After int // events that it takes on each connection before, of however many have come
	// Away, where set, is waited for between a cut and the reconnect: the time for which the subscriber is gone.
	Away func(ctx context.Context, through int64) error
}

// FollowCut follows a run to its end like Follow, but its connection is cut in mid-stream again and again, and each
// time it goes on from the last sequence that it had. It returns where it was cut.
func (c *Client) FollowCut(ctx context.Context, runID string, how Cutting) (events []Event, cuts []int64, err error) {
	var after int64
	for {
		w, err := c.Watch(ctx, runID, after)
		if err != nil {
			return events, cuts, err
		}
		if len(cuts) == how.Times {
			rest, err := w.Rest(ctx)
			w.Close()
			return append(events, rest...), cuts, err
		}
		part, completed, err := w.Until(ctx, func(part []Event) bool { return len(part) >= how.After })
		early := len(part) > how.After // the rest is lost with the connection, and has to come again
		if early && err == nil {
			part = part[:how.After]
		}
		events = append(events, part...)
		if err != nil || !early && (completed || Last(part).Terminal()) {
			if err == nil && !completed {
				_, err = w.Rest(ctx)
			}
			w.Close()
			return events, cuts, err
		}
		after = Last(part).Sequence
		w.Cut()
		cuts = append(cuts, after)
		if how.Away != nil {
			if err := how.Away(ctx, after); err != nil {
				return events, cuts, err
			}
		}
	}
}

// Witness follows a run without a cut, in the background, and lets others wait for how far it is.
type Witness struct {
	mu      sync.Mutex
	events  []Event
	moved   chan struct{} // closed and replaced at each step
	settled bool
	err     error
}

// NewWitness subscribes at once and reads in the background until the run ends or ctx does.
func (c *Client) NewWitness(ctx context.Context, runID string) (*Witness, error) {
	watch, err := c.Watch(ctx, runID, 0)
	if err != nil {
		return nil, err
	}
	w := &Witness{moved: make(chan struct{})}
	go func() {
		defer watch.Close()
		for {
			b, err := watch.Next(ctx)
			w.step(b.Events, err)
			if err != nil {
				return
			}
		}
	}()
	return w, nil
}

func (w *Witness) step(events []Event, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, events...)
	if err != nil {
		w.settled = true
		if !errors.Is(err, io.EOF) {
			w.err = err
		}
	}
	close(w.moved)
	w.moved = make(chan struct{})
}

// Until waits until done says so of what was seen, or the run has ended.
func (w *Witness) Until(ctx context.Context, done func(events []Event) bool) ([]Event, error) {
	for {
		w.mu.Lock()
		events, settled, err, moved := w.events[:len(w.events):len(w.events)], w.settled, w.err, w.moved
		w.mu.Unlock()
		if settled || done(events) {
			return events, err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return events, context.Cause(ctx)
		}
	}
}

// Past waits until the witness has seen at least n events behind the sequence, or the run has ended.
func (w *Witness) Past(ctx context.Context, sequence int64, n int64) error {
	_, err := w.Until(ctx, func(events []Event) bool { return Last(events).Sequence >= sequence+n })
	return err
}

// All waits for the end of the run and returns everything.
func (w *Witness) All(ctx context.Context) ([]Event, error) {
	return w.Until(ctx, func([]Event) bool { return false })
}
