package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/store"
)

func sessionConflicts(t *testing.T, s Stores) {
	ctx := t.Context()
	b := binding(fresh("ses"), "dev", "alice", "agt_1")
	b.Active = &session.Active{Run: "run_1", Ord: 1, Gen: 2, Owner: "eng_a"}
	b.Sandbox = &session.Sandbox{Gen: 1, Addr: "unix:w.sock"}
	b.Head = session.Head{Rev: 2, Ref: "r", Hash: "h", Codec: "tar+gzip", Size: 1 << 40, ByRun: "run_0", Terminal: []byte(`{"type":"run.finished"}`)}
	b.Queue = []session.Queued{{Run: "run_2", Pin: session.Pin{AgentVersion: 3, Harness: "scripted"}}, {Run: "run_3"}}
	deadline := when.Add(time.Hour)
	b.Pending = &session.Pending{Interrupt: "int_1", Run: "run_1", Revision: 1, Deadline: &deadline, Request: []byte(`{"kind":"form_input"}`)}
	b.Decided = &session.Decided{Interrupt: "int_0", Revision: 1, How: session.Resumed, Digest: "d", Run: "run_1"}
	noError(t, s.Sessions.InsertSession(ctx, b))
	got, err := s.Sessions.Session(ctx, b.ID)
	noError(t, err)
	if !reflect.DeepEqual(got, b) {
		t.Fatalf("got %+v, want %+v", got, b)
	}
	wantError(t, s.Sessions.InsertSession(ctx, b), session.ErrExists)

	next := b
	next.Rev, next.Epoch, next.Active, next.Queue, next.Pending, next.Draining = 2, 2, nil, nil, nil, "run_1"
	noError(t, s.Sessions.UpdateSession(ctx, next))
	for _, rev := range []int64{2, 4, 1 << 40} {
		stale := next
		stale.Rev, stale.LastOp = rev, "op_stale"
		wantError(t, s.Sessions.UpdateSession(ctx, stale), session.ErrRevision)
	}
	got, err = s.Sessions.Session(ctx, b.ID)
	noError(t, err)
	if !reflect.DeepEqual(got, next) {
		t.Fatalf("got %+v, want %+v", got, next)
	}

	_, err = s.Sessions.Session(ctx, fresh("ses"))
	wantError(t, err, session.ErrNotFound)
	missing := binding(fresh("ses"), "dev", "alice", "agt_1")
	missing.Rev = 2
	wantError(t, s.Sessions.UpdateSession(ctx, missing), session.ErrNotFound)
	missing.Rev = 1
	wantError(t, s.Sessions.UpdateSession(ctx, missing), store.ErrInvalid)
	missing.Rev = 2
	wantError(t, s.Sessions.InsertSession(ctx, missing), store.ErrInvalid)
}

func sessionOneWinner(t *testing.T, s Stores) {
	ctx := t.Context()
	for range 15 {
		id := fresh("ses")
		inserts := outcomes(16, func(i int) error {
			b := binding(id, "dev", "alice", "agt_1")
			b.LastOp = fmt.Sprintf("op_%d", i)
			return s.Sessions.InsertSession(ctx, b)
		})
		winner := oneWinner(t, inserts, is(session.ErrExists))
		b, err := s.Sessions.Session(ctx, id)
		noError(t, err)
		if b.LastOp != fmt.Sprintf("op_%d", winner) {
			t.Fatalf("%d won, but the document is of %s", winner, b.LastOp)
		}
		updates := outcomes(16, func(i int) error {
			next := b
			next.Rev, next.LastOp, next.Draining = 2, fmt.Sprintf("op_%d", i), fmt.Sprintf("run_%d", i)
			return s.Sessions.UpdateSession(ctx, next)
		})
		winner = oneWinner(t, updates, is(session.ErrRevision))
		got, err := s.Sessions.Session(ctx, id)
		noError(t, err)
		if got.LastOp != fmt.Sprintf("op_%d", winner) || got.Draining != fmt.Sprintf("run_%d", winner) || got.Rev != 2 {
			t.Fatalf("%d won, but the document is %+v", winner, got)
		}
	}
}

// sessionNoLostUpdate counts with conditional updates: every success is one step, and none is lost.
func sessionNoLostUpdate(t *testing.T, s Stores) {
	const writers, steps = 16, 10
	ctx, id := t.Context(), fresh("ses")
	noError(t, s.Sessions.InsertSession(ctx, binding(id, "dev", "alice", "agt_1")))
	for _, err := range outcomes(writers, func(i int) error {
		for done := 0; done < steps; {
			b, err := s.Sessions.Session(ctx, id)
			if err != nil {
				return err
			}
			b.Rev, b.NextOrd, b.LastOp = b.Rev+1, b.NextOrd+1, fmt.Sprintf("op_%d_%d", i, done)
			switch err := s.Sessions.UpdateSession(ctx, b); {
			case err == nil:
				done++
			case !errors.Is(err, session.ErrRevision):
				return err
			}
		}
		return nil
	}) {
		noError(t, err)
	}
	b, err := s.Sessions.Session(ctx, id)
	noError(t, err)
	if b.NextOrd != 1+writers*steps || b.Rev != 1+writers*steps {
		t.Errorf("after %d updates the count is %d at revision %d", writers*steps, b.NextOrd-1, b.Rev)
	}
}

