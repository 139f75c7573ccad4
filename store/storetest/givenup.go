package storetest

import (
	"errors"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
)

// logGivenUp: the tail of a halted run is its last chunk until the run has ended without its log; what there is stays
// readable.
func logGivenUp(t *testing.T, s Stores) {
	ctx := t.Context()
	r := runDoc(fresh("run"), "dev", "alice", fresh("ses"), "agt_1", run.StatusRunning)
	for _, n := range []int{1, 3} {
		c := MakeChunk(r.ID, r.LastSequence+1, n, 1, "eng_a", 0)
		noError(t, s.Log.Append(ctx, c))
		r.LastSequence = c.Last
	}
	noError(t, s.Runs.InsertRun(ctx, r))
	r.Rev, r.Halted = 2, &run.Halt{At: when, Why: "damaged"}
	noError(t, s.Runs.UpdateRun(ctx, r))
	if tail, err := s.Log.Tail(ctx, r.ID); err != nil || tail.Last != 4 {
		t.Fatalf("the tail of a halted run is at %d, %v", tail.Last, err)
	}
	r.Rev++
	if changed, err := run.GiveUp(&r, 4, when); err != nil || !changed {
		t.Fatal(changed, err)
	}
	noError(t, s.Runs.UpdateRun(ctx, r))
	_, err := s.Log.Tail(ctx, r.ID)
	var ended *event.GivenUpError
	if !errors.As(err, &ended) || ended.RunID != r.ID || ended.Through != 4 {
		t.Fatalf("the tail of a run that was given up: %v", err)
	}
	cs, err := s.Log.Read(ctx, r.ID, 0, 100)
	if err != nil || len(cs) != 2 {
		t.Fatalf("%d chunks of a run that was given up, %v", len(cs), err)
	}
	got, err := s.Runs.Run(ctx, r.ID)
	noError(t, err)
	if got.Halted == nil || !got.Status.Ended() || len(got.Terminal) == 0 {
		t.Fatalf("a run that was given up: %+v", got)
	}
}
