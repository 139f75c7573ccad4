package event_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
)

// TestExpiredRunOfHub expires the log of a run that is watched: what is in memory is not shown for longer than a poll, and
// who has everything is at the end.
func TestExpiredRunOfHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, event.HubOptions{Poll: time.Second})
		defer s.hub.Close()
		s.say(t, started, opened, delta("hello"))
		sub := s.hub.Subscribe("run_1", 0)
		if _, err := sub.Next(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		s.say(t, finished)
		rest, err := sub.Next(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		s.log.Expire("run_1", rest.Through)
		time.Sleep(1100 * time.Millisecond) // of the bubble's clock
		synctest.Wait()
		_, err = s.hub.Subscribe("run_1", 0).Next(t.Context(), 100)
		var gone *event.ExpiredError
		if !errors.As(err, &gone) || gone.Through != rest.Through {
			t.Fatalf("from the beginning: %v", err)
		}
		if _, err = s.hub.Subscribe("run_1", rest.Through).Next(t.Context(), 100); !errors.Is(err, io.EOF) {
			t.Fatalf("from the end: %v", err)
		}
		time.Sleep(time.Minute) // the run is not watched any more
		synctest.Wait()
		if _, err = s.hub.Subscribe("run_1", 1).Next(t.Context(), 100); !errors.As(err, &gone) {
			t.Fatalf("of a run that is not watched: %v", err)
		}
		if _, err = s.hub.Subscribe("run_1", rest.Through).Next(t.Context(), 100); !errors.Is(err, io.EOF) {
			t.Fatalf("from the end of a run that is not watched: %v", err)
		}
	})
}
