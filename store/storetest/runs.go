package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/store"
)

var statuses = []run.Status{run.StatusAdmitting, run.StatusRejected, run.StatusQueued, run.StatusRunning, run.StatusFinished,
	run.StatusInterrupted, run.StatusCancelled, run.StatusFailed}

func runConflicts(t *testing.T, s Stores) {
	ctx := t.Context()
	r := runDoc(fresh("run"), "dev", "alice", fresh("ses"), "agt_1", run.StatusAdmitting)
	tokens, started := int64(12), when.Add(time.Second)
	r.Ord, r.IdempotencyKey, r.CancelReason, r.LastSequence = 4, "key", event.CancelClientRequest, 17
	r.Refusal = &run.Refusal{Code: "SESSION_BUSY", Message: "busy", ActiveRun: "run_9"}
	r.Terminal = []byte(`{"type":"run.finished","data":{"outcome":"success"}}`)
	r.Output = []run.Message{{ID: "msg_1", Text: "hello"}}
	r.Usage = &event.UsageUpdated{InputTokens: &tokens, Final: true}
	r.Isolation, r.StartedAt, r.EndedAt = event.IsolationNone, &started, &started
	noError(t, s.Runs.InsertRun(ctx, r))
	got, err := s.Runs.Run(ctx, r.ID)
	noError(t, err)
	if !reflect.DeepEqual(got, r) {
		t.Fatalf("got %+v, want %+v", got, r)
	}
	wantError(t, s.Runs.InsertRun(ctx, r), run.ErrExists)
	next := r
	next.Rev, next.Status = 2, run.StatusRunning
	noError(t, s.Runs.UpdateRun(ctx, next))
	for _, rev := range []int64{2, 4} {
		stale := next
		stale.Rev, stale.Status = rev, run.StatusFailed
		wantError(t, s.Runs.UpdateRun(ctx, stale), run.ErrRevision)
	}
	got, err = s.Runs.Run(ctx, r.ID)
	noError(t, err)
	if !reflect.DeepEqual(got, next) {
		t.Fatalf("got %+v, want %+v", got, next)
	}
	_, err = s.Runs.Run(ctx, fresh("run"))
	wantError(t, err, run.ErrNotFound)
	missing := next
	missing.ID = fresh("run")
	wantError(t, s.Runs.UpdateRun(ctx, missing), run.ErrNotFound)
	for _, year := range []int{1, 1500, 2400} {
		far := runDoc(fresh("run"), "dev", "alice", "ses_1", "agt_1", run.StatusQueued)
		far.CreatedAt = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		wantError(t, s.Runs.InsertRun(ctx, far), store.ErrInvalid)
	}
}

// runOneInsert is what idempotency keys stand on: of many inserts under one id one wins, and its document stays.
func runOneInsert(t *testing.T, s Stores) {
	ctx := t.Context()
	for range 20 {
		id := fresh("run")
		winner := oneWinner(t, outcomes(24, func(i int) error {
			r := runDoc(id, "dev", "alice", "ses_1", "agt_1", run.StatusAdmitting)
			r.RequestDigest = fmt.Sprint(i)
			return s.Runs.InsertRun(ctx, r)
		}), is(run.ErrExists))
		r, err := s.Runs.Run(ctx, id)
		noError(t, err)
		if r.RequestDigest != fmt.Sprint(winner) {
			t.Fatalf("%d won, but the document is of %s", winner, r.RequestDigest)
		}
		winner = oneWinner(t, outcomes(24, func(i int) error {
			next := r
			next.Rev, next.LastSequence = 2, int64(i)
			return s.Runs.UpdateRun(ctx, next)
		}), is(run.ErrRevision))
		r, err = s.Runs.Run(ctx, id)
		noError(t, err)
		if r.LastSequence != int64(winner) {
			t.Fatalf("%d won, but the document is of %d", winner, r.LastSequence)
		}
	}
}

