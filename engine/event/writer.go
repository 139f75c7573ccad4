package event

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// Errors of a Writer. After ErrFenced, ErrCorrupt and ErrBegun the writer writes nothing more.
var (
	// ErrFenced: an engine with a higher lease generation owns the run. Disconnect, and do nothing else.
	ErrFenced = errors.New("event writer: fenced by a higher generation")
	// ErrCorrupt: the log holds what no rule can have written. Halt the run and raise an alarm.
	ErrCorrupt = errors.New("event writer: log corrupt")
	// ErrBegun: the log was empty when the writer was opened, and an earlier owner's first chunk has arrived since.
	// Open the writer again.
	ErrBegun = errors.New("event writer: log was begun by an earlier owner")
	// ErrPending: the caller's context ended before the outcome of the append was known. The batch stays with the
	// writer, which goes on to make it durable: never append it again.
	ErrPending = errors.New("event writer: append still pending")
	// ErrClosed: the context of the writer has ended.
	ErrClosed = errors.New("event writer: closed")
	// ErrTaken: the batch's cursor is at or before one that the log already holds: its events were appended before.
	ErrTaken = errors.New("event writer: source event already taken")
)

// Retry says how a writer repeats what failed. Zero fields mean the defaults.
type Retry struct {
	Initial  time.Duration // first pause, doubled each time: 20 ms
	Most     time.Duration // longest pause: 2 s
	Attempts int           // of an append that certainly wrote nothing, before it is given up: 6
	Timeout  time.Duration // of one call to the log: 15 s
}

func (r Retry) normalised() Retry {
	r.Initial = cmp.Or(max(r.Initial, 0), 20*time.Millisecond)
	r.Most = max(cmp.Or(max(r.Most, 0), 2*time.Second), r.Initial)
	r.Attempts = cmp.Or(max(r.Attempts, 0), 6)
	r.Timeout = cmp.Or(max(r.Timeout, 0), 15*time.Second)
	return r
}

// WriterConfig is what a Writer needs. Log, RunID, SessionID, Gen and Nonce are required.
type WriterConfig struct {
	Log       Log
	Publish   func(Chunk) // called in order, after each chunk of this writer is durable; must not block
	RunID     string
	SessionID string
	Gen       int64       // lease generation of the run that this engine holds, at least 1
	Nonce     string      // of this boot of the engine
	Bounds    Bounds      // zero fields mean the defaults
	Inherit   Inheritance // what the continued run left open, for a run that continues one
	Now       func() time.Time
	Retry     Retry
	Logger    *slog.Logger
}

// Batch is what one append makes durable: the events of one or more whole source events, the cursors of these
// sources, and facts. All of it goes into one chunk.
type Batch struct {
	Events  []Event
	Cursors map[string]Cursor // only of the sources that moved; merged into the full vector
	Facts   map[string]string
}

// Writer appends to the log of one run for the holder of its lease, under the rules of docs/architecture.md: one
// unresolved append, frozen bytes, a fence before anything else, publication only of what is durable. It is safe for
// concurrent use; appends are done one after the other.
type Writer struct {
	cfg  WriterConfig
	life context.Context
	turn chan struct{} // held by the append in progress

	mu        sync.Mutex // guards what follows
	validator *Validator
	tail      int64             // sequence of the last durable event
	fenced    bool              // this writer's fence is durable; false until the first chunk of an empty log
	cursors   map[string]Cursor // full vector of the last durable chunk
	facts     map[string]string // merged over all durable chunks
	noted     Batch             // cursors and facts without events, for the next chunk
	frozen    *frozen
	err       error // final: fenced, corrupt, begun
}

// frozen is the one append whose outcome is not yet known. Its chunk never changes.
type frozen struct {
	chunk  Chunk
	events []Event
	undo   live // of the validator, should nothing have been written for certain
	added  []string
	noted  Batch
	done   chan struct{}
	err    error // valid after done

	abandoned bool // its caller has gone; excludes failed
	failed    bool // it was given up, nothing was written
}

