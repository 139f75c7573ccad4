package event

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// foldPage is how many events one read of a fold asks for.
const foldPage = 2048

// takeOver reads the tail, fences it, and folds the log, in this order.
func (w *Writer) takeOver() error {
	wait := pauses{retry: w.cfg.Retry}
	for {
		tail, empty, err := w.readTail()
		if err != nil {
			return err
		}
		if empty {
			w.validator = NewValidator(w.cfg.Bounds)
			return w.validator.Inherit(w.cfg.Inherit)
		}
		last, again, err := w.fence(tail)
		if err != nil {
			return err
		}
		if !again {
			w.fenced = true
			return w.foldTo(last)
		}
		// A stale writer's append landed at our key. It is now part of the log, so the fence moves behind it.
		if err := wait.wait(w.life); err != nil {
			return err
		}
	}
}

func (w *Writer) readTail() (tail Chunk, empty bool, err error) {
	err = w.repeat(func(ctx context.Context) (err error) {
		tail, err = w.cfg.Log.Tail(ctx, w.cfg.RunID)
		return err
	})
	switch {
	case errors.Is(err, ErrEmpty):
		return Chunk{}, true, nil
	case err != nil:
		return Chunk{}, false, fmt.Errorf("failed to read tail: %w", err)
	case tail.Verify() != nil:
		return Chunk{}, false, fmt.Errorf("%w: %w", ErrCorrupt, tail.Verify())
	case tail.Gen > w.cfg.Gen:
		return Chunk{}, false, ErrFenced
	case tail.Gen == w.cfg.Gen && tail.Writer != w.cfg.Nonce:
		return Chunk{}, false, fmt.Errorf("%w: two writers hold generation %d", ErrCorrupt, tail.Gen)
	}
	return tail, false, nil
}

// fence makes run.recovered durable behind tail, where the log needs one. It returns the last chunk of the log, or
// again when a lower generation took the key.
func (w *Writer) fence(tail Chunk) (last Chunk, again bool, err error) {
	if tail.Terminal || tail.Gen == w.cfg.Gen {
		return tail, false, nil // nothing follows a terminal; our own chunk already is the fence
	}
	chunk, err := NewChunk(ChunkHeader{
		RunID: w.cfg.RunID, SessionID: w.cfg.SessionID, First: tail.Last + 1, Gen: w.cfg.Gen, Writer: w.cfg.Nonce,
		Cursors: tail.Cursors, // the vector stays whole: the next owner reads it off the last chunk
	}, []Event{{
		Time: w.cfg.Now().UTC().Truncate(time.Millisecond),
		Data: RunRecovered{Generation: w.cfg.Gen},
	}})
	if err != nil {
		return Chunk{}, false, err
	}
	v, err := w.place(chunk, func() bool { return true })
	if err != nil || v == earlier {
		return Chunk{}, v == earlier, err
	}
	w.cfg.Publish(chunk)
	return chunk, false, nil
}

// foldTo rebuilds the state from the whole log, whose last chunk is last.
func (w *Writer) foldTo(last Chunk) error {
	v := NewValidator(w.cfg.Bounds)
	if err := v.Inherit(w.cfg.Inherit); err != nil {
		return err
	}
	w.validator, w.tail = v, 0
	gen := int64(0)
	for w.tail < last.Last {
		var page []Chunk
		err := w.repeat(func(ctx context.Context) (err error) {
			page, err = w.cfg.Log.Read(ctx, w.cfg.RunID, w.tail, foldPage)
			return err
		})
		if err != nil {
			return fmt.Errorf("failed to read log: %w", err)
		}
		if len(page) == 0 {
			return fmt.Errorf("%w: it ends at %d, its tail at %d", ErrCorrupt, w.tail, last.Last)
		}
		for _, c := range page {
			if err := w.foldChunk(c, gen); err != nil {
				return fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
			gen = c.Gen
		}
	}
	if w.tail != last.Last {
		return fmt.Errorf("%w: it goes on behind the fence", ErrCorrupt)
	}
	return nil
}

// foldChunk takes one chunk over that has to follow what was folded so far.
func (w *Writer) foldChunk(c Chunk, gen int64) error {
	switch {
	case c.RunID != w.cfg.RunID || c.SessionID != w.cfg.SessionID:
		return fmt.Errorf("chunk %d belongs to another run or session", c.First)
	case c.First != w.tail+1:
		return fmt.Errorf("chunk %d follows event %d", c.First, w.tail)
	case c.Gen < gen || c.Gen > w.cfg.Gen:
		return fmt.Errorf("chunk %d has generation %d after %d", c.First, c.Gen, gen)
	}
	if err := c.Verify(); err != nil {
		return err
	}
	events, err := c.Events()
	if err != nil {
		return err
	}
	for _, e := range events {
		if err := w.validator.fold(e); err != nil {
			return fmt.Errorf("event %d: %w", e.Sequence, err)
		}
	}
	w.adopt(c)
	return nil
}

// repeat calls a read until it answers, at most Retry.Attempts times.
func (w *Writer) repeat(f func(ctx context.Context) error) error {
	wait := pauses{retry: w.cfg.Retry}
	for failures := 1; ; failures++ {
		err := w.call(f)
		if err == nil || errors.Is(err, ErrEmpty) || failures >= w.cfg.Retry.Attempts {
			return err
		}
		if wait.wait(w.life) != nil {
			return err
		}
	}
}
