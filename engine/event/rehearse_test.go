package event_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/event/eventtest"
)

// knows is all that a writer shows of its state.
func knows(w *event.Writer) string {
	v := w.Validator()
	return fmt.Sprintf("%d %v %v %s %q %q %q %+v", w.Tail(), w.Ended(), v.Begun(), v.SideEffects(), v.OpenText(), v.OpenReasoning(), v.Interrupt(), v.Inheritance())
}

// TestRehearsalIsTheAppend: for any stream, a rehearsal says what the append then writes, changes nothing, and refuses
// what the append refuses.
func TestRehearsalIsTheAppend(t *testing.T) {
	refused := 0
	rapid.Check(t, func(rt *rapid.T) {
		log := eventtest.NewLog()
		w, err := event.OpenWriter(t.Context(), config(log, 1))
		if err != nil {
			rt.Fatal(err)
		}
		rehearse := func(events []event.Event) ([]event.Event, error) {
			before := knows(w)
			first, errFirst := w.Rehearse(events)
			again, errAgain := w.Rehearse(events)
			if after := knows(w); after != before || (errFirst == nil) != (errAgain == nil) || len(first) != len(again) {
				rt.Fatalf("a rehearsal changed\n%s to\n%s; it gave %d events, %v and %d, %v", before, after, len(first), errFirst, len(again), errAgain)
			}
			return first, errFirst
		}
		all := interruptedRun(rt, 0, event.Inheritance{})
		// In pieces, some of which begin or end with what does not belong there.
		for piece := range slices.Chunk(all, rapid.IntRange(1, 9).Draw(rt, "piece")) {
			if rapid.IntRange(0, 3).Draw(rt, "spoil") == 0 {
				spoilt := append(slices.Clone(piece), event.Event{Data: event.RunStarted{Harness: "h"}})
				var invalid, same *event.InvalidError
				_, err := rehearse(spoilt)
				if !errors.As(err, &invalid) {
					rt.Fatalf("a run that starts twice: %v", err)
				}
				if _, err := w.Append(t.Context(), event.Batch{Events: spoilt}); !errors.As(err, &same) || *same != *invalid {
					rt.Fatalf("rehearsed as %v, appended as %v", invalid, err)
				}
				refused++
			}
			want, err := rehearse(piece)
			if err != nil {
				rt.Fatal(err)
			}
			got, err := w.Append(t.Context(), event.Batch{Events: piece})
			if err != nil || len(got) != len(want) {
				rt.Fatalf("rehearsed %d events, appended %d, %v", len(want), len(got), err)
			}
			for i := range got {
				want[i].Time = got[i].Time // the clock goes on
				if !reflect.DeepEqual(got[i], want[i]) {
					rt.Fatalf("rehearsed %+v, appended %+v", want[i], got[i])
				}
			}
		}
		if !w.Ended() {
			rt.Fatal("the run did not end")
		}
		if _, err := rehearse(all[:1]); err == nil {
			rt.Fatal("rehearsed after the end")
		}
	})
	if refused < 20 {
		t.Errorf("only %d refusals: the generator no longer reaches them", refused)
	}
}

// TestRehearsalRepairs: what is closed for a terminal is shown with it, and the head can carry all of it.
func TestRehearsalRepairs(t *testing.T) {
	log := eventtest.NewLog()
	w := open(t, config(log, 1))
	appended(t, w, batch(started, opened, event.Event{Data: event.ToolStarted{ToolCallID: "t", Name: "n"}}))
	end := event.Event{Data: event.RunCancelled{Reason: event.CancelClientRequest}}
	out, err := w.Rehearse([]event.Event{end})
	if err != nil || types(out) != "text.finished tool.error run.cancelled" {
		t.Fatalf("rehearsed %s, %v", types(out), err)
	}
	// An engine that takes the run over logs what was rehearsed, as it is.
	next := open(t, config(log, 2))
	got := appended(t, next, batch(out...))
	if types(got) != types(out) || got[2].Data.(event.RunCancelled) != out[2].Data.(event.RunCancelled) || got[0].Sequence != 5 {
		t.Errorf("logged %+v", got)
	}
}
