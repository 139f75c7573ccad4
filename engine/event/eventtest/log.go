// Package eventtest supports tests of whatever writes or reads event logs: a log in memory that can be told to fail
// in every way that the contract of event.Log allows.
package eventtest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
)

// Fault is what happens to one append.
type Fault struct {
	Delay   time.Duration // before anything else; the context ends it early, with nothing written
	Err     error         // what the append returns; nil is success
	Written bool          // the chunk is written, whatever Err says
	Late    bool          // the chunk is written by Log.Land, after the append has returned Err
	Hidden  int           // how many reads do not see the chunk yet
}

// Failed is an append that wrote nothing and says so.
func Failed(err error) Fault { return Fault{Err: err} }

// Unknown is an append that cannot tell; written says what is the case.
func Unknown(written bool) Fault {
	return Fault{Err: fmt.Errorf("connection lost: %w", event.ErrUnknownOutcome), Written: written}
}

// Late is an append that cannot tell, and whose chunk lands when Land is called.
func Late() Fault {
	return Fault{Err: fmt.Errorf("connection lost: %w", event.ErrUnknownOutcome), Late: true}
}

// DiskFull is an append to a full disk.
func DiskFull() Fault { return Fault{Err: event.ErrDiskFull} }

// Log is an event.Log in memory. The zero value is not usable.
type Log struct {
	mu      sync.Mutex
	runs    map[string][]stored
	faults  []Fault
	reads   []error
	late    []event.Chunk
	tried   []event.Chunk
	before  func(event.Chunk)
	readers int
	expired map[string]int64 // by run
}

type stored struct {
	chunk  event.Chunk
	hidden int
}

var _ event.Log = (*Log)(nil)

// NewLog makes an empty log.
func NewLog() *Log { return &Log{runs: map[string][]stored{}} }

// Inject adds faults for the next appends, in this order. Appends after them succeed.
func (l *Log) Inject(faults ...Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, faults...)
}

// FailReads makes the next reads (Get, Tail, Read) fail with these errors, in this order.
func (l *Log) FailReads(errs ...error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads = append(l.reads, errs...)
}

// OnAppend sets a function that is called at the start of every append, without a lock held: it may use the log.
func (l *Log) OnAppend(f func(event.Chunk)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before = f
}

// Land writes the chunks of Late appends whose keys are still free, and returns how many it wrote.
func (l *Log) Land() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, c := range l.late {
		if l.put(c, 0) {
			n++
		}
	}
	l.late = nil
	return n
}

// Tried returns every chunk that an append was called with, also those that failed.
func (l *Log) Tried() []event.Chunk {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.tried)
}

// Reads is how often Get, Tail and Read were called.
func (l *Log) Reads() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readers
}

// Chunks returns the chunks of a run, also hidden ones.
func (l *Log) Chunks(runID string) []event.Chunk {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []event.Chunk
	for _, s := range l.runs[runID] {
		out = append(out, copied(s.chunk))
	}
	return out
}

// Change edits a stored chunk in place, as damage would; it panics where there is none.
func (l *Log) Change(runID string, first int64, edit func(*event.Chunk)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	edit(&l.runs[runID][l.find(runID, first)].chunk)
}

// Remove takes a stored chunk out and returns it; it panics where there is none.
func (l *Log) Remove(runID string, first int64) event.Chunk {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.find(runID, first)
	c := l.runs[runID][i].chunk
	l.runs[runID] = slices.Delete(l.runs[runID], i, i+1)
	return c
}

func (l *Log) find(runID string, first int64) int {
	i := slices.IndexFunc(l.runs[runID], func(s stored) bool { return s.chunk.First == first })
	if i < 0 {
		panic(fmt.Sprintf("eventtest: %s has no chunk %d", runID, first))
	}
	return i
}

// put inserts in order of First; false when the key is taken.
func (l *Log) put(c event.Chunk, hidden int) bool {
	i, taken := slices.BinarySearchFunc(l.runs[c.RunID], c.First, func(s stored, first int64) int {
		return int(s.chunk.First - first)
	})
	if taken {
		return false
	}
	l.runs[c.RunID] = slices.Insert(l.runs[c.RunID], i, stored{chunk: copied(c), hidden: hidden})
	return true
}

// Append implements event.Log.
func (l *Log) Append(ctx context.Context, c event.Chunk) error {
	l.mu.Lock()
	before := l.before
	var f Fault
	if len(l.faults) > 0 {
		f, l.faults = l.faults[0], l.faults[1:]
	} else {
		f.Written = true
	}
	l.tried = append(l.tried, copied(c))
	l.mu.Unlock()
	if before != nil {
		before(c)
	}
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.Late {
		l.late = append(l.late, copied(c))
	}
	if (f.Written || f.Err == nil) && !l.put(c, f.Hidden) && f.Err == nil {
		return &event.DuplicateError{RunID: c.RunID, First: c.First}
	}
	return f.Err
}

// read counts a read and returns the visible chunks.
func (l *Log) read(ctx context.Context, runID string) ([]event.Chunk, error) {
	l.readers++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(l.reads) > 0 {
		err := l.reads[0]
		if l.reads = l.reads[1:]; err != nil {
			return nil, err
		}
	}
	var out []event.Chunk
	for i := range l.runs[runID] {
		s := &l.runs[runID][i]
		if s.hidden > 0 {
			s.hidden--
			continue
		}
		out = append(out, s.chunk)
	}
	return out, nil
}

// Get implements event.Log.
func (l *Log) Get(ctx context.Context, runID string, first int64) (event.Chunk, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	chunks, err := l.read(ctx, runID)
	if err != nil {
		return event.Chunk{}, err
	}
	for _, c := range chunks {
		if c.First == first && first > l.expired[runID] {
			return copied(c), nil
		}
	}
	if err := l.gone(runID, first); err != nil {
		return event.Chunk{}, err
	}
	return event.Chunk{}, event.ErrEmpty
}

// Tail implements event.Log.
func (l *Log) Tail(ctx context.Context, runID string) (event.Chunk, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	chunks, err := l.read(ctx, runID)
	if err != nil {
		return event.Chunk{}, err
	}
	if len(chunks) == 0 {
		if err := l.gone(runID, 1); err != nil {
			return event.Chunk{}, err
		}
		return event.Chunk{}, event.ErrEmpty
	}
	return copied(chunks[len(chunks)-1]), nil
}

// Read implements event.Log.
func (l *Log) Read(ctx context.Context, runID string, after int64, maxEvents int) ([]event.Chunk, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	chunks, err := l.read(ctx, runID)
	if err != nil {
		return nil, err
	}
	if err := l.gone(runID, after+1); err != nil {
		return nil, err
	}
	var out []event.Chunk
	events := 0
	for _, c := range chunks {
		if c.Last <= after {
			continue
		}
		if len(out) > 0 && events+c.Len() > maxEvents {
			break
		}
		out = append(out, copied(c))
		events += c.Len()
	}
	return out, nil
}

func copied(c event.Chunk) event.Chunk {
	c.Cursors = maps.Clone(c.Cursors)
	c.Facts = maps.Clone(c.Facts)
	c.Body = bytes.Clone(c.Body)
	return c
}