// OpenWriter takes the log of a run over for cfg.Gen. ctx is the life of the writer, not only of the opening: when
// it ends, unresolved appends are left to the next owner. On a log that is neither empty nor ended it first appends
// the fence run.recovered, then folds the state from the log. On an empty log the first Append, which has to begin
// with run.started, is the fence. On an ended log it writes nothing. One writer is opened for a generation: to open a
// run again, claim its lease again.
func OpenWriter(ctx context.Context, cfg WriterConfig) (*Writer, error) {
	switch {
	case cfg.Log == nil, cfg.RunID == "", cfg.SessionID == "", cfg.Nonce == "":
		return nil, errors.New("failed to open event writer: log, run, session and nonce are required")
	case cfg.Gen < 1:
		return nil, fmt.Errorf("failed to open event writer %s: generation %d below 1", cfg.RunID, cfg.Gen)
	}
	if cfg.Publish == nil {
		cfg.Publish = func(Chunk) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Retry = cfg.Retry.normalised()
	w := &Writer{cfg: cfg, life: ctx, turn: make(chan struct{}, 1), cursors: map[string]Cursor{}, facts: map[string]string{}}
	if err := w.takeOver(); err != nil {
		return nil, fmt.Errorf("failed to open event writer %s: %w", cfg.RunID, err)
	}
	return w, nil
}

// Append judges b.Events, stamps them with the writer's time and the next sequences, makes them durable as one
// chunk, publishes the chunk and returns the events as they are in the log.
//
// Errors: *InvalidError when an event breaks a rule or the batch does not fit one chunk, ErrTaken, or a failure of
// the log that certainly wrote nothing: the writer is as it was before. ErrPending when ctx ended first, see there.
// ErrFenced, ErrCorrupt, ErrBegun and ErrClosed are final. A full disk is waited out.
//
// A batch of which no event remains only notes its cursors and facts; they become durable with the next chunk.
func (w *Writer) Append(ctx context.Context, b Batch) ([]Event, error) {
	if err := w.acquire(ctx); err != nil {
		return nil, err
	}
	defer w.release()
	f, err := w.freeze(b)
	if err != nil || f == nil {
		return nil, err
	}
	go w.settle(f)
	if err := w.wait(ctx, f); err != nil {
		return nil, err
	}
	return f.events, nil
}

// Flush waits until no append is pending.
func (w *Writer) Flush(ctx context.Context) error {
	if err := w.acquire(ctx); err != nil {
		return err
	}
	w.release()
	return nil
}

// acquire waits for the turn and for the append that an earlier caller left behind.
func (w *Writer) acquire(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.life.Done():
		return w.closed()
	}
	w.mu.Lock()
	left, err := w.frozen, w.err
	w.mu.Unlock()
	if err == nil && left != nil {
		select {
		case <-left.done:
			w.mu.Lock()
			err = w.err // its failure was its caller's, unless it is final
			w.mu.Unlock()
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err == nil && w.life.Err() != nil {
		err = w.closed()
	}
	if err != nil {
		w.release()
	}
	return err
}

func (w *Writer) release() { <-w.turn }

func (w *Writer) closed() error {
	return fmt.Errorf("%w: %w", ErrClosed, context.Cause(w.life))
}

// wait returns when the append is settled, or leaves it behind.
func (w *Writer) wait(ctx context.Context, f *frozen) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
	}
	select {
	case <-f.done: // it was settled all the same
		return f.err
	default:
	}
	if w.abandon(f) {
		return fmt.Errorf("%w: %w", ErrPending, context.Cause(ctx))
	}
	<-f.done // at once
	return f.err
}

// freeze turns a batch into the chunk that will be in the log, or nothing where no event remains.
func (w *Writer) freeze(b Batch) (*frozen, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.judgeMarks(b); err != nil {
		return nil, err
	}
	if len(b.Events) > 0 {
		for source, c := range b.Cursors {
			if have, ok := w.cursors[source]; ok && have.Incarnation == c.Incarnation && c.Seq <= have.Seq {
				return nil, fmt.Errorf("failed to append to %s: source %s at %d: %w", w.cfg.RunID, source, c.Seq, ErrTaken)
			}
		}
	}
	point, added, events, err := w.judge(b.Events)
	if err != nil {
		return nil, err
	}
	next := Batch{Cursors: merged(w.noted.Cursors, b.Cursors), Facts: merged(w.noted.Facts, b.Facts)}
	if len(events) == 0 {
		w.noted = next
		return nil, nil
	}
	chunk, err := NewChunk(ChunkHeader{
		RunID: w.cfg.RunID, SessionID: w.cfg.SessionID, First: w.tail + 1, Gen: w.cfg.Gen, Writer: w.cfg.Nonce,
		Cursors: merged(w.cursors, next.Cursors), Facts: next.Facts,
	}, events)
	if err != nil {
		w.undo(point, added)
		if errors.Is(err, ErrChunkSize) {
			return nil, &InvalidError{Code: "batch_too_large"}
		}
		return nil, err
	}
	w.frozen = &frozen{chunk: chunk, events: events, undo: point, added: added, noted: next, done: make(chan struct{})}
	return w.frozen, nil
}

