package event_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/event/eventtest"
)

// TestNothingLostNothingDoubled lets engines with rising generations take a run over from each other, at any moment,
// over a log that fails in every way it may: what was acknowledged is in the log once, what was published is what the
// log holds, nothing else is there twice, and after a fence nothing of an older generation is.
func TestNothingLostNothingDoubled(t *testing.T) {
	var acks, pending, fenced, fences int
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			log := eventtest.NewLog()
			life, end := context.WithCancel(t.Context())
			defer end()
			var writers []*event.Writer
			acknowledged, left := map[string]int64{}, map[string]bool{}
			showed := map[int64][32]byte{}
			var mu sync.Mutex // several writers may publish at once
			publish := func(c event.Chunk) {
				mu.Lock()
				defer mu.Unlock()
				if h, ok := showed[c.First]; ok && h != c.SHA256 {
					rt.Errorf("two chunks were published at %d", c.First)
				}
				showed[c.First] = c.SHA256
			}
			gen := int64(0)
			n := 0
			for range rapid.IntRange(5, 40).Draw(rt, "steps") {
				switch rapid.SampledFrom([]string{"open", "append", "append", "append", "append", "fault", "fault", "land"}).Draw(rt, "step") {
				case "open":
					gen++
					cfg := config(log, gen)
					cfg.Publish = publish
					w, err := event.OpenWriter(life, cfg)
					if err != nil {
						if errors.Is(err, event.ErrCorrupt) || errors.Is(err, event.ErrFenced) {
							rt.Fatalf("generation %d: %v", gen, err)
						}
						continue // the log failed; nobody holds this generation
					}
					writers = append(writers, w)
				case "append":
					if len(writers) == 0 {
						continue
					}
					i := len(writers) - 1
					if rapid.Bool().Draw(rt, "stale?") {
						i = rapid.IntRange(0, i).Draw(rt, "writer")
					}
					n++
					name := fmt.Sprint("m", n)
					b := batch(event.Event{Data: event.TextStarted{MessageID: name, Role: "assistant"}}, event.Event{Data: event.TextFinished{MessageID: name}})
					if !writers[i].Validator().Begun() {
						b.Events = append([]event.Event{started}, b.Events...)
					}
					patience := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Hour}).Draw(rt, "patience")
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					out, err := writers[i].Append(ctx, b)
					cancel()
					switch {
					case err == nil:
						acks++
						acknowledged[name] = out[len(out)-1].Sequence
					case errors.Is(err, event.ErrPending):
						pending++
						left[name] = true
					case errors.Is(err, event.ErrFenced):
						fenced++
					case errors.Is(err, event.ErrCorrupt):
						rt.Fatalf("append: %v", err)
					}
				case "fault":
					log.Inject(rapid.SampledFrom([]eventtest.Fault{
						eventtest.Unknown(true), eventtest.Unknown(false), eventtest.Late(), eventtest.DiskFull(),
						eventtest.Failed(errors.New("busy")), {Delay: time.Second, Written: true},
						{Err: event.ErrUnknownOutcome, Written: true, Hidden: 2},
					}).Draw(rt, "fault"))
				case "land":
					log.Land()
				}
				synctest.Wait()
			}
			log.Land()
			time.Sleep(time.Hour) // whoever still repeats an append comes to an end
			synctest.Wait()
			end()
			synctest.Wait()

			seen := map[string]int64{}
			highest := int64(0)
			for _, c := range log.Chunks("run_1") {
				if c.Gen < highest {
					rt.Fatalf("chunk %d of generation %d after %d", c.First, c.Gen, highest)
				}
				if c.Gen > highest && highest > 0 {
					fences++
				}
				highest = c.Gen
				if h, ok := showed[c.First]; ok && h != c.SHA256 {
					rt.Fatalf("what was published at %d is not in the log", c.First)
				}
				delete(showed, c.First)
			}
			for first := range showed {
				rt.Fatalf("chunk %d was published and is not in the log", first)
			}
			for _, e := range history(t, log) {
				d, ok := e.Data.(event.TextFinished)
				if !ok {
					continue
				}
				if seen[d.MessageID] != 0 {
					rt.Fatalf("%s is in the log twice", d.MessageID)
				}
				seen[d.MessageID] = e.Sequence
			}
			for name, at := range acknowledged {
				if seen[name] != at {
					rt.Fatalf("%s was acknowledged at %d and is at %d", name, at, seen[name])
				}
			}
			for name := range seen {
				if acknowledged[name] == 0 && !left[name] {
					rt.Fatalf("%s failed and is in the log", name)
				}
			}
		})
	})
	t.Logf("%d appends acknowledged, %d left pending, %d fenced, %d takeovers", acks, pending, fenced, fences)
	if !t.Failed() && (acks == 0 || pending == 0 || fenced == 0 || fences == 0) {
		t.Error("the generator no longer reaches every outcome")
	}
}
