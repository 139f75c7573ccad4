package event_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/event/eventtest"
)

// interrupted is a log whose first read waits for its context, and then says in words of its own that it was cut off, as
// a database does.
type interrupted struct {
	*eventtest.Log
	begun chan struct{}
}

func (l *interrupted) Read(ctx context.Context, runID string, after int64, most int) ([]event.Chunk, error) {
	select {
	case l.begun <- struct{}{}:
		<-ctx.Done()
		return nil, errors.New("interrupted (9)")
	default:
		return l.Log.Read(ctx, runID, after, most)
	}
}

// TestALeaverTakesNobodyAlong: a reader that leaves in the middle of a read which others share fails none of them.
func TestALeaverTakesNobodyAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &interrupted{Log: eventtest.NewLog(), begun: make(chan struct{}, 1)}
		w := open(t, config(log, 1))
		appended(t, w, batch(started, opened))
		appended(t, w, batch(delta("a")))
		hub := event.NewHub(event.HubOptions{Log: log, Poll: time.Hour})
		defer hub.Close()
		leaving, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, _, err := hub.Subscribe("run_1", 0).Poll(leaving, 10)
			left <- err
		}()
		synctest.Wait() // it reads
		stays := hub.Subscribe("run_1", 0)
		var got event.Delivery
		done := make(chan error, 1)
		go func() {
			var err error
			got, _, err = stays.Poll(t.Context(), 10)
			done <- err
		}()
		synctest.Wait() // it shares the read
		leave()
		if err := <-left; err == nil {
			t.Error("the read was not cut off")
		}
		if err := <-done; err != nil || len(got.Events) == 0 || got.Events[0].Sequence != 1 {
			t.Errorf("who stays got %+v, %v", got, err)
		}
		stays.Close()
	})
}
