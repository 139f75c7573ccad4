package event_test

import (
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
)

// TestHubInParallel: with real goroutines, readers that are woken while they poll, close and come back get every event once
// and in order. It is for the race detector as well.
func TestHubInParallel(t *testing.T) {
	s := newScene(t, event.HubOptions{RingEvents: 50, PageBytes: 1 << 14})
	defer s.hub.Close()
	const chunks = 300
	var readers sync.WaitGroup
	for r := range 24 {
		readers.Go(func() {
			woken := make(chan struct{}, 1)
			notify := func() {
				select {
				case woken <- struct{}{}:
				default:
				}
			}
			next := int64(1)
			sub := s.hub.Subscribe("run_1", 0)
			defer func() { sub.Close() }()
			for n := 0; ; n++ {
				d, ok, err := sub.Poll(t.Context(), 1+r*7)
				switch {
				case errors.Is(err, io.EOF):
					if next != chunks+5 { // with the start, and the closing of the message
						t.Errorf("reader %d ends before %d", r, next)
					}
					return
				case err != nil:
					t.Errorf("reader %d: %v", r, err)
					return
				case ok:
					for _, e := range d.Events {
						if e.Sequence != next {
							t.Errorf("reader %d got %d in the place of %d", r, e.Sequence, next)
							return
						}
						next++
					}
				}
				if !ok || d.Waiting {
					sub.Notify(notify)
					<-woken
				}
				if n%(5+r) == 0 { // leaves and comes back
					sub.Close()
					sub = s.hub.Subscribe("run_1", next-1)
				}
			}
		})
	}
	s.say(t, started, opened)
	for i := range chunks - 1 {
		s.hints.Store(i%7 != 0)
		s.say(t, delta("x"))
		if i%11 == 0 {
			s.hub.Wake("run_1")
		}
	}
	s.hints.Store(true)
	s.say(t, delta("x"), finished)
	readers.Wait()
}
