// Command bench measures the engine beside the floor that this machine sets in the same run: durable appends beside a
// raw write and sync, and the way from an append to a subscriber's socket beside sync and loopback. It prints a table
// and writes the figures with their rounds as JSON. A figure of one run on one machine is no promise; the ratio to
// the floor is what can be compared.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// settings are how much is measured.
type settings struct {
	rounds int
	each   time.Duration // one append measurement
	paced  int           // events of a latency round
	flood  int           // events of a throughput round; a script is at most one message long
}

var (
	usual = settings{rounds: 5, each: 2 * time.Second, paced: 300, flood: 5000}
	quick = settings{rounds: 3, each: 300 * time.Millisecond, paced: 100, flood: 1000}
)

func main() {
	bin := flag.String("bin", "bin", "folder of the built programs")
	out := flag.String("out", "bench/results", "folder for the result file")
	data := flag.String("data", "", "folder on the disk to measure; default: a new one beside the results")
	short := flag.Bool("quick", false, "measure little, to see that it works")
	each := flag.Duration("duration", 0, "time of each append measurement; default 2s")
	rounds := flag.Int("rounds", 0, "interleaved rounds of each figure; default 5")
	flag.Parse()

	s := usual
	if *short {
		s = quick
	}
	if *each > 0 {
		s.each = *each
	}
	if *rounds > 0 {
		s.rounds = *rounds
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, *bin, *out, *data, s); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, bin, out, data string, s settings) (err error) {
	binaries, err := enginetest.FindBinaries(bin)
	if err != nil {
		return err
	}
	if data == "" {
		// Beside the results, not in a temporary folder: that may be memory, where a sync costs nothing.
		if err := os.MkdirAll(out, 0o755); err != nil {
			return fmt.Errorf("failed to make folder %s: %w", out, err)
		}
		if data, err = os.MkdirTemp(out, "data-"); err != nil {
			return fmt.Errorf("failed to make a data folder: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	}
	report := newReport(s.rounds)
	fmt.Println("measuring durable appends ...")
	results, err := appendBench(ctx, data, s.rounds, s.each)
	if err != nil {
		return err
	}
	report.Results = append(report.Results, results...)
	fmt.Println("measuring append to socket ...")
	if results, err = measureEngine(ctx, binaries, data, s); err != nil {
		return err
	}
	report.Results = append(report.Results, results...)
	if err := report.table(os.Stdout); err != nil {
		return err
	}
	path, err := report.write(out)
	if err != nil {
		return err
	}
	fmt.Println("\nwritten to", path)
	return nil
}

// measureEngine measures through an engine of its own.
func measureEngine(ctx context.Context, binaries enginetest.Binaries, data string, s settings) (_ []Result, err error) {
	engine, err := enginetest.Start(ctx, enginetest.Options{Binaries: binaries, Data: filepath.Join(data, "engine")})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, engine.Stop(), engine.Cleanup()) }()
	b := &socketBench{client: engine.Client()}
	defer b.client.Close()
	if b.agent, err = b.client.NewAgent(ctx, "bench", "scripted"); err != nil {
		return nil, fmt.Errorf("failed to save an agent: %w", err)
	}
	if b.raw, err = openRawFile(data); err != nil {
		return nil, err
	}
	defer b.raw.close()
	if b.loop, err = openLoopback(); err != nil {
		return nil, err
	}
	defer b.loop.close()
	results, err := b.latency(ctx, s.rounds, s.paced)
	if err != nil {
		return nil, err
	}
	flood, err := b.flood(ctx, s.rounds, s.flood)
	if err != nil {
		return nil, err
	}
	return append(results, flood), nil
}
