package integrity_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/integrity"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/store/files"
	"github.com/harness-engine/harness-engine/store/sqlite"
)

// BenchmarkVerify verifies 100 runs of 1,000 events each, in chunks of 50.
func BenchmarkVerify(b *testing.B) {
	dir := b.TempDir()
	s, err := sqlite.Open(b.Context(), sqlite.Options{Path: filepath.Join(dir, "engine.sqlite"), Logger: quiet, ReserveBytes: -1, MinFreeBytes: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	events := int64(0)
	for i := range 100 {
		r := document(fmt.Sprintf("run_%03d", i), fmt.Sprintf("ses_%03d", i), 1, run.StatusRunning)
		var p run.Projection
		for first := int64(1); first <= 1000; first += 50 {
			var es []event.Event
			for n := first; n < first+50; n++ {
				e := event.Event{Time: when, Data: event.TextDelta{MessageID: "m", Delta: "some words of an answer "}}
				switch n {
				case 1:
					e.Data = begin("")
				case 2:
					e.Data = opened
				case 999:
					e.Data = closed
				case 1000:
					e.Data = finish
				}
				e.Sequence = n
				es = append(es, e)
				p.Add(e)
			}
			c, err := event.NewChunk(event.ChunkHeader{RunID: r.ID, SessionID: r.SessionID, First: first, Gen: 1, Writer: "eng_1"}, es)
			if err == nil {
				err = s.Append(b.Context(), c)
			}
			if err != nil {
				b.Fatal(err)
			}
			events += int64(len(es))
		}
		if err := p.Into(&r); err != nil {
			b.Fatal(err)
		}
		ses := binding(r.SessionID, 2)
		if err := s.InsertRun(b.Context(), r); err != nil {
			b.Fatal(err)
		}
		if err := s.InsertSession(b.Context(), ses); err != nil {
			b.Fatal(err)
		}
	}
	blobs, err := files.NewReader(filepath.Join(dir, "blobs"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	begun := time.Now()
	for b.Loop() {
		report, err := integrity.Verify(b.Context(), integrity.Options{Source: s, Blobs: blobs})
		if err != nil || len(report.Findings) != 0 || report.Events != events {
			b.Fatalf("%+v, %v", report, err)
		}
	}
	b.ReportMetric(float64(events)*float64(b.N)/time.Since(begun).Seconds(), "events/s")
}
