package storebench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
)

// StreamLoad is canonical events that come from harnesses while earlier ones are on their way to the disk.
type StreamLoad struct {
	Runs   int           // that are at work at once
	Rate   float64       // events a second of each run; 0: as fast as the log takes them
	Delta  int           // bytes of text in each event; default 12
	For    time.Duration // default 1 s
	Ahead  int           // events read ahead of the log; default 256, as the engine does
	Gather int           // events after which a chunk takes no more; default 128, as the engine does
}

func (l StreamLoad) normalised() StreamLoad {
	l.Runs = max(l.Runs, 1)
	l.Delta = cmp.Or(max(l.Delta, 0), 12)
	l.For = cmp.Or(max(l.For, 0), time.Second)
	l.Ahead = cmp.Or(max(l.Ahead, 0), 256)
	l.Gather = cmp.Or(max(l.Gather, 0), event.MaxChunkEvents/2)
	return l
}

// StreamResult is one measurement of streams. Latencies are in milliseconds.
type StreamResult struct {
	PerSecond float64 `json:"perSecond"` // events a second that became durable
	Appends   int     `json:"appends"`
	// Added is what coalescing adds: from the moment when an event was there and its run had no append under way, to
	// the beginning of its append.
	AddedP50, AddedP99 float64
	// Durable is from the moment when an event was there to the moment when it was on the disk.
	DurableP50, DurableP99 float64
	// Sizes counts chunks by their events: Sizes[i] are those of 2^i to 2^(i+1)-1.
	Sizes []int
}

// Histogram is the sizes of the chunks for people.
func (r StreamResult) Histogram() string {
	var parts []string
	for i, n := range r.Sizes {
		if n == 0 {
			continue
		}
		name := "1"
		if i > 0 {
			name = fmt.Sprintf("%d-%d", 1<<i, 1<<(i+1)-1)
		}
		parts = append(parts, fmt.Sprintf("%s: %.3g%%", name, 100*float64(n)/float64(r.Appends)))
	}
	return strings.Join(parts, ", ")
}

// Streams measures streams into a log, through the engine's writer: judged, encoded, hashed, durable, in order. Runs are
// named after prefix, which must be fresh.
func Streams(ctx context.Context, log event.Log, prefix string, l StreamLoad) (StreamResult, error) {
	l = l.normalised()
	sinks := make([]sink, l.Runs)
	for i := range sinks {
		w, err := event.OpenWriter(ctx, event.WriterConfig{
			Log: log, RunID: fmt.Sprintf("run_%s_%d", prefix, i), SessionID: "ses_" + prefix, Gen: 1, Nonce: "eng_bench",
		})
		if err != nil {
			return StreamResult{}, fmt.Errorf("failed to measure streams: %w", err)
		}
		source := int64(1)
		if _, err := w.Append(ctx, batch(source, event.RunStarted{Harness: "bench", AdapterVersion: "1", AgentVersion: 1}, event.TextStarted{MessageID: "msg_1", Role: "assistant"})); err != nil {
			return StreamResult{}, fmt.Errorf("failed to measure streams: %w", err)
		}
		delta := event.TextDelta{MessageID: "msg_1", Delta: strings.Repeat("x", l.Delta)}
		sinks[i] = func(n int) error {
			source++
			_, err := w.Append(ctx, batch(source, slices.Repeat([]event.Data{delta}, n)...))
			return err
		}
	}
	return stream(ctx, l, sinks)
}

