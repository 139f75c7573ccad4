// Package storebench measures durable appends to a log beside the floor that the disk sets in the same minute: a bare
// write and sync, and a plain file with the same kind of group commit. Absolute figures belong to one machine; the
// ratio to the floor is what can be compared.
package storebench

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
)

// Result is one measurement. Latencies are in milliseconds, as a caller sees them.
type Result struct {
	Name      string  `json:"name"`
	Writers   int     `json:"writers"`
	Events    int     `json:"events"` // in each operation
	Count     int     `json:"count"`  // operations
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"perSecond"` // events a second
	P50       float64 `json:"p50Ms"`
	P99       float64 `json:"p99Ms"`
	Max       float64 `json:"maxMs"`
}

// String is one line for people.
func (r Result) String() string {
	return fmt.Sprintf("%-28s %4d writers x %3d events: %9.0f events/s, p50 %7.2f ms, p99 %7.2f ms, max %7.2f ms",
		r.Name, r.Writers, r.Events, r.PerSecond, r.P50, r.P99, r.Max)
}

// Load is what a measurement does.
type Load struct {
	Writers    int           // each has a run of its own and one append in flight
	Events     int           // in each chunk, 1 to event.MaxChunkEvents
	EventBytes int           // of one encoded event
	For        time.Duration // how long
}

func (l Load) normalised() Load {
	l.Writers = max(l.Writers, 1)
	l.Events = min(max(l.Events, 1), event.MaxChunkEvents)
	l.EventBytes = cmp.Or(max(l.EventBytes, 0), 300)
	l.For = cmp.Or(max(l.For, 0), time.Second)
	return l
}

// body is the JSON array of n events of the given size.
func body(n, bytes int) []byte {
	one := `{"type":"text.delta","data":{"messageId":"msg_1","delta":"` + strings.Repeat("x", max(1, bytes-62)) + `"}}`
	return []byte("[" + strings.Join(slices.Repeat([]string{one}, n), ",") + "]")
}

// Append measures durable appends to a log. Runs are named after prefix, which must be fresh.
func Append(ctx context.Context, log event.Log, name, prefix string, l Load) (Result, error) {
	l = l.normalised()
	b := body(l.Events, l.EventBytes)
	sum := sha256.Sum256(b)
	next := make([]int64, l.Writers)
	return drive(name, l, func(i int) error {
		c := event.Chunk{
			RunID: fmt.Sprintf("run_%s_%d", prefix, i), SessionID: "ses_" + prefix, First: next[i] + 1, Last: next[i] + int64(l.Events),
			Gen: 1, Writer: "eng_bench", Body: b, SHA256: sum,
			Cursors: map[string]event.Cursor{event.SourceWorker: {Incarnation: "wrk_bench", Seq: next[i]}},
		}
		next[i] = c.Last
		return log.Append(ctx, c)
	})
}

// Fill makes a run of n events of bytes each, in chunks of chunk events.
func Fill(ctx context.Context, log event.Log, runID string, n, chunk, bytes int) error {
	for first := int64(1); first <= int64(n); {
		size := min(chunk, n-int(first)+1)
		b := body(size, bytes)
		c := event.Chunk{RunID: runID, SessionID: "ses_bench", First: first, Last: first + int64(size) - 1, Gen: 1, Writer: "eng_bench",
			Body: b, SHA256: sha256.Sum256(b)}
		if err := log.Append(ctx, c); err != nil {
			return fmt.Errorf("failed to fill %s: %w", runID, err)
		}
		first = c.Last + 1
	}
	return nil
}

// Read measures reads of a whole run of n events, as Fill made it.
func Read(ctx context.Context, log event.Log, name, runID string, n int, during time.Duration) (Result, error) {
	return drive(name, Load{Writers: 1, Events: n, For: during}, func(int) error {
		last := int64(0)
		for last < int64(n) {
			cs, err := log.Read(ctx, runID, last, n)
			if err != nil {
				return err
			}
			if len(cs) == 0 {
				return fmt.Errorf("the log of %s ends at %d", runID, last)
			}
			last = cs[len(cs)-1].Last
		}
		return nil
	})
}

// drive calls f from all writers until the time is over.
func drive(name string, l Load, f func(writer int) error) (Result, error) {
	var group sync.WaitGroup
	took, errs := make([][]time.Duration, l.Writers), make([]error, l.Writers)
	begun := time.Now()
	for i := range l.Writers {
		group.Go(func() {
			for n := 0; errs[i] == nil && (n == 0 || time.Since(begun) < l.For); n++ {
				at := time.Now()
				errs[i] = f(i)
				took[i] = append(took[i], time.Since(at))
			}
		})
	}
	group.Wait()
	elapsed := time.Since(begun)
	if err := errors.Join(errs...); err != nil {
		return Result{}, fmt.Errorf("failed to measure %s: %w", name, err)
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	ms := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))].Microseconds()) / 1000 }
	return Result{
		Name: name, Writers: l.Writers, Events: l.Events, Count: len(all), Seconds: elapsed.Seconds(),
		PerSecond: float64(len(all)*l.Events) / elapsed.Seconds(), P50: ms(0.5), P99: ms(0.99), Max: ms(1),
	}, nil
}
