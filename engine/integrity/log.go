package integrity

import (
	"context"
	"errors"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
)

const (
	chunkPage    = 8    // chunks in one read: at most 8 MiB
	maxAncestors = 1000 // runs that a run goes on from, one after the other
	maxLeft      = 4096 // ended runs of which it is remembered what they left open
)

// logView is what a run's log says.
type logView struct {
	first, last int64 // sequences that are there; 0: none
	gen         int64 // highest lease generation
	terminal    event.Event
	projection  run.Projection
	whole       bool // from event 1 on, and everything in it is right
	left        *event.Inheritance
	finding     *Finding // the first thing that is wrong
}

// readLog reads a run's log from its beginning. through is how far it has expired: what is missing up to there is no gap.
// inherited is what the run goes on from; nil: nobody knows any more, and the automaton cannot judge.
func (v *verifier) readLog(ctx context.Context, r run.Run, inherited *event.Inheritance, count bool) (logView, error) {
	var l logView
	next := int64(1)
	wrong := func(code Code, format string, args ...any) {
		l.finding = &Finding{Code: code, Run: r.ID, Session: r.SessionID, Detail: fmt.Sprintf(format, args...)}
	}
	var automaton *event.Validator
	if inherited != nil {
		automaton = event.NewValidator(event.DefaultBounds())
		if err := automaton.Inherit(*inherited); err != nil {
			wrong(EventOrder, "what it goes on from cannot be inherited: %v", err)
			return l, nil
		}
	}
	cursors := map[string]event.Cursor{}
	for after := int64(0); ; {
		chunks, err := v.Source.Chunks(ctx, r.ID, after, chunkPage)
		if errors.Is(err, ErrDamaged) {
			wrong(ChunkDamaged, "a chunk that begins after %d cannot be decoded", after)
			return l, nil
		}
		if err != nil {
			return l, err
		}
		for _, c := range chunks {
			after = c.First
			if l.first == 0 && c.First > 1 && c.First <= r.ExpiredThrough+1 { // what is before has expired
				next, automaton = c.First, nil
			}
			switch {
			case c.Verify() != nil:
				wrong(ChunkHash, "chunk %d does not match its hash", c.First)
			case c.First > next:
				wrong(LogGap, "events %d to %d are missing", next, c.First-1)
			case c.First < next:
				wrong(LogOverlap, "chunk %d begins before the end of the one before, which is %d", c.First, next-1)
			case c.SessionID != r.SessionID:
				wrong(ChunkOwner, "chunk %d is of session %s", c.First, c.SessionID)
			case c.Gen < l.gen:
				wrong(GenerationBack, "chunk %d is of lease generation %d, after %d", c.First, c.Gen, l.gen)
			case l.terminal.Data != nil:
				wrong(AfterTerminal, "chunk %d follows the terminal, which is event %d", c.First, l.last)
			}
			for source, now := range c.Cursors {
				if before, known := cursors[source]; l.finding == nil && known && before.Incarnation == now.Incarnation && now.Seq < before.Seq {
					wrong(CursorBack, "in chunk %d the cursor of %s is %d, after %d", c.First, source, now.Seq, before.Seq)
				}
				cursors[source] = now
			}
			if l.finding != nil {
				return l, nil
			}
			events, err := c.Events()
			if err != nil {
				wrong(ChunkDamaged, "chunk %d: %v", c.First, err)
				return l, nil
			}
			for _, e := range events {
				if l.terminal.Data != nil {
					wrong(AfterTerminal, "event %d follows the terminal, which is event %d", e.Sequence, l.terminal.Sequence)
					return l, nil
				}
				if automaton != nil {
					if err := automaton.Fold(e); err != nil {
						wrong(EventOrder, "event %d: %v", e.Sequence, err)
						return l, nil
					}
				}
				l.projection.Add(e)
				if e.Type().Terminal() {
					l.terminal = e
				}
			}
			if l.first == 0 {
				l.first = c.First
			}
			l.last, l.gen, next = c.Last, c.Gen, c.Last+1
			if count {
				v.add(&v.report.Chunks, 1)
				v.add(&v.report.Events, int64(len(events)))
			}
		}
		if len(chunks) < chunkPage {
			break
		}
	}
	l.whole = l.first == 1
	if automaton != nil {
		left := automaton.Inheritance()
		l.left = &left
	}
	return l, nil
}

// inherited is what a run finds open: nothing, or what the run that it continues left. nil where that has expired or is wrong
// itself, which is told of that run.
func (v *verifier) inherited(ctx context.Context, r run.Run) (*event.Inheritance, error) {
	var chain []run.Run // from the run that is continued backwards
	left := &event.Inheritance{}
	for at := r; at.Continues != nil; {
		if known := v.left[at.Continues.Run]; known != nil {
			left = known
			break
		}
		before, err := v.Source.Run(ctx, at.Continues.Run)
		if errors.Is(err, run.ErrNotFound) || errors.Is(err, ErrDamaged) || len(chain) == maxAncestors {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if before.ExpiredThrough > 0 {
			return nil, nil
		}
		chain, at = append(chain, before), before
	}
	for i := len(chain) - 1; i >= 0; i-- {
		l, err := v.readLog(ctx, chain[i], left, false)
		if err != nil || l.finding != nil || !l.whole {
			return nil, err
		}
		left = l.left
		v.remember(chain[i].ID, l)
	}
	return left, nil
}

// remember keeps what an ended run left open: nothing changes its log any more.
func (v *verifier) remember(runID string, l logView) {
	if l.terminal.Data == nil || l.left == nil {
		return
	}
	if v.left == nil || len(v.left) >= maxLeft {
		v.left = map[string]*event.Inheritance{}
	}
	v.left[runID] = l.left
}

// lookAtLog looks whether a log has a run; the rest is looked at with the run.
func (v *verifier) lookAtLog(ctx context.Context, runID string, s *seen) error {
	_, err := v.Source.Run(ctx, runID)
	switch {
	case errors.Is(err, run.ErrNotFound):
		s.find(Finding{Code: LogOrphaned, Run: runID, Detail: "there are events of a run that there is no document of"})
		return nil
	case errors.Is(err, ErrDamaged):
		return nil // told with the run
	}
	return err
}
