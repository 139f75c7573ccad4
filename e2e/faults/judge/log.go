package judge

import (
	"github.com/harness-engine/harness-engine/engine/event"
)

// Document is what the store says of a run beside its log.
type Document struct {
	Run    string
	Status string // as engine/run has it
	Last   int64  // last sequence, as projected
}

// ended are the statuses by the type of the terminal.
var ended = map[event.Type]string{
	event.TypeRunFinished:    "FINISHED",
	event.TypeRunInterrupted: "INTERRUPTED",
	event.TypeRunCancelled:   "CANCELLED",
	event.TypeRunError:       "FAILED",
}

// CheckLog judges a run's log as the store has it: contiguous, unchanged, of rising generations with one writer each, legal
// by the rules of events, with one terminal, and told as such by the run's document. It returns the log's events.
func CheckLog(d Document, chunks []event.Chunk) (events []event.Event, f Findings) {
	next := int64(1)
	writers := map[int64]string{}
	gen := int64(0)
	for _, c := range chunks {
		switch {
		case c.First < next:
			f.add(Doubled, d.Run, "chunk %d-%d overlaps what ends with %d", c.First, c.Last, next-1)
		case c.First > next:
			f.add(Lost, d.Run, "chunk %d-%d does not follow %d", c.First, c.Last, next-1)
		}
		next = c.Last + 1
		if c.Gen < gen {
			f.add(Stale, d.Run, "chunk %d-%d is of generation %d, behind one of %d", c.First, c.Last, c.Gen, gen)
		}
		rises := gen > 0 && c.Gen > gen
		gen = max(gen, c.Gen)
		if w, known := writers[c.Gen]; known && w != c.Writer {
			f.add(Stale, d.Run, "chunk %d-%d of generation %d is of another writer than one before", c.First, c.Last, c.Gen)
		}
		writers[c.Gen] = c.Writer
		if err := c.Verify(); err != nil {
			f.add(Lost, d.Run, "chunk %d-%d: %s", c.First, c.Last, err)
			continue
		}
		part, err := c.Events()
		if err != nil {
			f.add(Lost, d.Run, "chunk %d-%d: %s", c.First, c.Last, err)
			continue
		}
		fenced(&f, d.Run, c, part, rises)
		events = append(events, part...)
	}
	checkTerminal(&f, d, events)
	return events, f
}

// fenced: the first chunk of a generation begins with its fence, and no other has one. The log's first begins with its start.
func fenced(f *Findings, run string, c event.Chunk, events []event.Event, rises bool) {
	for i, e := range events {
		r, ok := e.Data.(event.RunRecovered)
		if ok && (i > 0 || !rises || r.Generation != c.Gen) {
			f.add(Stale, run, "chunk %d-%d of generation %d has the fence of generation %d at %d", c.First, c.Last, c.Gen, r.Generation, e.Sequence)
		}
	}
	if rises && events[0].Type() != event.TypeRunRecovered {
		f.add(Stale, run, "chunk %d-%d is the first of generation %d and has no fence", c.First, c.Last, c.Gen)
	}
}

func checkTerminal(f *Findings, d Document, events []event.Event) {
	if len(events) == 0 {
		f.add(Lost, d.Run, "has no log, its status is %s", d.Status)
		return
	}
	if events[0].Type() != event.TypeRunStarted {
		f.add(Lost, d.Run, "begins with %s", events[0].Type())
	}
	terminals := 0
	for i, e := range events {
		if !e.Type().Terminal() {
			continue
		}
		if terminals++; terminals > 1 {
			f.add(Doubled, d.Run, "has another terminal at %d, %s", e.Sequence, e.Type())
		}
		if i < len(events)-1 && terminals == 1 {
			f.add(Stale, d.Run, "goes on behind its terminal at %d", e.Sequence)
		}
	}
	last := events[len(events)-1]
	if terminals == 0 {
		f.add(Lost, d.Run, "has no end: its last event is %d, %s; its status is %s", last.Sequence, last.Type(), d.Status)
		return
	}
	if want, ok := ended[last.Type()]; ok && (d.Status != want || d.Last != last.Sequence) {
		f.add(Other, d.Run, "is %s through %d in its document, its log ends with %s at %d", d.Status, d.Last, last.Type(), last.Sequence)
	}
}
