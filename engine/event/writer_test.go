package event_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/event/eventtest"
)

var (
	started  = event.Event{Data: event.RunStarted{Harness: "scripted"}}
	opened   = event.Event{Data: event.TextStarted{MessageID: "m", Role: "assistant"}}
	finished = event.Event{Data: event.RunFinished{Outcome: "success", StopReason: "end_turn", Thread: event.ThreadState{Durability: event.DurabilityLocal}}}
)

func delta(text string) event.Event {
	return event.Event{Data: event.TextDelta{MessageID: "m", Delta: text}}
}

func batch(events ...event.Event) event.Batch { return event.Batch{Events: events} }

// published keeps what a writer publishes.
type published struct {
	mu     sync.Mutex
	chunks []event.Chunk
}

func (p *published) add(c event.Chunk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chunks = append(p.chunks, c)
}

func (p *published) firsts() (out []int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.chunks {
		out = append(out, c.First)
	}
	return out
}

func config(log event.Log, gen int64) event.WriterConfig {
	return event.WriterConfig{Log: log, RunID: "run_1", SessionID: "ses_1", Gen: gen, Nonce: fmt.Sprint("boot", gen)}
}

func open(t *testing.T, cfg event.WriterConfig) *event.Writer {
	t.Helper()
	w, err := event.OpenWriter(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func appended(t *testing.T, w *event.Writer, b event.Batch) []event.Event {
	t.Helper()
	out, err := w.Append(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// history reads a whole log back, checked.
func history(t *testing.T, log *eventtest.Log) []event.Event {
	t.Helper()
	var out []event.Event
	for _, c := range log.Chunks("run_1") {
		if err := c.Verify(); err != nil {
			t.Fatal(err)
		}
		events, err := c.Events()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, events...)
	}
	for i, e := range out {
		if e.Sequence != int64(i+1) {
			t.Fatalf("event %d has sequence %d", i+1, e.Sequence)
		}
	}
	return out
}

func types(events []event.Event) string {
	var out []string
	for _, e := range events {
		out = append(out, string(e.Type()))
	}
	return strings.Join(out, " ")
}

func TestWriterAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, pub := eventtest.NewLog(), &published{}
		cfg := config(log, 1)
		cfg.Publish = pub.add
		w := open(t, cfg)
		first := appended(t, w, batch(started, opened))
		if first[1].Sequence != 2 || first[1].RunID != "run_1" || first[1].SessionID != "ses_1" || first[1].Time.IsZero() {
			t.Errorf("stamped as %+v", first[1])
		}
		late := delta("hello")
		late.Time = time.Unix(1, 0) // the source's clock is not the log's
		late.Sequence = 77
		appended(t, w, event.Batch{
			Events:  []event.Event{late, delta("")},
			Cursors: map[string]event.Cursor{event.SourceWorker: {Incarnation: "i", Seq: 4}},
			Facts:   map[string]string{"native_session_id": "n1"},
		})
		if out := appended(t, w, batch(finished)); types(out) != "text.finished run.finished" {
			t.Errorf("terminal written as %s", types(out))
		}
		if !w.Ended() || w.Tail() != 5 {
			t.Errorf("ended %v, tail %d", w.Ended(), w.Tail())
		}
		if c, ok := w.Cursor(event.SourceWorker); !ok || c.Seq != 4 {
			t.Errorf("cursor %+v", c)
		}
		if w.Facts()["native_session_id"] != "n1" {
			t.Errorf("facts %v", w.Facts())
		}
		got := history(t, log)
		if want := "run.started text.started text.delta text.finished run.finished"; types(got) != want {
			t.Errorf("log holds %s", types(got))
		}
		if got[2].Time.Year() == 1970 {
			t.Error("the source's time was kept")
		}
		chunks := log.Chunks("run_1")
		if !chunks[2].Terminal || chunks[1].Terminal || chunks[2].Cursors[event.SourceWorker].Seq != 4 || len(chunks[2].Facts) > 0 {
			t.Errorf("chunks %+v", chunks)
		}
		if !reflect.DeepEqual(pub.firsts(), []int64{1, 3, 4}) {
			t.Errorf("published %v", pub.firsts())
		}
		var invalid *event.InvalidError
		if _, err := w.Append(t.Context(), batch(delta("x"))); !errors.As(err, &invalid) || invalid.Rule != 1 {
			t.Errorf("append after the terminal: %v", err)
		}
	})
}

