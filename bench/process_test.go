package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestProcessFigures burns processor time and takes memory, and looks whether that shows.
func TestProcessFigures(t *testing.T) {
	before, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); ; {
		for i := range 1_000_000 {
			_ = i
		}
		now, err := cpuTime(os.Getpid())
		if err != nil || time.Now().After(end) {
			t.Fatalf("used %s (%v)", now-before, err)
		}
		if now >= before+3*clockTick {
			break
		}
	}
	low, err := resident(os.Getpid())
	if err != nil || low <= 0 {
		t.Fatalf("resident %d, %v", low, err)
	}
	const size = 64 << 20
	b := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		b[i] = 1
	}
	if high, err := resident(os.Getpid()); err != nil || high < low+size/2 {
		t.Errorf("resident %d, then %d with %d more, %v", low, high, size, err)
	}
	if b[0] != 1 {
		t.Error("unreachable; keeps the memory")
	}
	if _, err := cpuTime(-1); err == nil {
		t.Error("a process that is not there has a time")
	}
}

// A goal is judged on the ratio where there is a floor, else on the figure; least on the figure in any case.
func TestGoals(t *testing.T) {
	for want, p := range map[string]*pairs{
		">= 0.8 met":         {goal: atLeast(0.8), measured: []float64{9}, floor: []float64{10}},
		">= 0.8 MISSED":      {goal: atLeast(0.8), measured: []float64{7}, floor: []float64{10}},
		"<= 8 KB met":        {goal: atMost(8), unit: "KB", measured: []float64{8}},
		"<= 8 KB MISSED":     {goal: atMost(8), unit: "KB", measured: []float64{9}},
		">= 30 events/s met": {least: atLeast(30), unit: "events/s", measured: []float64{31}, floor: []float64{310}},
		"<= 5 ms MISSED":     {least: atMost(5), unit: "ms", measured: []float64{6}, floor: []float64{60}},
		"":                   {measured: []float64{1}, floor: []float64{1}},
		"<= 1.1 met":         {goal: atMost(1.1), measured: []float64{1, 2, 3}, floor: []float64{2, 2, 2}},
	} {
		if got := p.result().verdict(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFileNames(t *testing.T) {
	if got := fileName("engine fan-out of one run, unpaced to 1,000/s"); strings.ContainsAny(got, " ,/") {
		t.Errorf("got %q", got)
	}
}