// StreamsToFile measures the same streams into a plain file with group commit: the bytes of the same chunks, and nothing
// else of what a log is.
func StreamsToFile(ctx context.Context, folder string, l StreamLoad) (_ StreamResult, err error) {
	l = l.normalised()
	f, err := openGroup(folder, l.Runs)
	if err != nil {
		return StreamResult{}, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	bodies := make([][]byte, l.Gather+1)
	for n := range bodies {
		bodies[n] = body(n, 62+l.Delta)
	}
	sinks := make([]sink, l.Runs)
	for i := range sinks {
		sinks[i] = func(n int) error { return f.append(bodies[n]) }
	}
	return stream(ctx, l, sinks)
}

func batch(source int64, data ...event.Data) event.Batch {
	b := event.Batch{Cursors: map[string]event.Cursor{event.SourceWorker: {Incarnation: "wrk_bench", Seq: source}}}
	for _, d := range data {
		b.Events = append(b.Events, event.Event{Data: d})
	}
	return b
}

// sink makes n events durable.
type sink func(n int) error

// stream feeds each sink from a source of its own, and gathers as the engine's pump does: what is there goes into the
// next append, nothing waits for more.
func stream(ctx context.Context, l StreamLoad, sinks []sink) (StreamResult, error) {
	ctx, cancel := context.WithTimeout(ctx, l.For)
	defer cancel()
	var group sync.WaitGroup
	all, errs := make([]streamed, len(sinks)), make([]error, len(sinks))
	began := time.Now()
	for i, s := range sinks {
		source := make(chan time.Time, l.Ahead)
		group.Go(func() { l.feed(ctx, source, time.Duration(i)) })
		group.Go(func() { all[i], errs[i] = l.follow(source, s) })
	}
	group.Wait()
	took := time.Since(began)
	if err := errors.Join(errs...); err != nil {
		return StreamResult{}, fmt.Errorf("failed to measure streams: %w", err)
	}
	var sum streamed
	for _, one := range all {
		sum.added, sum.durable = append(sum.added, one.added...), append(sum.durable, one.durable...)
		sum.events += one.events
		for i, n := range one.sizes {
			sum.sizes[i] += n
		}
	}
	r := StreamResult{PerSecond: float64(sum.events) / took.Seconds(), Sizes: sum.sizes[:]}
	for _, n := range sum.sizes {
		r.Appends += n
	}
	r.AddedP50, r.AddedP99 = quantiles(sum.added)
	r.DurableP50, r.DurableP99 = quantiles(sum.durable)
	return r, nil
}

// feed gives the moments at which events are there, until the time is over, and at least one: on a machine that is slow to
// start it, too, there is something to measure. A paced source keeps to its plan however late it is woken: what is due by
// then comes at once.
func (l StreamLoad) feed(ctx context.Context, source chan<- time.Time, nth time.Duration) {
	var every time.Duration
	if l.Rate > 0 {
		every = time.Duration(float64(time.Second) / l.Rate)
	}
	due := time.Now().Add(every * nth / time.Duration(l.Runs)) // the runs do not keep step
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	given := false
	defer func() {
		if !given {
			source <- time.Now() // there is room
		}
		close(source)
	}()
	for {
		if wait := time.Until(due); every > 0 && wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		}
		select {
		case source <- time.Now():
			given = true
		case <-ctx.Done():
			return
		}
		due = due.Add(every)
	}
}

type streamed struct {
	added, durable []time.Duration
	events         int
	sizes          [9]int
}

// maxSamples of each run: enough for a quantile, whatever the rate.
const maxSamples = 20_000

func (l StreamLoad) follow(source <-chan time.Time, s sink) (r streamed, err error) {
	free := time.Now()
	var there []time.Time
	for first := range source {
		there = append(there[:0], first)
	gather:
		for len(there) < l.Gather {
			select {
			case at, ok := <-source:
				if !ok {
					break gather
				}
				there = append(there, at)
			default:
				break gather
			}
		}
		began := time.Now()
		if err := s(len(there)); err != nil {
			return r, err
		}
		done := time.Now()
		for _, at := range there {
			if len(r.added) < maxSamples {
				since := at
				if free.After(at) {
					since = free
				}
				r.added, r.durable = append(r.added, began.Sub(since)), append(r.durable, done.Sub(at))
			}
		}
		r.events += len(there)
		r.sizes[bits.Len(uint(len(there)))-1]++
		free = done
	}
	return r, nil
}

func quantiles(d []time.Duration) (p50, p99 float64) {
	if len(d) == 0 {
		return 0, 0
	}
	slices.Sort(d)
	ms := func(q float64) float64 { return float64(d[int(q*float64(len(d)-1))].Microseconds()) / 1000 }
	return ms(0.5), ms(0.99)
}
