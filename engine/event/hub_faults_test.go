package event_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/event/eventtest"
)

// TestHubLostHints: with no hint at all, the poll brings everything, no later than it says.
func TestHubLostHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{Poll: 2 * time.Second})
		defer s.hub.Close()
		s.say(t, started, opened)
		r := follow(t.Context(), s.hub.Subscribe("run_1", 0), 100)
		synctest.Wait()
		s.hints.Store(false)
		s.say(t, delta("unheard"))
		synctest.Wait()
		consecutive(t, r.seen(), 1, 2)
		time.Sleep(2*time.Second + time.Millisecond)
		synctest.Wait()
		consecutive(t, r.seen(), 1, 3)
		s.say(t, finished)
		began := time.Now()
		<-r.done
		consecutive(t, r.seen(), 1, 5)
		if late := time.Since(began); late > 2*time.Second {
			t.Errorf("the terminal came after %v", late)
		}
	})
}

// TestHubWake: a hint without a chunk, as another replica gives it, reads at once.
func TestHubWake(t *testing.T) {
	for name, wake := range map[string]func(h *event.Hub){
		"one": func(h *event.Hub) { h.Wake("run_1"); h.Wake("run_1"); h.Wake("run_unwatched") },
		"all": func(h *event.Hub) { h.WakeAll() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, event.HubOptions{Poll: time.Hour})
				defer s.hub.Close()
				s.say(t, started, opened)
				r := follow(t.Context(), s.hub.Subscribe("run_1", 0), 100)
				synctest.Wait()
				s.hints.Store(false)
				s.say(t, delta("x"))
				wake(s.hub)
				synctest.Wait()
				consecutive(t, r.seen(), 1, 3)
				s.say(t, finished)
				wake(s.hub)
				<-r.done
				consecutive(t, r.seen(), 1, 5)
			})
		})
	}
}

// TestHubHintsOutOfOrder: late, doubled, missing and reordered hints neither lose nor double anything.
func TestHubHintsOutOfOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			log := eventtest.NewLog()
			hub := event.NewHub(event.HubOptions{
				Log: log, RingEvents: rapid.SampledFrom([]int{1, 3, 1000}).Draw(rt, "ring"),
				RingBytes: rapid.SampledFrom([]int64{1, 300, 1 << 20}).Draw(rt, "bytes"),
			})
			defer hub.Close()
			var hints []event.Chunk
			cfg := config(log, 1)
			cfg.Publish = func(c event.Chunk) { hints = append(hints, c) }
			w, err := event.OpenWriter(t.Context(), cfg)
			if err != nil {
				rt.Fatal(err)
			}
			var readers []*reader
			from := map[*reader]int64{}
			appends := rapid.SliceOfN(rapid.IntRange(1, 4), 1, 8).Draw(rt, "appends")
			for i, n := range appends {
				if rapid.Bool().Draw(rt, "join?") {
					after := rapid.Int64Range(0, w.Tail()).Draw(rt, "after")
					r := follow(t.Context(), hub.Subscribe("run_1", after), rapid.IntRange(1, 5).Draw(rt, "max"))
					readers, from[r] = append(readers, r), after+1
				}
				events := []event.Event{started, opened}
				if i > 0 {
					events = nil
					for range n {
						events = append(events, delta("x"))
					}
				}
				if i == len(appends)-1 {
					events = append(events, finished)
				}
				if _, err := w.Append(t.Context(), batch(events...)); err != nil {
					rt.Fatal(err)
				}
				for _, c := range rapid.Permutation(hints).Draw(rt, "order") {
					if rapid.Bool().Draw(rt, "hint?") {
						hub.Publish(c)
					}
				}
				if rapid.Bool().Draw(rt, "settle?") {
					synctest.Wait()
				}
			}
			for _, r := range readers {
				<-r.done
				if r.err != io.EOF {
					rt.Fatalf("reader ends with %v", r.err)
				}
				seqs := r.seen()
				for i, s := range seqs {
					if s != from[r]+int64(i) {
						rt.Fatalf("read %v from %d", seqs, from[r])
					}
				}
				if len(seqs) > 0 && seqs[len(seqs)-1] != w.Tail() || len(seqs) == 0 && from[r] <= w.Tail() {
					rt.Fatalf("read %v of %d", seqs, w.Tail())
				}
			}
		})
	})
}

func TestHubGap(t *testing.T) {
	for name, tc := range map[string]struct {
		heals bool
		want  error
	}{"heals": {true, nil}, "lasts": {false, event.ErrIntegrity}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, event.HubOptions{})
				defer s.hub.Close()
				s.say(t, started, opened)
				s.say(t, delta("x"))
				s.say(t, delta("y"))
				missing := s.log.Remove("run_1", 3)
				sub := s.hub.Subscribe("run_1", 0)
				d, err := sub.Next(t.Context(), 10)
				if err != nil || d.Through != 2 || d.CaughtUp {
					t.Fatalf("before the gap: %+v, %v", d, err)
				}
				if tc.heals {
					go func() {
						time.Sleep(100 * time.Millisecond)
						write(t, s.log, missing)
					}()
				}
				d, err = sub.Next(t.Context(), 10)
				if !errors.Is(err, tc.want) {
					t.Fatalf("%+v, %v", d, err)
				}
				if tc.heals && (d.Events[0].Sequence != 3 || d.Through != 4) {
					t.Errorf("after the gap: %+v", d)
				}
			})
		})
	}
}

func TestHubDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{})
		defer s.hub.Close()
		s.say(t, started, opened)
		s.log.Change("run_1", 1, func(c *event.Chunk) { c.Body[40] ^= 1 })
		if _, err := s.hub.Subscribe("run_1", 0).Next(t.Context(), 10); !errors.Is(err, event.ErrIntegrity) || !errors.Is(err, event.ErrChunkHash) {
			t.Errorf("error %v", err)
		}
	})
}

func TestHubReadErrorsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{})
		defer s.hub.Close()
		s.say(t, started, opened)
		s.say(t, delta("x"))
		sub := s.hub.Subscribe("run_1", 0)
		s.log.FailReads(errRead, nil, errRead) // of the tail, then of the events
		for range 2 {
			if _, err := sub.Next(t.Context(), 10); !errors.Is(err, errRead) {
				t.Errorf("error %v", err)
			}
		}
		if d, err := sub.Next(t.Context(), 10); err != nil || d.Through != 2 {
			t.Errorf("%+v, %v", d, err)
		}
	})
}