func TestWriterFillsThreadState(t *testing.T) {
	log := eventtest.NewLog()
	w := open(t, config(log, 1))
	out := appended(t, w, batch(started, event.Event{Data: event.RunError{Code: "c", Category: event.CategoryInternal}}))
	d := out[1].Data.(event.RunError)
	if d.Thread.Durability != event.DurabilityUncertain || d.SideEffects != event.SideEffectsNone {
		t.Errorf("terminal %+v", d)
	}
}

func TestWriterRefusesWithoutTrace(t *testing.T) {
	log := eventtest.NewLog()
	w := open(t, config(log, 1))
	appended(t, w, batch(started, opened))
	many := make([]event.Event, event.MaxChunkEvents+1)
	large := make([]event.Event, 80)
	for i := range many {
		many[i] = delta("x")
	}
	for i := range large {
		large[i] = delta(strings.Repeat("x", 16<<10))
	}
	facts := map[string]string{}
	for i := range 33 {
		facts[fmt.Sprint(i)] = ""
	}
	for name, b := range map[string]event.Batch{
		"bad event after good ones": batch(delta("a"), event.Event{Data: event.TextStarted{MessageID: "n", Role: "assistant"}}, event.Event{Data: event.TextDelta{MessageID: "x", Delta: "b"}}),
		"run.started again":         batch(started),
		"events after a terminal":   batch(finished, delta("x")),
		"too many events":           batch(many...),
		"one long delta":            batch(delta(strings.Repeat("x", 5<<20))),
		"too many bytes":            batch(large...),
		"too many facts":            {Facts: facts},
		"long fact":                 {Facts: map[string]string{"k": strings.Repeat("x", 1025)}},
		"control in a fact":         {Facts: map[string]string{"k": "\x00"}},
		"nameless source":           {Cursors: map[string]event.Cursor{"": {}}},
		"negative cursor":           {Cursors: map[string]event.Cursor{"a": {Seq: -1}}},
	} {
		_, err := w.Append(t.Context(), b)
		var invalid *event.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if w.Tail() != 2 || w.Ended() || len(log.Tried()) != 1 {
		t.Errorf("tail %d, %d appends", w.Tail(), len(log.Tried()))
	}
	// The ids of refused batches are free again.
	appended(t, w, batch(event.Event{Data: event.TextStarted{MessageID: "n", Role: "assistant"}}, delta("x"), finished))
}

func TestWriterCursors(t *testing.T) {
	log := eventtest.NewLog()
	w := open(t, config(log, 1))
	at := func(source, incarnation string, seq int64, events ...event.Event) event.Batch {
		return event.Batch{Events: events, Cursors: map[string]event.Cursor{source: {Incarnation: incarnation, Seq: seq}}}
	}
	appended(t, w, batch(started, opened))
	appended(t, w, at("worker", "i", 3, delta("a")))
	// Source events that yield nothing are noted, not durable, and ride with the next chunk, of whatever source.
	for seq := range int64(3) {
		appended(t, w, event.Batch{Cursors: map[string]event.Cursor{"worker": {Incarnation: "i", Seq: 4 + seq}}, Facts: map[string]string{"k": "v"}})
	}
	if c, _ := w.Cursor("worker"); c.Seq != 3 || len(log.Chunks("run_1")) != 2 {
		t.Errorf("cursor %+v before it is durable", c)
	}
	appended(t, w, at("inbox", "", 1, delta("b")))
	if c, _ := w.Cursor("worker"); c.Seq != 6 || w.Facts()["k"] != "v" {
		t.Errorf("cursor %+v, facts %v", c, w.Facts())
	}
	tail := log.Chunks("run_1")[2]
	if !reflect.DeepEqual(tail.Cursors, map[string]event.Cursor{"worker": {Incarnation: "i", Seq: 6}, "inbox": {Seq: 1}}) {
		t.Errorf("vector %v", tail.Cursors)
	}
	// What was taken is not taken again.
	for _, seq := range []int64{5, 6} {
		if _, err := w.Append(t.Context(), at("worker", "i", seq, delta("again"))); !errors.Is(err, event.ErrTaken) {
			t.Errorf("source event %d again: %v", seq, err)
		}
		appended(t, w, at("worker", "i", seq)) // but it may be reported again when it yields nothing
	}
	appended(t, w, at("worker", "i2", 1, delta("another incarnation")))
	if c, _ := w.Cursor("worker"); c != (event.Cursor{Incarnation: "i2", Seq: 1}) {
		t.Errorf("cursor %+v", c)
	}
}

// TestWriterResolves: whatever an append does, the log holds the batch once and the writer knows.
func TestWriterResolves(t *testing.T) {
	failed := eventtest.Failed(errors.New("busy"))
	hidden := eventtest.Unknown(true)
	hidden.Hidden = 3
	slow := eventtest.Fault{Delay: time.Minute, Written: true}
	for name, faults := range map[string][]eventtest.Fault{
		"unknown, written":           {eventtest.Unknown(true)},
		"unknown, not written":       {eventtest.Unknown(false)},
		"unknown many times":         {eventtest.Unknown(false), eventtest.Unknown(false), failed, failed, failed, failed, failed, failed, failed, failed, eventtest.Unknown(true)},
		"unknown, not yet visible":   {hidden},
		"failed, then written":       {failed, failed, failed},
		"failed, then unknown":       {failed, eventtest.Unknown(true)},
		"disk full for a long time":  repeated(eventtest.DiskFull(), 50),
		"no answer":                  {slow},
		"disk full after an unknown": {eventtest.Unknown(false), eventtest.DiskFull(), eventtest.DiskFull()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, pub := eventtest.NewLog(), &published{}
				cfg := config(log, 1)
				cfg.Publish = pub.add
				w := open(t, cfg)
				appended(t, w, batch(started, opened))
				log.Inject(faults...)
				if out := appended(t, w, batch(delta("a"))); out[0].Sequence != 3 {
					t.Errorf("sequence %d", out[0].Sequence)
				}
				appended(t, w, batch(finished))
				if got := types(history(t, log)); got != "run.started text.started text.delta text.finished run.finished" {
					t.Errorf("log holds %s", got)
				}
				if !reflect.DeepEqual(pub.firsts(), []int64{1, 3, 4}) {
					t.Errorf("published %v", pub.firsts())
				}
				// A retry carries the same bytes, time and key.
				byKey := map[int64][32]byte{}
				for _, c := range log.Tried() {
					if h, ok := byKey[c.First]; ok && h != c.SHA256 {
						t.Errorf("chunk %d was changed between attempts", c.First)
					}
					byKey[c.First] = c.SHA256
				}
			})
		})
	}
}

