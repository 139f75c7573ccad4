package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/retention"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/store"
)

// endedRun stores an ended run whose log has chunks of the sizes.
func endedRun(t *testing.T, s Stores, endedAt time.Time, sizes ...int) run.Run {
	t.Helper()
	r := runDoc(fresh("run"), "dev", "alice", fresh("ses"), "agt_1", run.StatusFinished)
	for i, n := range sizes {
		c := MakeChunk(r.ID, r.LastSequence+1, n, 1, "eng_a", 0)
		c.Terminal = i == len(sizes)-1
		noError(t, s.Log.Append(t.Context(), c))
		r.LastSequence = c.Last
	}
	r.EndedAt = &endedAt
	noError(t, s.Runs.InsertRun(t.Context(), r))
	return r
}

// expireTo says in the document how far the log has expired.
func expireTo(t *testing.T, s Stores, r *run.Run, through int64) {
	t.Helper()
	r.Rev++
	r.ExpiredThrough = through
	noError(t, s.Runs.UpdateRun(t.Context(), *r))
}

// wantExpired checks that err says how far the run's log has expired.
func wantExpired(t *testing.T, err error, runID string, through int64) {
	t.Helper()
	var gone *event.ExpiredError
	if !errors.As(err, &gone) || gone.RunID != runID || gone.Through != through || gone.First != through+1 {
		t.Fatalf("got %v, want that the log of %s has expired through %d", err, runID, through)
	}
}

// logExpired reads a log that has expired in part and then whole, before and after its chunks are removed.
func logExpired(t *testing.T, s Stores) {
	ctx := t.Context()
	sizes := []int{3, 1, 4, 2} // chunks at 1, 4, 5 and 9
	starts := []int64{1, 4, 5, 9}
	r, other := endedRun(t, s, when, sizes...), endedRun(t, s, when, sizes...)
	check := func(through int64) {
		t.Helper()
		for after := int64(0); after <= 11; after++ {
			cs, err := s.Log.Read(ctx, r.ID, after, 100)
			if after < through {
				wantExpired(t, err, r.ID, through)
				continue
			}
			noError(t, err)
			next := after + 1
			for _, c := range cs {
				if c.First > next {
					t.Fatalf("expired through %d, read after %d: event %d is missing", through, after, next)
				}
				next = c.Last + 1
			}
			if want := max(int64(11), after+1); next != want {
				t.Fatalf("expired through %d, read after %d: got up to %d, want %d", through, after, next-1, want-1)
			}
		}
		for _, first := range starts {
			c, err := s.Log.Get(ctx, r.ID, first)
			if first <= through {
				wantExpired(t, err, r.ID, through)
			} else if noError(t, err); c.First != first {
				t.Fatalf("chunk %d begins at %d", first, c.First)
			}
		}
		tail, err := s.Log.Tail(ctx, r.ID)
		if through >= 10 {
			wantExpired(t, err, r.ID, through)
		} else if noError(t, err); tail.Last != 10 {
			t.Fatalf("the tail ends at %d", tail.Last)
		}
	}
	check(0)
	for _, step := range []struct {
		through int64
		removed int
	}{{3, 1}, {6, 1}, {10, 2}} { // 6 lies inside of a chunk, which stays
		expireTo(t, s, &r, step.through)
		check(step.through)
		n, err := s.Retention.Prune(ctx, r.ID, 10)
		noError(t, err)
		if n != step.removed {
			t.Fatalf("expired through %d: %d chunks removed, want %d", step.through, n, step.removed)
		}
		check(step.through)
	}
	if got := readAll(ctx, t, s.Log, other.ID, 100); len(got) != len(sizes) {
		t.Fatalf("another run has %d chunks left", len(got))
	}
	s = s.reopen(t)
	check(10)
}

