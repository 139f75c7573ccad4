package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/store/storebench"
)

// BenchmarkLog measures the log beside the floor of the same disk in the same minute:
//
//	go test ./store/sqlite -run '^$' -bench Log -benchtime 1x
func BenchmarkLog(b *testing.B) {
	for range b.N {
		folder := b.TempDir()
		s, err := Open(b.Context(), Options{Path: filepath.Join(folder, "engine.db"), Logger: quiet})
		if err != nil {
			b.Fatal(err)
		}
		results, err := storebench.All(b.Context(), s, "sqlite", folder, 2*time.Second)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		for _, r := range results {
			fmt.Println(r)
		}
		b.ReportMetric(results[0].PerSecond, "floor-events/s")
	}
}

// TestBenchmarkMeasures runs each measurement for a moment, so that the benchmark does not rot.
func TestBenchmarkMeasures(t *testing.T) {
	s := openAt(t, Options{Path: newPath(t)})
	results, err := storebench.All(t.Context(), s, "sqlite", t.TempDir(), 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 1+2*len(storebench.Writers)+3 {
		t.Errorf("%d results", len(results))
	}
	for _, r := range results {
		if r.Count < 1 || r.PerSecond <= 0 || r.P50 > r.P99 || r.P99 > r.Max || r.Max <= 0 {
			t.Errorf("impossible result: %+v", r)
		}
	}
}
