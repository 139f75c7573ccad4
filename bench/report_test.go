package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

func TestSummarise(t *testing.T) {
	cases := []struct {
		name             string
		rounds           []float64
		median, min, max float64
	}{
		{"none", nil, 0, 0, 0},
		{"one", []float64{3}, 3, 3, 3},
		{"odd", []float64{9, 1, 5}, 5, 1, 9},
		{"even", []float64{4, 1, 2, 9}, 3, 1, 9},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := summarise(c.rounds)
			if got.Median != c.median || got.Min != c.min || got.Max != c.max {
				t.Fatalf("got %+v, want median %v, min %v, max %v", got, c.median, c.min, c.max)
			}
		})
	}
}

func TestQuantile(t *testing.T) {
	d := make([]time.Duration, 100)
	for i := range d {
		d[i] = time.Duration(100-i) * time.Millisecond // falling: it has to sort
	}
	for q, want := range map[float64]float64{0: 1, 0.5: 51, 0.99: 100, 1: 100} {
		if got := quantile(d, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing is %v", got)
	}
}

// TestReport checks that each ratio is taken within its round, and that what is written can be read.
func TestReport(t *testing.T) {
	p := &pairs{name: "x", unit: "ms"}
	p.add(10, 5)
	p.add(30, 10)
	p.add(8, 8)
	r := newReport(3)
	r.Results = []Result{p.result()}
	if got := r.Results[0].Ratio; got.Median != 2 || got.Min != 1 || got.Max != 3 {
		t.Fatalf("ratio is %+v, want 2 (1 to 3)", got)
	}
	path, err := r.write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(raw, &back); err != nil || back.Results[0].Measured.Median != 10 {
		t.Fatalf("read back %+v (%v)", back, err)
	}
	var out strings.Builder
	if err := r.table(&out); err != nil || !strings.Contains(out.String(), "2 (1 to 3)") {
		t.Fatalf("table is %q (%v)", out.String(), err)
	}
}