func sessionListings(t *testing.T, s Stores) {
	ctx := t.Context()
	want := map[string][]string{} // environment, subject and agent -> ids in the order of making
	var busy []string
	for i := range 60 {
		env, subject, agentID := []string{"dev", "prod"}[i%2], []string{"alice", "bob", "alic"}[i%3], fmt.Sprintf("agt_%d", i%4)
		b := binding(fresh("ses"), env, subject, agentID)
		switch i % 5 {
		case 0:
			b.Active = &session.Active{Run: "run_1", Gen: 1}
			busy = append(busy, b.ID)
		case 1:
			b.Draining = "run_1"
			busy = append(busy, b.ID)
		case 2:
			b.Pending = &session.Pending{Interrupt: "int_1", Run: "run_1", Revision: 1, Request: []byte(`{}`)}
			busy = append(busy, b.ID)
		}
		noError(t, s.Sessions.InsertSession(ctx, b))
		for _, key := range []string{env + "/" + subject + "/", env + "/" + subject + "/" + agentID} {
			want[key] = append(want[key], b.ID)
		}
	}
	for _, env := range []string{"dev", "prod", ""} {
		for _, subject := range []string{"alice", "bob", "alic", "nobody"} {
			for _, agentID := range []string{"", "agt_0", "agt_1", "agt_2", "agt_3", "agt_9"} {
				ids := slices.Clone(want[env+"/"+subject+"/"+agentID])
				slices.Reverse(ids) // newest first
				for _, page := range []int{1, 3, 1000} {
					got := []string{}
					for before := ""; ; before = got[len(got)-1] {
						bs, err := s.Sessions.SessionsOf(ctx, env, subject, agentID, before, page)
						noError(t, err)
						for _, b := range bs {
							got = append(got, b.ID)
						}
						if len(bs) < page {
							break
						}
					}
					if !slices.Equal(got, ids) {
						t.Fatalf("sessions of %s/%s/%s by %d: got %v, want %v", env, subject, agentID, page, got, ids)
					}
				}
			}
		}
	}
	pinned := binding(fresh("ses"), "pins", "alice", "agt_p")
	for i := range 5 {
		pinned.ID, pinned.AgentVersion = fresh("ses"), int64(i%3) // two are not pinned
		noError(t, s.Sessions.InsertSession(ctx, pinned))
	}
	for limit, want := range map[int]int{1: 1, 2: 2, 1000: 3} {
		if n, err := s.Sessions.PinnedSessions(ctx, "pins", "agt_p", limit); err != nil || n != want {
			t.Fatalf("pinned sessions up to %d: got %d, %v, want %d", limit, n, err, want)
		}
	}
	if n, err := s.Sessions.PinnedSessions(ctx, "dev", "agt_p", 10); err != nil || n != 0 {
		t.Fatalf("pinned sessions of another environment: %d, %v", n, err)
	}
	pages := func(page int) (got []string) {
		for after := ""; ; after = got[len(got)-1] {
			found, err := s.Sessions.BusySessions(ctx, after, page)
			noError(t, err)
			for _, y := range found {
				b, err := s.Sessions.Session(ctx, y.ID)
				noError(t, err)
				if want, busy := b.Busy(); !busy || y != want {
					t.Fatalf("%s is listed as %+v, want %+v", y.ID, y, want)
				}
				got = append(got, y.ID)
			}
			if len(found) < page {
				return got
			}
		}
	}
	for _, page := range []int{1, 7, 1000} {
		if got := pages(page); !slices.Equal(got, busy) {
			t.Fatalf("busy sessions by %d: got %v, want %v", page, got, busy)
		}
	}
	b, err := s.Sessions.Session(ctx, busy[0]) // an update leaves the listing, another enters it
	noError(t, err)
	b.Rev, b.Active, b.Draining = 2, nil, ""
	noError(t, s.Sessions.UpdateSession(ctx, b))
	if got := pages(1000); !slices.Equal(got, busy[1:]) {
		t.Fatalf("busy sessions after one became free: got %v, want %v", got, busy[1:])
	}
	for i, change := range []func(){
		func() { b.Draining = "run_9" },
		func() { b.Draining, b.Active = "", &session.Active{Run: "run_9", Gen: 1, Owner: "eng_1"} },
		func() { b.Queue = []session.Queued{{Run: "run_10", Urgent: true}, {Run: "run_11"}} },
		func() {
			b.Active, b.Queue, b.Pending = nil, []session.Queued{{Run: "run_11"}}, &session.Pending{Interrupt: "int_9", Run: "run_9", Request: []byte(`{}`)}
		},
	} {
		change()
		b.Rev++
		noError(t, s.Sessions.UpdateSession(ctx, b))
		if got := pages(1000); !slices.Equal(got, busy) {
			t.Fatalf("busy sessions after one became busy in way %d: got %v, want %v", i, got, busy)
		}
	}
	b.Rev, b.Pending, b.Queue = b.Rev+1, nil, nil
	noError(t, s.Sessions.UpdateSession(ctx, b))
	if got := pages(1000); !slices.Equal(got, busy[1:]) {
		t.Fatalf("busy sessions after its interrupt was settled: got %v, want %v", got, busy[1:])
	}
	for i, version := range []int64{0, 5} { // as by a clear, and by the next admission
		pinned.Rev, pinned.AgentVersion = int64(i)+2, version
		noError(t, s.Sessions.UpdateSession(ctx, pinned))
		if n, err := s.Sessions.PinnedSessions(ctx, "pins", "agt_p", 10); err != nil || n != 2+i {
			t.Fatalf("pinned sessions at revision %d: got %d, %v, want %d", pinned.Rev, n, err, 2+i)
		}
	}
	for _, limit := range []int{0, -1, store.MaxPage + 1} {
		_, err := s.Sessions.SessionsOf(ctx, "dev", "alice", "", "", limit)
		wantError(t, err, store.ErrInvalid)
		_, err = s.Sessions.BusySessions(ctx, "", limit)
		wantError(t, err, store.ErrInvalid)
	}
}
