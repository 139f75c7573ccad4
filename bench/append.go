package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/harness-engine/harness-engine/store/sqlite"
	"github.com/harness-engine/harness-engine/store/storebench"
)

// appendBench measures durable appends of one event by so many runs at once, each pair of a round right after the
// other: the raw write and sync of one writer, a plain file with group commit, the store.
func appendBench(ctx context.Context, folder string, rounds int, each time.Duration, profile *profiler) (_ []Result, err error) {
	s, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(folder, "bench.sqlite"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var results []Result
	for _, writers := range storebench.Writers {
		rate := &pairs{name: fmt.Sprintf("durable append, %d runs", writers), unit: "events/s",
			note: "one event an append, each run waits for its own; floor: one writer's write + fdatasync of the same bytes"}
		file := &pairs{name: fmt.Sprintf("durable append, %d runs, beside a file", writers), unit: "events/s",
			note: "the same; floor: a plain file with group commit and as many writers, without keys, reads and documents"}
		p50 := &pairs{name: fmt.Sprintf("durable append, %d runs, p50", writers), unit: "ms", note: "of an append, as its caller sees it; floor: the write + fdatasync"}
		p99 := &pairs{name: fmt.Sprintf("durable append, %d runs, p99", writers), unit: "ms", note: "of an append, as its caller sees it; floor: the write + fdatasync"}
		for round := range rounds {
			load := storebench.Load{Writers: writers, Events: 1, For: each}
			floor, err := storebench.Floor(folder, load)
			if err != nil {
				return nil, err
			}
			measured, err := storebench.Append(ctx, s, "sqlite", fmt.Sprintf("w%d_%d", writers, round), load)
			if err != nil {
				return nil, err
			}
			plain, err := storebench.GroupFile(folder, load)
			if err != nil {
				return nil, err
			}
			rate.add(measured.PerSecond, floor.PerSecond)
			file.add(measured.PerSecond, plain.PerSecond)
			p50.add(measured.P50, floor.P50)
			p99.add(measured.P99, floor.P99)
		}
		results = append(results, rate.result(), file.result(), p50.result(), p99.result())
	}
	streams, err := streamBench(ctx, s, folder, rounds, each, profile)
	return append(results, streams...), err
}

// tokens is how many events a second a run has whose model is fast.
const tokens = 125

// streamBench measures runs whose events come while earlier ones are on their way to the disk: paced, as a model gives
// them, and as fast as the log takes them. Beside it a plain file with group commit that gets the same streams.
func streamBench(ctx context.Context, s *sqlite.Store, folder string, rounds int, each time.Duration, profile *profiler) ([]Result, error) {
	var results []Result
	for _, pace := range []float64{tokens, 0} {
		for _, runs := range storebench.Writers {
			title := fmt.Sprintf("durable events, %d runs, unpaced", runs)
			note := "canonical events through the engine's writer, as fast as the log takes them, what has piled up in one chunk; beside a plain file with group commit"
			if pace > 0 {
				title = fmt.Sprintf("durable events, %d runs of %d/s", runs, tokens)
				note = "canonical events through the engine's writer, at a model's pace, what has piled up in one chunk; beside a plain file with group commit"
			}
			rate := &pairs{name: title, unit: "events/s", note: note}
			p99 := &pairs{name: title + ", p99 to durable", unit: "ms", note: "from the moment when an event is there to the moment when it is on the disk"}
			added := &pairs{name: title + ", p99 added by coalescing", unit: "ms",
				note: "from the moment when an event is there and its run has no append under way to the beginning of its append"}
			if runs == 256 {
				rate.least = atLeast(30_000)
			}
			if pace > 0 && runs <= 256 {
				added.least = atMost(5)
			}
			for round := range rounds {
				load := storebench.StreamLoad{Runs: runs, Rate: pace, For: each}
				stop, err := profile.self(title)
				if err != nil {
					return nil, err
				}
				measured, err := storebench.Streams(ctx, s, fmt.Sprintf("s%v_%d_%d", pace > 0, runs, round), load)
				if err := errors.Join(err, stop()); err != nil {
					return nil, err
				}
				plain, err := storebench.StreamsToFile(ctx, folder, load)
				if err != nil {
					return nil, err
				}
				rate.add(measured.PerSecond, plain.PerSecond)
				p99.add(measured.DurableP99, plain.DurableP99)
				added.add(measured.AddedP99, plain.AddedP99)
				rate.detail = "events in a chunk " + measured.Histogram()
			}
			results = append(results, rate.result(), p99.result(), added.result())
		}
	}
	return results, nil
}
