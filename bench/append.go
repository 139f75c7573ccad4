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
func appendBench(ctx context.Context, folder string, rounds int, each time.Duration) (_ []Result, err error) {
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
	return results, nil
}