func runListings(t *testing.T, s Stores) {
	ctx := t.Context()
	sessions, agents := []string{fresh("ses"), fresh("ses"), fresh("ses")}, []string{"agt_1", "agt_2"}
	var all []run.Run
	for i := range 160 {
		r := runDoc(fmt.Sprintf("run_%06d_%s", rand.IntN(1e6), fresh("x")), []string{"dev", "prod"}[i/80], []string{"alice", "bob"}[i%2],
			sessions[i%3], agents[i/2%2], statuses[i%len(statuses)])
		r.Epoch = int64(1 + i%2)
		r.CreatedAt = when.Add(time.Duration(rand.IntN(12)) * time.Millisecond) // many ties
		noError(t, s.Runs.InsertRun(ctx, r))
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b run.Run) int {
		return -cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	var filters []run.Filter
	for _, env := range []string{"dev", "prod"} {
		for _, subject := range []string{"alice", "bob", "eve"} {
			f := run.Filter{Environment: env, Subject: subject}
			filters = append(filters, f, with(f, sessions[0], 0, "", ""), with(f, sessions[1], 1, "", ""), with(f, "", 0, agents[1], ""),
				with(f, sessions[2], 2, agents[0], run.StatusFailed), with(f, "", 2, "", run.StatusRunning), with(f, "ses_none", 0, "", ""))
			for _, status := range statuses {
				filters = append(filters, with(f, "", 0, "", status))
			}
		}
	}
	filters = append(filters, run.Filter{}, run.Filter{Environment: "dev"}, run.Filter{Subject: "alice"})
	found := 0
	for _, f := range filters {
		want := []string{}
		for _, r := range all {
			if matches(f, r) {
				want = append(want, r.ID)
			}
		}
		found += len(want)
		for _, page := range []int{1, 4, 1000} {
			got, before := []string{}, run.Position{}
			for {
				rs, err := s.Runs.Runs(ctx, f, before, page)
				noError(t, err)
				for _, r := range rs {
					got, before = append(got, r.ID), run.Position{CreatedAt: r.CreatedAt, ID: r.ID}
				}
				if len(rs) < page {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("runs of %+v by %d: got %v, want %v", f, page, got, want)
			}
		}
	}
	if found < 300 {
		t.Fatalf("the filters found only %d runs: the test tests nothing", found)
	}
	_, err := s.Runs.Runs(ctx, filters[0], run.Position{}, 0)
	wantError(t, err, store.ErrInvalid)
}

func with(f run.Filter, sessionID string, epoch int64, agentID string, status run.Status) run.Filter {
	f.SessionID, f.Epoch, f.AgentID, f.Status = sessionID, epoch, agentID, status
	return f
}

// matches says in Go what Store.Runs promises.
func matches(f run.Filter, r run.Run) bool {
	hidden := r.Status == run.StatusAdmitting || r.Status == run.StatusRejected
	return r.Environment == f.Environment && r.Subject == f.Subject &&
		(f.SessionID == "" || r.SessionID == f.SessionID) && (f.Epoch == 0 || r.Epoch == f.Epoch) &&
		(f.AgentID == "" || r.AgentID == f.AgentID) && (f.Status == r.Status || f.Status == "" && !hidden)
}

func runSessionOrder(t *testing.T, s Stores) {
	ctx, ses := t.Context(), fresh("ses")
	ords := rand.Perm(30)
	for i, ord := range ords {
		r := runDoc(fresh("run"), "dev", "alice", ses, "agt_1", statuses[i%len(statuses)])
		r.Ord, r.Epoch = int64(ord), 2 // one of them is 0: no ord yet
		noError(t, s.Runs.InsertRun(ctx, r))
		other := runDoc(fresh("run"), "dev", "alice", ses, "agt_1", run.StatusFinished)
		other.Ord, other.Epoch = int64(ord), 1
		noError(t, s.Runs.InsertRun(ctx, other))
	}
	for _, page := range []int{1, 4, 1000} {
		for _, after := range []int64{0, 1, 28, 29, 30} {
			last := after
			for {
				rs, err := s.Runs.SessionRuns(ctx, ses, 2, last, page)
				noError(t, err)
				for _, r := range rs {
					if r.Ord != last+1 || r.Epoch != 2 || r.SessionID != ses {
						t.Fatalf("after %d comes %+v", last, r)
					}
					last = r.Ord
				}
				if len(rs) < page {
					break
				}
			}
			if want := max(after, 29); last != want {
				t.Fatalf("from %d by %d: the last is %d, want %d", after, page, last, want)
			}
		}
	}
}

// runSessionBack lists an epoch from its end.
func runSessionBack(t *testing.T, s Stores) {
	ctx, ses := t.Context(), fresh("ses")
	for _, ord := range rand.Perm(30) {
		for epoch := int64(1); epoch <= 2; epoch++ {
			r := runDoc(fresh("run"), "dev", "alice", ses, "agt_1", statuses[ord%len(statuses)])
			r.Ord, r.Epoch = int64(ord), epoch // one of them is 0: no ord yet
			if ord > 0 {
				r.Ord += 30 * (epoch - 1) // an Ord is unique in its session
			}
			noError(t, s.Runs.InsertRun(ctx, r))
		}
	}
	for _, page := range []int{1, 4, 1000} {
		for _, before := range []int64{0, 60, 45, 32, 31, 1} {
			next := before
			if before == 0 {
				next = 60
			}
			for at := before; ; at = next {
				rs, err := s.Runs.SessionRunsBefore(ctx, ses, 2, at, page)
				noError(t, err)
				for _, r := range rs {
					if r.Ord != next-1 || r.Epoch != 2 || r.SessionID != ses {
						t.Fatalf("before %d comes %+v", next, r)
					}
					next = r.Ord
				}
				if len(rs) < page {
					break
				}
			}
			if want := min(max(before, 1), 31); before == 0 && next != 31 || before != 0 && next != want {
				t.Fatalf("back from %d by %d: the last is %d", before, page, next)
			}
		}
	}
}

// runAllEpochs lists a session as if its epochs were one.
func runAllEpochs(t *testing.T, s Stores) {
	ctx, ses := t.Context(), fresh("ses")
	for _, ord := range rand.Perm(40) {
		r := runDoc(fresh("run"), "dev", "alice", ses, "agt_1", statuses[ord%len(statuses)])
		r.Ord, r.Epoch = int64(ord), int64(1+ord/13) // one of them is 0: no ord yet
		noError(t, s.Runs.InsertRun(ctx, r))
		other := runDoc(fresh("run"), "dev", "alice", fresh("ses"), "agt_1", run.StatusFinished)
		other.Ord, other.Epoch = int64(ord), 1
		noError(t, s.Runs.InsertRun(ctx, other))
	}
	for _, page := range []int{1, 7, 1000} {
		for _, after := range []int64{0, 12, 13, 38, 39} {
			last := after
			for {
				rs, err := s.Runs.SessionRuns(ctx, ses, 0, last, page)
				noError(t, err)
				for _, r := range rs {
					if r.Ord != last+1 || r.Epoch != 1+r.Ord/13 || r.SessionID != ses {
						t.Fatalf("after %d comes %+v", last, r)
					}
					last = r.Ord
				}
				if len(rs) < page {
					break
				}
			}
			if last != 39 {
				t.Fatalf("from %d by %d: the last is %d, want 39", after, page, last)
			}
		}
	}
}

func runUnfinished(t *testing.T, s Stores) {
	ctx := t.Context()
	var want []string
	var docs []run.Run
	for i := range 64 {
		r := runDoc(fresh("run"), "dev", "alice", "ses_1", "agt_1", statuses[i%len(statuses)])
		noError(t, s.Runs.InsertRun(ctx, r))
		docs = append(docs, r)
		if !r.Status.Ended() {
			want = append(want, r.ID)
		}
	}
	check := func() {
		t.Helper()
		for _, page := range []int{1, 5, 1000} {
			got := []string{}
			for after := ""; ; after = got[len(got)-1] {
				rs, err := s.Runs.UnfinishedRuns(ctx, after, page)
				noError(t, err)
				for _, r := range rs {
					got = append(got, r.ID)
				}
				if len(rs) < page {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("unfinished by %d: got %v, want %v", page, got, want)
			}
		}
	}
	check()
	want = nil
	var asked []run.CancelRequest
	for i, r := range docs { // every status moves to the next one in the list
		r.Rev, r.Status = 2, statuses[(i+1)%len(statuses)]
		if i%3 == 0 {
			r.CancelReason = event.CancelSuperseded
		}
		noError(t, s.Runs.UpdateRun(ctx, r))
		if !r.Status.Ended() {
			want = append(want, r.ID)
			if r.CancelReason != "" {
				asked = append(asked, run.CancelRequest{Run: r.ID, Reason: r.CancelReason})
			}
		}
	}
	check()
	for _, page := range []int{1, 5, 1000} {
		var got []run.CancelRequest
		for after := ""; ; after = got[len(got)-1].Run {
			found, err := s.Runs.CancelRequests(ctx, after, page)
			noError(t, err)
			if got = append(got, found...); len(found) < page {
				break
			}
		}
		if !slices.Equal(got, asked) {
			t.Fatalf("asked to end, by %d: got %v, want %v", page, got, asked)
		}
	}
	_, err := s.Runs.CancelRequests(ctx, "", 0)
	wantError(t, err, store.ErrInvalid)
}