// judge runs events through the validator as one: all or none.
func (w *Writer) judge(events []Event) (point live, added []string, out []Event, err error) {
	point = w.validator.live
	// Milliseconds are what the log keeps, and what a reader of the log will see.
	now := w.cfg.Now().UTC().Truncate(time.Millisecond)
	for _, e := range events {
		e.Time = now
		repaired, ids, err := w.validator.accept(e)
		added = append(added, ids...)
		if err != nil {
			w.undo(point, added)
			return point, nil, nil, err
		}
		out = append(out, repaired...)
		if len(out) > MaxChunkEvents {
			w.undo(point, added)
			return point, nil, nil, &InvalidError{Code: "batch_too_large"}
		}
	}
	for i := range out {
		out[i].RunID, out[i].SessionID, out[i].Sequence = w.cfg.RunID, w.cfg.SessionID, w.tail+1+int64(i)
		out[i].Data = withThread(out[i].Data)
	}
	return point, added, out, nil
}

func (w *Writer) undo(point live, added []string) {
	w.validator.added = added
	w.validator.rollback(point)
}

// withThread states the least that is true where a terminal came without its thread state.
func withThread(d Data) Data {
	unknown := func(t ThreadState) ThreadState {
		t.Durability = cmp.Or(t.Durability, DurabilityUncertain)
		return t
	}
	switch d := d.(type) {
	case RunFinished:
		d.Thread = unknown(d.Thread)
		return d
	case RunInterrupted:
		d.Thread = unknown(d.Thread)
		return d
	case RunCancelled:
		d.Thread = unknown(d.Thread)
		return d
	case RunError:
		d.Thread = unknown(d.Thread)
		return d
	}
	return d
}

// judgeMarks bounds the cursors and facts of one chunk.
func (w *Writer) judgeMarks(b Batch) error {
	c := cleaner{b: w.validator.bounds}
	c.count("cursors", len(merged(w.cursors, b.Cursors)), maxCursors)
	for source, cursor := range b.Cursors {
		c.id("cursors", source)
		c.optional("cursors.incarnation", cursor.Incarnation)
		c.notNegative("cursors.seq", cursor.Seq)
	}
	c.count("facts", len(merged(w.noted.Facts, b.Facts)), c.b.DetailKeys)
	for k, v := range b.Facts {
		c.id("facts", k)
		if len(v) > c.b.DetailBytes {
			c.refuse("too_long", "facts")
		} else if !isPlain(v, "") {
			c.refuse("control_character", "facts")
		}
	}
	if c.err != nil {
		return c.err
	}
	return nil
}

// maxCursors bounds the sources of one run.
const maxCursors = 64

// merged is a copy of a with b over it. A cursor of the same incarnation never goes back.
func merged[V any](a, b map[string]V) map[string]V {
	out := make(map[string]V, len(a)+len(b))
	maps.Copy(out, a)
	for k, v := range b {
		if have, ok := any(out[k]).(Cursor); ok {
			if c := any(v).(Cursor); c.Incarnation == have.Incarnation && c.Seq < have.Seq {
				continue
			}
		}
		out[k] = v
	}
	return out
}

// Cursor is how far a source is durable in the log: what may be acknowledged, and where a reader attaches. Source
// events after it that yielded nothing are read again, which does no harm.
func (w *Writer) Cursor(source string) (Cursor, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.cursors[source]
	return c, ok
}

// Tail is the sequence of the last durable event, 0 for an empty log.
func (w *Writer) Tail() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tail
}

// Ended reports whether the terminal is durable.
func (w *Writer) Ended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.validator.Ended() && w.frozen == nil
}

// Validator returns a copy of the state, which includes an append that is still pending.
func (w *Writer) Validator() *Validator {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.validator.clone()
}

// Facts returns the last known facts, merged over the log.
func (w *Writer) Facts() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.facts)
}
