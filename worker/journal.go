package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Bounds of one run's journal. A reserve on top of JournalBytes and JournalSteps takes the question to a person, of which a
// run has one at most, and the terminal with the closings before it, so that a full journal can always be ended.
const (
	DefaultJournalBytes = 8 << 20
	DefaultJournalSteps = 4096

	minJournalBytes = 64 << 10
	maxJournalBytes = 256 << 20
	minJournalSteps = 8
	maxJournalSteps = 1 << 20
)

// Errors of a journal.
var (
	errJournalGone  = errors.New("not in the journal")
	errJournalEnded = errors.New("journal has ended")
)

// entry is one step: its number and its body, the line of the event stream without the number.
type entry struct {
	seq  int64
	body []byte
}

// journal keeps what one run said until the engine has made it durable. Numbers start at 1 and have no gap. Everything
// up to floor is acknowledged and forgotten; tail is the newest.
type journal struct {
	maxBytes int64
	maxSteps int
	record   *record // of every step, or nil

	mu      sync.Mutex
	entries []entry // floor+1 .. tail
	bytes   int64
	floor   int64
	tail    int64
	ended   bool
	change  chan struct{} // closed and replaced at every change
}

func newJournal(maxBytes int64, maxSteps int) *journal {
	return &journal{maxBytes: maxBytes, maxSteps: maxSteps, change: make(chan struct{})}
}

func (j *journal) changed() {
	close(j.change)
	j.change = make(chan struct{})
}

// entryOverhead is what an entry costs beside its body.
const entryOverhead = 48

// append adds a step. While the journal is full it waits for an acknowledgement, and returns the cause of ctx when
// that ends first. An empty journal takes any step, so that one above the bound cannot wait for ever. An urgent step, which
// ends what the harness does, never waits.
func (j *journal) append(ctx context.Context, body []byte, urgent bool) error {
	for {
		j.mu.Lock()
		switch {
		case j.ended:
			j.mu.Unlock()
			return errJournalEnded
		case urgent, len(j.entries) == 0, len(j.entries) < j.maxSteps && j.bytes+int64(len(body)) <= j.maxBytes:
			j.push(body)
			j.mu.Unlock()
			return nil
		}
		change := j.change
		j.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return fmt.Errorf("journal is full: %w", context.Cause(ctx))
		}
	}
}

// end adds the last steps, full or not, and closes the journal for writing.
func (j *journal) end(bodies ...[]byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return
	}
	for _, b := range bodies {
		j.push(b)
	}
	j.ended = true
	j.record.end()
	j.changed()
}

func (j *journal) push(body []byte) {
	j.tail++
	j.record.step(j.tail, body)
	j.entries = append(j.entries, entry{seq: j.tail, body: body})
	j.bytes += int64(len(body)) + entryOverhead
	j.changed()
}

// reading is what a reader finds after a number.
type reading struct {
	entries []entry
	ended   bool            // nothing will come after these entries
	change  <-chan struct{} // closed when there is news
}

// read returns entries after the number, at most maxBytes of them but at least one when there is one. It returns
// errJournalGone when the number is below the floor (the next entry is forgotten) or above the tail (it comes from
// another journal).
func (j *journal) read(after int64, maxBytes int) (reading, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if after < j.floor || after > j.tail {
		return reading{}, fmt.Errorf("%w: after %d, journal holds %d to %d", errJournalGone, after, j.floor+1, j.tail)
	}
	rest := j.entries[after-j.floor:]
	n, size := 0, 0
	for n < len(rest) && (n == 0 || size+len(rest[n].body) <= maxBytes) {
		size += len(rest[n].body)
		n++
	}
	// A copy, because ack moves the entries.
	return reading{
		entries: append([]entry(nil), rest[:n]...),
		ended:   j.ended && n == len(rest),
		change:  j.change,
	}, nil
}

// ack forgets everything up to seq. Acknowledging again what is forgotten has no effect.
func (j *journal) ack(seq int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if seq > j.tail {
		return fmt.Errorf("%w: acknowledged %d, journal ends at %d", errJournalGone, seq, j.tail)
	}
	if seq <= j.floor {
		return nil
	}
	n := int(seq - j.floor)
	for i := range n {
		j.bytes -= int64(len(j.entries[i].body)) + entryOverhead
	}
	// Moving keeps the array's size bounded; clearing lets the bodies go.
	rest := copy(j.entries, j.entries[n:])
	clear(j.entries[rest:])
	j.entries = j.entries[:rest]
	j.floor = seq
	j.changed()
	return nil
}

// forgotten reports whether the run has ended and everything of it is acknowledged.
func (j *journal) forgotten() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended && len(j.entries) == 0
}

// forget acknowledges everything.
func (j *journal) forget() {
	j.mu.Lock()
	tail := j.tail
	j.mu.Unlock()
	_ = j.ack(tail) // cannot be above the tail
}
