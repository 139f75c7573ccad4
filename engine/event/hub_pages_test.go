package event

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Kept pages stay under their bound, whatever is kept, found and dropped, and a page is found by each cursor within it.
func TestPagesAreBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := newPages(1000)
		kept := map[string]int64{}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			run := fmt.Sprint("run_", rapid.IntRange(1, 3).Draw(rt, "run"))
			switch rapid.SampledFrom([]string{"keep", "keep", "keep", "find", "drop"}).Draw(rt, "kind") {
			case "keep":
				n := rapid.Int64Range(0, 5).Draw(rt, "events")
				got := &page{runID: run, after: kept[run], through: kept[run] + n, bytes: rapid.Int64Range(1, 300).Draw(rt, "bytes")}
				p.keep(got)
				kept[run] = got.through
				if n > 0 && got.bytes <= 250 {
					for c := got.after; c < got.through; c++ {
						if p.find(run, c) != got {
							rt.Fatalf("not found behind %d", c)
						}
					}
				}
			case "find":
				c := rapid.Int64Range(0, kept[run]+1).Draw(rt, "cursor")
				if got := p.find(run, c); got != nil && (got.runID != run || got.after > c || got.through <= c) {
					rt.Fatalf("behind %d: %+v", c, got)
				}
			case "drop":
				p.drop(run)
				if p.find(run, 0) != nil {
					rt.Fatal("found after it was dropped")
				}
			}
			sum, places := int64(0), 0
			for e := p.used.Front(); e != nil; e = e.Next() {
				got, _ := e.Value.(*page)
				sum += got.bytes
			}
			for _, of := range p.runs {
				places += len(of)
			}
			if sum != p.bytes || p.bytes > 1000 || places != p.used.Len() {
				rt.Fatalf("%d bytes counted, %d kept, in %d of %d places", p.bytes, sum, places, p.used.Len())
			}
		}
	})
}
