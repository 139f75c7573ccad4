package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
)

// telling is a log that tells of each append before it.
type telling struct {
	event.Log
	tries chan struct{} // of capacity 1
}

func (l telling) Append(ctx context.Context, c event.Chunk) error {
	select {
	case l.tries <- struct{}{}:
	default:
	}
	return l.Log.Append(ctx, c)
}

// fenceRealWriters lets four owners take one run over from each other with the engine's own writer: what the owners published,
// in the order of their generations, is exactly what the log holds. Who is to be taken over from writes beside the next owner's
// tries, and not faster: that one might never be first.
func fenceRealWriters(t *testing.T, s Stores) {
	const owners, before = 4, 15
	ctx := t.Context()
	for range 4 {
		id := fresh("run")
		var mu sync.Mutex
		published := make([][]event.Chunk, owners+1)
		turn := make([]chan struct{}, owners+2) // closed when the owner before has appended enough
		for i := range turn {
			turn[i] = make(chan struct{})
		}
		close(turn[1])
		tries, left := make([]chan struct{}, owners+1), make([]chan struct{}, owners+1)
		for i := range tries {
			tries[i], left[i] = make(chan struct{}, 1), make(chan struct{})
		}
		own := func(gen int) error {
			defer close(left[gen])
			<-turn[gen]
			var once sync.Once
			defer once.Do(func() { close(turn[gen+1]) })
			w, err := event.OpenWriter(ctx, event.WriterConfig{
				Log: telling{s.Log, tries[gen]}, RunID: id, SessionID: "ses_1", Gen: int64(gen), Nonce: fmt.Sprintf("eng_%d", gen),
				Publish: func(c event.Chunk) {
					mu.Lock()
					defer mu.Unlock()
					published[gen] = append(published[gen], c)
				},
			})
			if err != nil {
				return err
			}
			if gen == 1 {
				if err := appendEvents(ctx, w, event.RunStarted{Harness: "scripted", AdapterVersion: "1"}, event.TextStarted{MessageID: "msg_1", Role: "assistant"}); err != nil {
					return err
				}
			}
			for i := 0; gen < owners || i < before; i++ {
				if i > before {
					select {
					case <-tries[gen+1]:
					case <-left[gen+1]:
					}
				}
				if err := appendEvents(ctx, w, event.TextDelta{MessageID: "msg_1", Delta: fmt.Sprint(gen, ".", i, " ")}); err != nil {
					return err
				}
				if i == before {
					once.Do(func() { close(turn[gen+1]) })
				}
			}
			return appendEvents(ctx, w, event.TextFinished{MessageID: "msg_1"},
				event.RunFinished{Outcome: "success", StopReason: "end_turn", Thread: event.ThreadState{Durability: event.DurabilityLocal}})
		}
		for i, err := range outcomes(owners, func(i int) error { return own(i + 1) }) {
			switch {
			case i+1 < owners && !errors.Is(err, event.ErrFenced):
				t.Fatalf("owner %d ended with %v, want to be fenced", i+1, err)
			case i+1 == owners:
				noError(t, err)
			}
		}
		var want []event.Chunk
		for _, chunks := range published {
			want = append(want, chunks...)
		}
		got := readAll(ctx, t, s.Log, id, 64)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("the log holds %d chunks, published were %d, or they differ", len(got), len(want))
		}
		for _, c := range got {
			noError(t, c.Verify())
		}
	}
}

func appendEvents(ctx context.Context, w *event.Writer, data ...event.Data) error {
	events := make([]event.Event, len(data))
	for i, d := range data {
		events[i] = event.Event{Data: d}
	}
	_, err := w.Append(ctx, event.Batch{Events: events})
	return err
}