// pruneBounds removes nothing that may stay, and no more at once than was asked for.
func pruneBounds(t *testing.T, s Stores) {
	ctx := t.Context()
	r := endedRun(t, s, when, 1, 1, 1, 1, 1)
	prune := func(id string, limit, want int) {
		t.Helper()
		n, err := s.Retention.Prune(ctx, id, limit)
		noError(t, err)
		if n != want {
			t.Fatalf("%d chunks removed, want %d", n, want)
		}
	}
	prune(r.ID, 10, 0)
	prune(fresh("run"), 10, 0)
	live := runDoc(fresh("run"), "dev", "alice", "ses_1", "agt_1", run.StatusRunning)
	noError(t, s.Log.Append(ctx, MakeChunk(live.ID, 1, 1, 1, "eng_a", 0)))
	noError(t, s.Runs.InsertRun(ctx, live))
	prune(live.ID, 10, 0)
	expireTo(t, s, &r, 4)
	prune(r.ID, 3, 3)
	cs, err := s.Log.Read(ctx, r.ID, 4, 10)
	noError(t, err)
	if len(cs) != 1 || cs[0].First != 5 {
		t.Fatalf("got %v", cs)
	}
	prune(r.ID, 3, 1)
	prune(r.ID, 3, 0)
	for _, limit := range []int{0, -1, store.MaxPage + 1} {
		_, err := s.Retention.Prune(ctx, r.ID, limit)
		wantError(t, err, store.ErrInvalid)
	}
	for name, change := range map[string]func(*run.Run){
		"live":           func(r *run.Run) { r.Status, r.ExpiredThrough = run.StatusRunning, 1 },
		"beyond the end": func(r *run.Run) { r.ExpiredThrough = r.LastSequence + 1 },
		"negative":       func(r *run.Run) { r.ExpiredThrough = -1 },
		"pruned":         func(r *run.Run) { r.ExpiredThrough, r.Pruned = 0, true },
	} {
		bad := r
		bad.Rev++
		change(&bad)
		if err := s.Runs.UpdateRun(ctx, bad); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// retentionListings lists what may expire and what is not removed yet.
func retentionListings(t *testing.T, s Stores) {
	ctx := t.Context()
	base := when.Add(-1000 * time.Hour) // before what other tests make
	var want []string
	for i := range 5 {
		want = append(want, endedRun(t, s, base.Add(time.Duration(i/2)*time.Hour), 2).ID) // pairs end at the same time
	}
	late := endedRun(t, s, base.Add(3*time.Hour), 1)
	gone := endedRun(t, s, base, 2)
	expireTo(t, s, &gone, 1)
	for _, status := range []run.Status{run.StatusRunning, run.StatusQueued, run.StatusRejected} {
		r := runDoc(fresh("run"), "dev", "alice", "ses_1", "agt_1", status)
		if status == run.StatusRejected {
			r.EndedAt = &base
		}
		noError(t, s.Runs.InsertRun(ctx, r))
	}
	for _, page := range []int{1, 2, 100} {
		var got []string
		for after := (retention.Place{}); ; {
			rs, err := s.Retention.EndedRuns(ctx, base.Add(2*time.Hour), after, page)
			noError(t, err)
			for _, r := range rs {
				got = append(got, r.ID)
				after = retention.Place{EndedAt: *r.EndedAt, ID: r.ID}
			}
			if len(rs) < page {
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("page %d: got %v, want %v (not %s)", page, got, want, late.ID)
		}
	}
	pruning := func() (ids []string) {
		rs, err := s.Retention.PruningRuns(ctx, "", 100)
		noError(t, err)
		for _, r := range rs {
			ids = append(ids, r.ID)
		}
		return ids
	}
	if got := pruning(); len(got) != 1 || got[0] != gone.ID {
		t.Fatalf("got %v, want %s", got, gone.ID)
	}
	gone.Rev, gone.Pruned = gone.Rev+1, true
	noError(t, s.Runs.UpdateRun(ctx, gone))
	if got := pruning(); len(got) != 0 {
		t.Fatalf("got %v", got)
	}
}

// expireWhileRead lets readers read from the beginning while the log is taken away: each gets a log without a hole, or is
// told that it has expired.
func expireWhileRead(t *testing.T, s Stores) {
	ctx := t.Context()
	r := endedRun(t, s, when, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5)
	for i, err := range outcomes(9, func(i int) error {
		if i == 0 {
			r.Rev++
			r.ExpiredThrough = r.LastSequence
			if err := s.Runs.UpdateRun(ctx, r); err != nil {
				return err
			}
			for {
				if n, err := s.Retention.Prune(ctx, r.ID, 1); n == 0 || err != nil {
					return err
				}
			}
		}
		for {
			cs, err := s.Log.Read(ctx, r.ID, 0, 100)
			var gone *event.ExpiredError
			if errors.As(err, &gone) {
				return nil
			}
			if err != nil || len(cs) != 10 || cs[0].First != 1 || cs[9].Last != 50 {
				return fmt.Errorf("read %d chunks: %w", len(cs), err)
			}
		}
	}) {
		if err != nil {
			t.Errorf("reader %d: %v", i, err)
		}
	}
}
