package event

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
)

// verdict is what is known of a chunk's key after an append.
type verdict int

const (
	mine    verdict = iota // durable as frozen
	absent                 // nothing under the key, yet
	earlier                // an owner with a lower generation wrote it
)

// pauses yields growing waits, bounded, until the writer's life ends.
type pauses struct {
	retry Retry
	next  time.Duration
}

func (p *pauses) wait(ctx context.Context) error {
	p.next = min(max(2*p.next, p.retry.Initial), p.retry.Most)
	t := time.NewTimer(p.next)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrClosed, context.Cause(ctx))
	}
}

// settle makes f durable or finds out why it never will be, then takes the result over, publishes, and lets the next
// append in.
func (w *Writer) settle(f *frozen) {
	v, err := w.place(f.chunk, func() bool { return w.giveUp(f) })
	if err == nil && v == earlier {
		err = w.overtaken(f.chunk)
	}
	w.mu.Lock()
	w.frozen = nil
	switch {
	case err == nil:
		w.adopt(f.chunk)
		w.fenced = true
		w.noted = Batch{}
	case errors.Is(err, ErrClosed):
		w.frozen = f // for ever unresolved here; the next owner's fence decides
	case isFinal(err):
		w.err = err
		w.undo(f.undo, f.added)
	default:
		w.undo(f.undo, f.added)
	}
	w.mu.Unlock()
	if err == nil {
		w.cfg.Publish(f.chunk)
	}
	if err != nil {
		err = fmt.Errorf("failed to append %s/%d: %w", f.chunk.RunID, f.chunk.First, err)
	}
	f.err = err
	close(f.done)
}

// giveUp decides whether an append that certainly wrote nothing may fail. Where its caller has gone, nobody could
// append the batch again, so it may not.
func (w *Writer) giveUp(f *frozen) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.failed = !f.abandoned
	return f.failed
}

// abandon leaves f to the writer and reports true, or false where f is about to fail.
func (w *Writer) abandon(f *frozen) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.abandoned = !f.failed
	return f.abandoned
}

func isFinal(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrBegun)
}

// overtaken says what a chunk of a lower generation at our key means: on an empty log a takeover that lost its race;
// beyond our own fence it cannot be, for a stale writer's one append in flight is at or below the fence.
func (w *Writer) overtaken(c Chunk) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.fenced && c.First == 1 {
		return ErrBegun
	}
	return fmt.Errorf("%w: a lower generation wrote beyond the fence", ErrCorrupt)
}

// adopt takes over what a durable chunk says. The validator already knows its events.
func (w *Writer) adopt(c Chunk) {
	w.tail = c.Last
	w.cursors = c.Cursors
	if w.cursors == nil {
		w.cursors = map[string]Cursor{}
	}
	maps.Copy(w.facts, c.Facts)
}

// place appends c and repeats it, unchanged, until its key is resolved. Once one attempt may have been written, only
// the key itself tells: no number of failures is a failure. Without such an attempt, errors that wrote nothing are
// given up after Retry.Attempts where giveUp agrees. A full disk is waited out.
func (w *Writer) place(c Chunk, giveUp func() bool) (verdict, error) {
	wait := pauses{retry: w.cfg.Retry}
	maybe := false // an attempt may have been written
	for failures := 0; ; {
		err := w.call(func(ctx context.Context) error { return w.cfg.Log.Append(ctx, c) })
		if err == nil {
			return mine, nil
		}
		var duplicate *DuplicateError
		switch {
		case errors.As(err, &duplicate):
			maybe = true // a chunk is there, whether it can be read yet or not
		case errors.Is(err, ErrDiskFull):
		case isUnknown(err):
			maybe = true
		default:
			failures++
			if !maybe && failures >= w.cfg.Retry.Attempts && giveUp() {
				return absent, err
			}
		}
		if maybe {
			v, readErr := w.inspect(c)
			if readErr != nil || v != absent {
				return v, readErr
			}
		}
		w.cfg.Logger.Warn("append repeated", "run", c.RunID, "first", c.First, "unknown", maybe, "error", err)
		if err := wait.wait(w.life); err != nil {
			return absent, err
		}
	}
}

// isUnknown counts a timeout of the call as an unknown outcome, whatever the log made of it.
func isUnknown(err error) bool {
	return errors.Is(err, ErrUnknownOutcome) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// inspect reads c's key until the read answers, and judges what it finds by rule 3 of the takeover.
func (w *Writer) inspect(c Chunk) (verdict, error) {
	wait := pauses{retry: w.cfg.Retry}
	for {
		var found Chunk
		err := w.call(func(ctx context.Context) (err error) {
			found, err = w.cfg.Log.Get(ctx, c.RunID, c.First)
			return err
		})
		switch {
		case err == nil:
			return judgeFound(c, found)
		case errors.Is(err, ErrEmpty):
			return absent, nil
		}
		w.cfg.Logger.Warn("read of an unresolved append repeated", "run", c.RunID, "first", c.First, "error", err)
		if err := wait.wait(w.life); err != nil {
			return absent, err
		}
	}
}

func judgeFound(c, found Chunk) (verdict, error) {
	if err := found.Verify(); err != nil {
		return absent, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	switch {
	case found.Gen > c.Gen:
		return absent, ErrFenced
	case found.Gen < c.Gen:
		return earlier, nil
	case found.Writer == c.Writer && found.SHA256 == c.SHA256:
		return mine, nil
	}
	return absent, fmt.Errorf("%w: another chunk of the same generation at %d", ErrCorrupt, c.First)
}

// call bounds one call to the log.
func (w *Writer) call(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(w.life, w.cfg.Retry.Timeout)
	defer cancel()
	return f(ctx)
}
