// Command faults tries to prove the engine wrong: it starts real engines on one data folder, real workers and clients,
// causes a fault at each of N points that a seed draws, and compares every log with what the workers, the clients and the
// store say. docs/faults.md tells how to read what it prints.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/e2e/faults/judge"
	"github.com/harness-engine/harness-engine/e2e/faults/plan"
	"github.com/harness-engine/harness-engine/e2e/faults/rig"
)

// filePlan is the plan in a kept folder.
const filePlan = "plan.json"

// maxShown bounds the findings that are printed; all of them are in the folder.
const maxShown = 40

// errFound: the machine found something.
var errFound = errors.New("the engine was proven wrong")

type options struct {
	plan   plan.Options
	bin    string
	replay string
	only   int
	show   bool
	keep   bool
	verify bool
	limit  time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case errors.Is(err, errFound):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{plan: plan.Options{Shims: true}}
	f := flag.NewFlagSet("faults", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.plan.Points, "n", 100, "points: faults to cause")
	f.Uint64Var(&o.plan.Seed, "seed", 0, "seed of the plan; 0 draws one")
	f.IntVar(&o.plan.Replicas, "replicas", 2, "engines on the data folder")
	f.IntVar(&o.plan.Talks, "talks", 12, "conversations at once")
	f.IntVar(&o.plan.Node, "node", 2, "of them, how many are with deepagents")
	f.DurationVar(&o.plan.Lease, "lease", time.Second, "lease of the engines")
	f.StringVar(&o.bin, "bin", "bin/faults", "folder of the programs, built with the tag faults")
	f.StringVar(&o.replay, "replay", "", "folder of a failed run, whose plan is carried out again")
	f.IntVar(&o.only, "only", 0, "carry out this point of the plan and no other")
	f.BoolVar(&o.show, "plan", false, "print the plan and cause nothing")
	f.BoolVar(&o.keep, "keep", false, "keep the folder of a clean run, too")
	f.BoolVar(&o.verify, "verify", true, "ask the engine's own `admin verify`, too")
	f.DurationVar(&o.limit, "limit", 0, "give up after so long; 0: ten minutes and ten seconds a point")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("argument %q is none", f.Arg(0))
	}
	if o.replay != "" {
		raw, err := os.ReadFile(filepath.Join(o.replay, filePlan))
		if err != nil {
			return o, fmt.Errorf("failed to read plan: %w", err)
		}
		if err := json.Unmarshal(raw, &o.plan); err != nil {
			return o, fmt.Errorf("failed to read plan: %w", err)
		}
	}
	for o.plan.Seed == 0 {
		o.plan.Seed = rand.Uint64N(1_000_000)
	}
	if o.limit == 0 {
		o.limit = 10*time.Minute + time.Duration(o.plan.Points)*10*time.Second
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	p, err := plan.New(o.plan)
	if err != nil {
		return err
	}
	if o.show {
		say(stdout, "%s", p)
		return nil
	}
	binaries, err := enginetest.FindBinaries(o.bin)
	if err != nil {
		return err
	}
	if o.plan.Node > 0 {
		if err := binaries.CheckNode(); err != nil {
			return err
		}
	}
	folder, err := os.MkdirTemp("", "faults-")
	if err != nil {
		return fmt.Errorf("failed to make folder: %w", err)
	}
	raw, err := json.MarshalIndent(o.plan, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, filePlan), raw, 0o600); err != nil {
		return fmt.Errorf("failed to keep plan: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "points.txt"), []byte(p.String()), 0o600); err != nil {
		return fmt.Errorf("failed to keep plan: %w", err)
	}
	say(stderr, "faults: seed %d, %d points, %d replicas, %d conversations, folder %s\n", o.plan.Seed, o.plan.Points, o.plan.Replicas, o.plan.Talks, folder)

	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("not done within %s", o.limit))
	defer cancel()
	report, err := rig.Run(ctx, rig.Options{
		Plan: p, Binaries: binaries, Folder: folder, Only: o.only, Verify: o.verify, Progress: stderr,
		Args: []string{"--lease", o.plan.Lease.String(), "--idle-worker", "20s", "--log-level", "info"},
	})
	if err != nil {
		_ = pprof.Lookup("goroutine").WriteTo(stderr, 1) // where the rig itself hangs
		replay(stderr, o, folder)
		return err
	}
	tell(stdout, stderr, report, folder)
	if !report.Clean() {
		replay(stderr, o, folder)
	}
	summary(stdout, report)
	if !report.Clean() {
		return errFound
	}
	if !o.keep {
		return os.RemoveAll(folder)
	}
	return nil
}

// say prints; whoever does not listen misses it.
func say(to io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(to, format, args...) }

// tell prints what was done and what was found.
func tell(stdout, stderr io.Writer, r rig.Report, folder string) {
	var kinds []string
	for _, k := range plan.Kinds() {
		if n := r.Kinds[k]; n > 0 {
			kinds = append(kinds, fmt.Sprintf("%s %d", k, n))
		}
	}
	say(stdout, "faults: %s\n", strings.Join(kinds, ", "))
	var ends []string
	for _, status := range slices.Sorted(maps.Keys(r.Statuses)) {
		ends = append(ends, fmt.Sprintf("%d %s", r.Statuses[status], status))
	}
	say(stdout, "faults: runs ended: %s\n", strings.Join(ends, ", "))
	say(stdout, "faults: %d runs with %d events, %d takeovers, %d connections of listeners, %d runs whose end admits a loss, in %s\n",
		r.Runs, r.Events, r.Fences, r.Connections, r.Admitted, r.Took.Round(time.Second))
	if r.Clean() {
		return
	}
	all := make([]string, len(r.Findings))
	for i, f := range r.Findings {
		all[i] = f.String()
	}
	for _, line := range all[:min(len(all), maxShown)] {
		say(stderr, "faults: %s\n", line)
	}
	if len(all) > maxShown {
		say(stderr, "faults: and %d more\n", len(all)-maxShown)
	}
	if err := os.WriteFile(filepath.Join(folder, "findings.txt"), []byte(strings.Join(all, "\n")+"\n"), 0o600); err != nil {
		say(stderr, "faults: failed to keep findings: %s\n", err)
	}
}

// replay says how to have it again.
func replay(stderr io.Writer, o options, folder string) {
	say(stderr, "faults: seed %d; everything is kept in %s; again: go run ./e2e/faults -bin %s -replay %s\n", o.plan.Seed, folder, o.bin, folder)
}

// summary is the last line.
func summary(stdout io.Writer, r rig.Report) {
	classes := []judge.Class{judge.Lost, judge.Doubled, judge.Reordered, judge.Stale}
	parts := []string{fmt.Sprintf("%d points", r.Points)}
	for _, c := range classes {
		parts = append(parts, fmt.Sprintf("%s %d", c, r.Findings.Count(c)))
	}
	if n := len(r.Findings) - countOf(r.Findings, classes); n > 0 {
		parts = append(parts, fmt.Sprintf("other %d", n))
	}
	say(stdout, "faults: %s\n", strings.Join(parts, ", "))
}

func countOf(f judge.Findings, classes []judge.Class) int {
	n := 0
	for _, x := range f {
		if slices.Contains(classes, x.Class) {
			n++
		}
	}
	return n
}
