package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
	"github.com/harness-engine/harness-engine/e2e/faults/judge"
	"github.com/harness-engine/harness-engine/e2e/faults/plan"
	"github.com/harness-engine/harness-engine/e2e/faults/rig"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if built.folder != "" {
		os.RemoveAll(built.folder)
	}
	if err := enginetest.FindLeaks(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "faults:", err)
		code = 1
	}
	os.Exit(code)
}

// built are the programs with the tag faults.
var built struct {
	once     sync.Once
	folder   string
	binaries enginetest.Binaries
	err      error
}

func programs(t *testing.T) enginetest.Binaries {
	t.Helper()
	built.once.Do(func() {
		if built.err = enginetest.DependOnSources(); built.err != nil {
			return
		}
		if built.folder, built.err = os.MkdirTemp("", "faults-bin-"); built.err == nil {
			built.binaries, built.err = enginetest.Build(context.Background(), built.folder, "faults")
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.binaries
}

// folder is a place with a short path: the paths of unix sockets are bounded.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "faults-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			os.RemoveAll(dir)
		}
	})
	return dir
}

// TestFewPoints runs the machine as `make faults` does, for a few points.
func TestFewPoints(t *testing.T) {
	programs(t)
	var out, progress strings.Builder
	err := run(t.Context(), []string{"-n", "16", "-seed", "2", "-talks", "6", "-node", "0", "-bin", built.folder}, &out, &progress)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; err != nil || last != "faults: 16 points, lost 0, doubled 0, reordered 0, stale accepted 0" {
		t.Fatalf("%v: %s\n%s", err, out.String(), progress.String())
	}
}

// TestPrintsPlan shows what a seed means without doing it.
func TestPrintsPlan(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"-n", "5", "-seed", "1", "-plan"}, &out, &out); err != nil || strings.Count(out.String(), "\n") != 5 {
		t.Fatalf("%v: %s", err, out.String())
	}
}

// TestFindsALie proves the machine as a whole: a store that acknowledges what it does not write is found out. What comes after a
// lie may never come to rest; a slow machine gets more time.
func TestFindsALie(t *testing.T) {
	for settle := 15 * time.Second; ; settle *= 3 {
		found := lie(t, settle)
		if found.Has(judge.Lost) {
			return
		}
		t.Logf("within %s: %v", settle, found)
		if settle > 2*time.Minute {
			t.Fatal("six lies of the store, and nothing was found to be lost")
		}
	}
}

// lie has the store lie six times, and returns what is found.
func lie(t *testing.T, settle time.Duration) judge.Findings {
	t.Helper()
	p, err := plan.New(plan.Options{Seed: 1, Points: 6, Replicas: 1, Talks: 6, Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Points {
		p.Points[i] = plan.Point{N: i + 1, Kind: plan.StoreLie, After: 400 * time.Millisecond}
	}
	report, err := rig.Run(t.Context(), rig.Options{
		Plan: p, Binaries: programs(t), Folder: folder(t), Settle: settle, Progress: t.Output(), Args: []string{"--lease", "1s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return report.Findings
}
