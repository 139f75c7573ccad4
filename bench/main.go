// Command bench measures the engine beside the floor that this machine sets, and beside peers, in the same run: durable
// appends beside a raw write and sync and a plain file, the way from an append to a subscriber's socket beside sync and
// loopback, fan-out beside bare sockets, gqlgen and Node, a replay beside a reading of the store, idle subscribers'
// memory, and what a stalled reader costs the others. It prints a table and writes the figures with their rounds as
// JSON. A figure of one run on one machine is no promise; the ratio is what can be compared. It runs on Linux.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
	fan    int           // rounds of the fan-out
	shapes []shape
	replay int // events of the replayed run, a multiple of replayMessage
	idle   int // sockets that do nothing
	stall  stallLoad
}

var (
	usual = settings{rounds: 5, each: 2 * time.Second, paced: 300, flood: 5000, fan: 3, shapes: usualShapes, replay: 100_000, idle: 10_000, stall: usualStall}
	quick = settings{rounds: 3, each: 300 * time.Millisecond, paced: 100, flood: 1000, fan: 1, shapes: quickShapes, replay: 10_000, idle: 500, stall: quickStall}
)

func main() {
	bin := flag.String("bin", "bin", "folder of the built programs")
	out := flag.String("out", "bench/results", "folder for the result file")
	data := flag.String("data", "", "folder on the disk to measure; default: a new one beside the results")
	short := flag.Bool("quick", false, "measure little, to see that it works")
	each := flag.Duration("duration", 0, "time of each append measurement; default 2s")
	rounds := flag.Int("rounds", 0, "interleaved rounds of each figure; default 5, of the fan-out 3")
	only := flag.String("only", "", "measure only these, separated by commas: "+strings.Join(names(), ", "))
	match := flag.String("match", "", "of the fan-out only what this regular expression finds, for instance 'one run to 1,000$'")
	longer := flag.Int("longer", 1, "times as many words in the fan-out, for figures with less noise")
	profile := flag.Bool("profile", false, "take CPU profiles of the engine, and of the appends, into the folder of the results")
	flag.Parse()

	s := usual
	if *short {
		s = quick
	}
	if *each > 0 {
		s.each = *each
	}
	if *rounds > 0 {
		s.rounds, s.fan = *rounds, *rounds
	}
	matching, err := regexp.Compile(*match)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: -match:", err)
		os.Exit(2)
	}
	s.shapes = slices.DeleteFunc(slices.Clone(s.shapes), func(x shape) bool { return !matching.MatchString(x.String()) })
	for i := range s.shapes {
		s.shapes[i].words *= max(*longer, 1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, options{*bin, *out, *data, *only, *profile}, s); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	bin, out, data, only string
	profile              bool
}

// rig is what every measurement gets.
type rig struct {
	settings
	binaries enginetest.Binaries
	root     string // of the source tree
	data     string // folder on the disk to measure
	profile  *profiler
}

// sections are the measurements, in order.
var sections = []struct {
	name, title string
	measure     func(context.Context, rig) ([]Result, error)
}{
	{"append", "durable appends", func(ctx context.Context, r rig) ([]Result, error) {
		return appendBench(ctx, r.data, r.rounds, r.each, r.profile)
	}},
	{"socket", "append to socket", measureSocket},
	{"fanout", "fan-out beside its peers", measureFanOuts},
	{"replay", "replay beside a reading of the store", measureReplay},
	{"idle", "memory of idle subscribers", measureIdle},
	{"stall", "a stalled reader among others", measureStall},
}

func names() []string {
	var all []string
	for _, s := range sections {
		all = append(all, s.name)
	}
	return all
}

func bench(ctx context.Context, o options, s settings) (err error) {
	wanted := names()
	if o.only != "" {
		wanted = strings.Split(o.only, ",")
	}
	for _, w := range wanted {
		if !slices.Contains(names(), w) {
			return fmt.Errorf("there is no measurement %q: %s", w, strings.Join(names(), ", "))
		}
	}
	r := rig{settings: s, data: o.data}
	if r.binaries, err = enginetest.FindBinaries(o.bin); err != nil {
		return err
	}
	r.root = filepath.Dir(filepath.Dir(r.binaries.NodeDir))
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("failed to make folder %s: %w", o.out, err)
	}
	if o.profile {
		if r.profile, err = newProfiler(o.out); err != nil {
			return err
		}
	}
	if r.data == "" {
		// Beside the results, not in a temporary folder: that may be memory, where a sync costs nothing.
		if r.data, err = os.MkdirTemp(o.out, "data-"); err != nil {
			return fmt.Errorf("failed to make a data folder: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(r.data)) }()
	}
	report := newReport(s.rounds)
	for _, section := range sections {
		if !slices.Contains(wanted, section.name) {
			continue
		}
		fmt.Printf("measuring %s ...\n", section.title)
		results, err := section.measure(ctx, r)
		if err != nil {
			return err
		}
		report.Results = append(report.Results, results...)
	}
	if err := report.table(os.Stdout); err != nil {
		return err
	}
	path, err := report.write(o.out)
	if err != nil {
		return err
	}
	fmt.Println("\nwritten to", path)
	return nil
}
