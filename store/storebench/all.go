package storebench

import (
	"context"
	"fmt"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
)

// Writers are the numbers of concurrent writers that All measures.
var Writers = []int{1, 16, 256, 1000}

// All measures a log beside the floor of the folder's disk: appends of one event with each of Writers, batches of 50
// events, and reads of 1,000 events. Each measurement takes about the given time. The log must be fresh.
func All(ctx context.Context, log event.Log, name, folder string, each time.Duration) ([]Result, error) {
	var out []Result
	add := func(r Result, err error) error {
		if err == nil {
			out = append(out, r)
		}
		return err
	}
	if err := add(Floor(folder, Load{For: each})); err != nil {
		return nil, err
	}
	for _, n := range Writers {
		l := Load{Writers: n, For: each}
		if err := add(GroupFile(folder, l)); err != nil {
			return nil, err
		}
		if err := add(Append(ctx, log, name, fmt.Sprintf("w%d", n), l)); err != nil {
			return nil, err
		}
	}
	if err := add(Append(ctx, log, name, "batch", Load{Writers: 1, Events: 50, For: each})); err != nil {
		return nil, err
	}
	for _, chunk := range []int{1, 25} {
		run := fmt.Sprintf("run_read_%d", chunk)
		if err := Fill(ctx, log, run, 1000, chunk, 300); err != nil {
			return nil, err
		}
		if err := add(Read(ctx, log, fmt.Sprintf("%s read, %d in a chunk", name, chunk), run, 1000, each)); err != nil {
			return nil, err
		}
	}
	return out, nil
}
