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

// logReader follows a log, chunk by chunk, until something in it is wrong.
type logReader struct {
	run       run.Run
	view      logView
	next      int64            // where the next chunk has to begin
	automaton *event.Validator // nil: it cannot judge, since nobody knows what was open
	cursors   map[string]event.Cursor
	chunks    int64 // that are right
	events    int64 // in them
}

// readLog reads a run's log from its beginning. inherited is what the run goes on from; nil: nobody knows any more, and the
// automaton cannot judge.
func (v *verifier) readLog(ctx context.Context, r run.Run, inherited *event.Inheritance, count bool) (logView, error) {
	g := logReader{run: r, next: 1, cursors: map[string]event.Cursor{}}
	if inherited != nil {
		g.automaton = event.NewValidator(event.DefaultBounds())
		if err := g.automaton.Inherit(*inherited); err != nil {
			g.wrong(EventOrder, "what it goes on from cannot be inherited: %v", err)
			return g.view, nil
		}
	}
	for after := int64(0); ; {
		chunks, err := v.Source.Chunks(ctx, r.ID, after, chunkPage)
		if errors.Is(err, ErrDamaged) {
			g.wrong(ChunkDamaged, "a chunk that begins after %d cannot be decoded", after)
		} else if err != nil {
			return g.view, err
		}
		for _, c := range chunks {
			if after = c.First; g.view.finding == nil {
				g.take(c)
			}
		}
		if g.view.finding != nil || len(chunks) < chunkPage {
			break
		}
	}
	if count {
		v.add(&v.report.Chunks, g.chunks)
		v.add(&v.report.Events, g.events)
	}
	if g.view.finding != nil {
		return g.view, nil
	}
	g.view.whole = g.view.first == 1
	if g.automaton != nil {
		left := g.automaton.Inheritance()
		g.view.left = &left
	}
	return g.view, nil
}

func (g *logReader) wrong(code Code, format string, args ...any) {
	g.view.finding = &Finding{Code: code, Run: g.run.ID, Session: g.run.SessionID, Detail: fmt.Sprintf(format, args...)}
}

// take judges a chunk and what is in it.
func (g *logReader) take(c event.Chunk) {
	if g.view.first == 0 && c.First > 1 && c.First <= g.run.ExpiredThrough+1 { // what is before has expired, and is no gap
		g.next, g.automaton = c.First, nil
	}
	if g.place(c); g.view.finding != nil {
		return
	}
	events, err := c.Events()
	if err != nil {
		g.wrong(ChunkDamaged, "chunk %d: %v", c.First, err)
		return
	}
	for _, e := range events {
		if g.view.terminal.Data != nil {
			g.wrong(AfterTerminal, "event %d follows the terminal, which is event %d", e.Sequence, g.view.terminal.Sequence)
			return
		}
		if g.automaton != nil {
			if err := g.automaton.Fold(e); err != nil {
				g.wrong(EventOrder, "event %d: %v", e.Sequence, err)
				return
			}
		}
		g.view.projection.Add(e)
		if e.Type().Terminal() {
			g.view.terminal = e
		}
	}
	if g.view.first == 0 {
		g.view.first = c.First
	}
	g.view.last, g.view.gen, g.next = c.Last, c.Gen, c.Last+1
	g.chunks++
	g.events += int64(len(events))
}

// place judges whether a chunk is itself, and may stand where it does.
func (g *logReader) place(c event.Chunk) {
	switch {
	case c.Verify() != nil:
		g.wrong(ChunkHash, "chunk %d does not match its hash", c.First)
	case c.First > g.next:
		g.wrong(LogGap, "events %d to %d are missing", g.next, c.First-1)
	case c.First < g.next:
		g.wrong(LogOverlap, "chunk %d begins before the end of the one before, which is %d", c.First, g.next-1)
	case c.SessionID != g.run.SessionID:
		g.wrong(ChunkOwner, "chunk %d is of session %s", c.First, c.SessionID)
	case c.Gen < g.view.gen:
		g.wrong(GenerationBack, "chunk %d is of lease generation %d, after %d", c.First, c.Gen, g.view.gen)
	case g.view.terminal.Data != nil:
		g.wrong(AfterTerminal, "chunk %d follows the terminal, which is event %d", c.First, g.view.last)
	}
	if g.view.finding != nil {
		return
	}
	for source, now := range c.Cursors {
		if before, known := g.cursors[source]; known && before.Incarnation == now.Incarnation && now.Seq < before.Seq {
			g.wrong(CursorBack, "in chunk %d the cursor of %s is %d, after %d", c.First, source, now.Seq, before.Seq)
			return
		}
		g.cursors[source] = now
	}
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