func repeated(f eventtest.Fault, n int) []eventtest.Fault {
	out := make([]eventtest.Fault, n)
	for i := range out {
		out[i] = f
	}
	return out
}

// TestWriterLateWrite: the lost append lands while the writer repeats it.
func TestWriterLateWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventtest.NewLog()
		w := open(t, config(log, 1))
		appended(t, w, batch(started, opened))
		log.Inject(eventtest.Late())
		n := 0
		log.OnAppend(func(event.Chunk) {
			if n++; n == 2 {
				if log.Land() != 1 {
					t.Error("nothing landed")
				}
			}
		})
		appended(t, w, batch(delta("a")))
		appended(t, w, batch(delta("b")))
		if got := types(history(t, log)); got != "run.started text.started text.delta text.delta" {
			t.Errorf("log holds %s", got)
		}
	})
}

func TestWriterGivesUpOnlyWhatIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventtest.NewLog()
		w := open(t, config(log, 1))
		appended(t, w, batch(started, opened))
		cause := errors.New("refused")
		log.Inject(repeated(eventtest.Failed(cause), 6)...)
		if _, err := w.Append(t.Context(), batch(event.Event{Data: event.TextStarted{MessageID: "n", Role: "assistant"}})); !errors.Is(err, cause) || errors.Is(err, event.ErrPending) {
			t.Fatalf("error %v", err)
		}
		// As if it had never been: the same batch may come again.
		appended(t, w, batch(event.Event{Data: event.TextStarted{MessageID: "n", Role: "assistant"}}))
		if got := types(history(t, log)); got != "run.started text.started text.started" {
			t.Errorf("log holds %s", got)
		}
	})
}

