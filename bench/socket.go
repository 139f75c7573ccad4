package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// pace is the pause between the events of the latency figure: long enough that each is committed by itself.
const pace = 10 * time.Millisecond

// socketBench measures the way from the append to a subscriber's socket through a running engine.
type socketBench struct {
	client *enginetest.Client
	agent  string // its id
	raw    *rawFile
	loop   *loopback
}

// measureSocket measures through an engine of its own.
func measureSocket(ctx context.Context, r rig) (_ []Result, err error) {
	engine, err := startEngine(ctx, enginetest.Options{Binaries: r.binaries, Data: filepath.Join(r.data, "socket")})
	if err != nil {
		return nil, err
	}
	defer engine.close()
	b := &socketBench{client: engine.client, agent: engine.agent}
	if b.raw, err = openRawFile(r.data); err != nil {
		return nil, err
	}
	defer b.raw.close()
	if b.loop, err = openLoopback(); err != nil {
		return nil, err
	}
	defer b.loop.close()
	results, err := b.latency(ctx, r.rounds, r.paced)
	if err != nil {
		return nil, err
	}
	flood, err := b.flood(ctx, r.rounds, r.flood)
	if err != nil {
		return nil, err
	}
	return append(results, flood), nil
}

// latency measures p50 and p99 of a paced run of n events.
func (b *socketBench) latency(ctx context.Context, rounds, n int) ([]Result, error) {
	const note = "from an event's time stamp, taken before its append, to its frame at one subscriber; floor: write + fdatasync + " +
		"one loopback frame. Both stamps are cut to the millisecond, as an event's is, so both are up to 1 ms high"
	p50 := &pairs{name: "append to socket, p50", unit: "ms", note: note}
	p99 := &pairs{name: "append to socket, p99", unit: "ms", note: note}
	for range rounds {
		measured, err := b.paced(ctx, n)
		if err != nil {
			return nil, err
		}
		floor, err := b.floor(ctx, n)
		if err != nil {
			return nil, err
		}
		p50.add(quantile(measured, 0.5), quantile(floor, 0.5))
		p99.add(quantile(measured, 0.99), quantile(floor, 0.99))
	}
	return []Result{p50.result(), p99.result()}, nil
}

// paced plays a run of n events, one each pace, and returns how long each was under way.
func (b *socketBench) paced(ctx context.Context, n int) ([]time.Duration, error) {
	took := make([]time.Duration, 0, n)
	err := b.play(ctx, enginetest.Count(n, pace), func(batch enginetest.Batch) {
		for _, e := range batch.Events {
			if e.Type == enginetest.TextDelta {
				took = append(took, batch.At.Sub(e.Time))
			}
		}
	})
	if err == nil && len(took) != n {
		err = fmt.Errorf("got %d of %d events", len(took), n)
	}
	return took, err
}

// play runs a script and hands each batch that its subscriber gets to see.
func (b *socketBench) play(ctx context.Context, step enginetest.Step, see func(enginetest.Batch)) error {
	run, err := b.client.Start(ctx, enginetest.StartInput{AgentID: b.agent, Message: enginetest.Input{Text: enginetest.Script(step)}})
	if err != nil {
		return fmt.Errorf("failed to start a run: %w", err)
	}
	w, err := b.client.Watch(ctx, run.ID, 0)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		batch, err := w.Next(ctx)
		if err != nil {
			return fmt.Errorf("failed to follow run %s: %w", run.ID, err)
		}
		see(batch)
		for _, e := range batch.Events {
			switch {
			case e.Type == enginetest.RunFinished:
				return nil
			case e.Terminal():
				return fmt.Errorf("run %s ended with %s", run.ID, e)
			}
		}
	}
}

func (b *socketBench) floor(ctx context.Context, n int) ([]time.Duration, error) {
	took := make([]time.Duration, 0, n)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for range n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		stamp := time.Now().Round(0).Truncate(time.Millisecond)
		if err := b.raw.append(); err != nil {
			return nil, err
		}
		at, err := b.loop.deliver()
		if err != nil {
			return nil, err
		}
		took = append(took, at.Round(0).Sub(stamp))
	}
	return took, nil
}

// flood measures how many events a second go from a harness that does not pause to one subscriber.
func (b *socketBench) flood(ctx context.Context, rounds, n int) (Result, error) {
	p := &pairs{name: "harness to socket, unpaced", unit: "events/s", note: fmt.Sprintf("a run of %d text deltas, journal, log and one subscriber; "+
		"floor: as many loopback frames of one event each, not durable", n)}
	for range rounds {
		var first, last time.Time
		count := 0
		err := b.play(ctx, enginetest.Count(n, 0), func(batch enginetest.Batch) {
			for _, e := range batch.Events {
				if e.Type != enginetest.TextDelta {
					continue
				}
				if count++; count == 1 {
					first = batch.At
				}
				last = batch.At
			}
		})
		if err != nil {
			return Result{}, err
		}
		began := time.Now()
		for range n {
			if _, err := b.loop.deliver(); err != nil {
				return Result{}, err
			}
		}
		p.add(rate(count, last.Sub(first)), rate(n, time.Since(began)))
	}
	return p.result(), nil
}

func rate(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