// TestWriterKeepsWhatItsCallerLeft: a caller's cancellation does not abandon a frozen append, whatever happens next.
func TestWriterKeepsWhatItsCallerLeft(t *testing.T) {
	for name, faults := range map[string][]eventtest.Fault{
		"disk full": repeated(eventtest.DiskFull(), 10),
		"unknown":   repeated(eventtest.Unknown(false), 10),
		"failed":    repeated(eventtest.Failed(errors.New("refused")), 30), // more than the attempts
		"slow":      {{Delay: 10 * time.Second, Written: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, pub := eventtest.NewLog(), &published{}
				cfg := config(log, 1)
				cfg.Publish = pub.add
				w := open(t, cfg)
				appended(t, w, batch(started, opened))
				log.Inject(faults...)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				if _, err := w.Append(ctx, batch(delta("left"))); !errors.Is(err, event.ErrPending) || !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("error %v", err)
				}
				if w.Tail() != 2 {
					t.Fatalf("tail %d", w.Tail())
				}
				if _, err := w.Append(ctx, batch(delta("impatient"))); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, event.ErrPending) {
					t.Fatalf("an append that never began: %v", err)
				}
				if out := appended(t, w, batch(delta("next"))); out[0].Sequence != 4 {
					t.Errorf("next is %d", out[0].Sequence)
				}
				got := history(t, log)
				if types(got) != "run.started text.started text.delta text.delta" || got[2].Data.(event.TextDelta).Delta != "left" {
					t.Errorf("log holds %+v", got)
				}
				if !reflect.DeepEqual(pub.firsts(), []int64{1, 3, 4}) {
					t.Errorf("published %v", pub.firsts())
				}
			})
		})
	}
}

func TestWriterLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventtest.NewLog()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w, err := event.OpenWriter(ctx, config(log, 1))
		if err != nil {
			t.Fatal(err)
		}
		appended(t, w, batch(started))
		log.Inject(repeated(eventtest.DiskFull(), 1000)...)
		result := make(chan error)
		go func() {
			_, err := w.Append(t.Context(), batch(opened))
			result <- err
		}()
		synctest.Wait() // it waits for the disk
		cancel()
		if err := <-result; !errors.Is(err, event.ErrClosed) {
			t.Errorf("pending append: %v", err)
		}
		if _, err := w.Append(t.Context(), batch(opened)); !errors.Is(err, event.ErrClosed) {
			t.Errorf("append after the end: %v", err)
		}
		if err := w.Flush(t.Context()); !errors.Is(err, event.ErrClosed) {
			t.Errorf("flush after the end: %v", err)
		}
	})
}

func TestWriterIsConcurrent(t *testing.T) {
	log := eventtest.NewLog()
	w := open(t, config(log, 1))
	appended(t, w, batch(started, opened))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 25 {
				if _, err := w.Append(t.Context(), batch(delta(fmt.Sprint(i)))); err != nil {
					t.Error(err)
				}
				_ = w.Validator()
				_ = w.Tail()
			}
		})
	}
	wg.Wait()
	if got := len(history(t, log)); got != 202 {
		t.Errorf("%d events", got)
	}
}

func BenchmarkAppend(b *testing.B) {
	log := eventtest.NewLog()
	w, err := event.OpenWriter(b.Context(), config(log, 1))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := w.Append(b.Context(), batch(started, opened)); err != nil {
		b.Fatal(err)
	}
	one := batch(delta("some tokens of text "))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Append(b.Context(), one); err != nil {
			b.Fatal(err)
		}
	}
}
