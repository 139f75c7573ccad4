package run_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// exec changes the database behind the store's back, as a disk that fails does.
func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(w.ctx, query, args...); err != nil {
		w.t.Fatal(err)
	}
}

// chunks is everything that the database holds of the run's log.
func (w *world) chunks(runID string) string {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(w.ctx, "SELECT first, last, gen, writer, hex(sha256), hex(body) FROM chunks WHERE run = ? ORDER BY first", runID)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	var out strings.Builder
	for rows.Next() {
		var first, last, gen int64
		var writer, sum, body string
		if err := rows.Scan(&first, &last, &gen, &writer, &sum, &body); err != nil {
			w.t.Fatal(err)
		}
		fmt.Fprintln(&out, first, last, gen, writer, sum, body)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return out.String()
}

// damages are ways in which a log is found damaged; the run has a chunk at each of 1 to 4.
var damages = map[string]string{
	"last chunk":    "UPDATE chunks SET body = CAST(replace(CAST(body AS TEXT), 'three', 'thrEE') AS BLOB) WHERE run = ?1 AND first = 4",
	"chunk between": "UPDATE chunks SET body = CAST(replace(CAST(body AS TEXT), 'one', 'oNE') AS BLOB) WHERE run = ?1 AND first = 3",
	"missing chunk": "DELETE FROM chunks WHERE run = ?1 AND first = 3",
	"cursors":       "UPDATE chunks SET cursors = '{' WHERE run = ?1 AND first = 3",
	"last cursors":  "UPDATE chunks SET cursors = '{' WHERE run = ?1 AND first = 4",
}

// halted is a run whose engine has left, whose log was damaged then, and which the next engine has halted.
func halted(t *testing.T, w *world, damage string) (*engine, run.Run) {
	t.Helper()
	e1 := w.boot(run.Limits{})
	r := w.start(e1, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e1.begun(r)
	for i, d := range []event.Data{event.TextStarted{MessageID: "m", Role: "assistant"}, event.TextDelta{MessageID: "m", Delta: "one"}, event.TextDelta{MessageID: "m", Delta: "three"}} {
		wk.say(r.ID, d)
		w.eventually(func() bool {
			tail, err := w.store.Tail(w.ctx, r.ID)
			return err == nil && tail.Last == int64(i+2)
		})
	}
	e1.leave()
	w.exec(damage, r.ID)
	e2 := w.boot(run.Limits{})
	if err := e2.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.eventually(func() bool {
		got, err := w.store.Run(w.ctx, r.ID)
		r = got
		return err == nil && r.Halted != nil && w.host.only() == nil
	})
	if r.Status != run.StatusRunning || r.Halted.Why == "" {
		t.Fatalf("halted as %s: %+v", r.Status, r.Halted)
	}
	return e2, r
}

// TestHaltedRunIsGivenUp: a run whose log is damaged keeps its conversation, through every later engine, until somebody asks
// for its end. Then the conversation goes on, and not a byte of the log has changed.
func TestHaltedRunIsGivenUp(t *testing.T) {
	ways := map[string]func(e *engine, r run.Run){
		"cancel": func(e *engine, r run.Run) {
			if r, err := e.Cancel(e.ctx, r.ID); err != nil || r.Status != run.StatusFailed {
				e.t.Fatalf("cancelled as %s, %v", r.Status, err)
			}
		},
		"clear": func(e *engine, r run.Run) {
			if b, err := e.Clear(e.ctx, r.SessionID); err != nil || b.Epoch != 2 || b.Active != nil || b.Draining != "" {
				e.t.Fatalf("cleared to %+v, %v", b, err)
			}
		},
		"a run that takes its place": func(e *engine, _ run.Run) {
			last[event.RunFinished](e.t, e.events(e.start(e, run.StartRequest{Text: "hello", ConversationID: "c", Policy: run.BusyInterrupt}).ID))
		},
		"a cancel by an engine that died then": func(e *engine, r run.Run) {
			r.Rev, r.CancelReason = r.Rev+1, event.CancelClientRequest
			if err := e.store.UpdateRun(e.ctx, r); err != nil {
				e.t.Fatal(err)
			}
			if err := e.Sweep(e.ctx); err != nil {
				e.t.Fatal(err)
			}
		},
		"a clear by an engine that died then": func(e *engine, r run.Run) {
			if _, err := session.Mutate(e.ctx, e.store, r.SessionID, time.Now, func(b session.Binding, op session.Op) (session.Binding, error) {
				n, _ := session.Clear(b, op)
				return n, nil
			}); err != nil {
				e.t.Fatal(err)
			}
			if err := e.Sweep(e.ctx); err != nil {
				e.t.Fatal(err)
			}
		},
		"an engine that died half-way": func(e *engine, r run.Run) {
			r.Rev++
			if changed, err := run.GiveUp(&r, 4, time.Now().UTC()); err != nil || !changed {
				e.t.Fatal(changed, err)
			}
			if err := e.store.UpdateRun(e.ctx, r); err != nil {
				e.t.Fatal(err)
			}
			if err := e.Sweep(e.ctx); err != nil {
				e.t.Fatal(err)
			}
		},
	}
	for how, goOn := range ways {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t)
			e, r := halted(t, w, damages["chunk between"])
			goOn(e, r)
			givenUp(t, w, e, r)
		})
	}
	for name, damage := range damages {
		t.Run("damaged "+name, func(t *testing.T) {
			w := newWorld(t)
			e, r := halted(t, w, damage)
			before := w.chunks(r.ID)
			for range 2 { // no engine tries again
				e.leave()
				e = w.boot(run.Limits{})
				if err := e.Recover(w.ctx); err != nil {
					t.Fatal(err)
				}
				if err := e.Sweep(w.ctx); err != nil {
					t.Fatal(err)
				}
			}
			_, err := e.Start(w.ctx, w.request(run.StartRequest{Text: "hello", ConversationID: "c"}))
			if p := wantCode(t, err, problem.SessionBusy); p.Extra["activeRunId"] != r.ID {
				t.Fatalf("busy with %v", p.Extra)
			}
			ways["cancel"](e, r)
			givenUp(t, w, e, r)
			if after := w.chunks(r.ID); after != before {
				t.Fatalf("the log was changed from\n%s to\n%s", before, after)
			}
		})
	}
}

// givenUp looks at what is left of a run that was given up, and that its conversation goes on.
func givenUp(t *testing.T, w *world, e *engine, r run.Run) {
	t.Helper()
	r = w.settled(r.ID)
	terminal, err := event.Decode(r.Terminal)
	if err != nil || r.Status != run.StatusFailed || r.EndedAt == nil || r.Halted == nil {
		t.Fatalf("given up as %+v, %v", r, err)
	}
	if d, ok := terminal.Data.(event.RunError); !ok || d.Code != "log_damaged" || d.SideEffects != event.SideEffectsPossible {
		t.Fatalf("given up as %+v", terminal.Data)
	}
	next := w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"})
	last[event.RunFinished](t, e.events(next.ID))
	w.settled(next.ID)

	// Who follows the run gets what can be read, and an end; who follows the conversation gets the run that follows.
	sub := e.hub.Subscribe(r.ID, 0)
	var read int64
	for err = nil; err == nil; {
		var d event.Delivery
		if d, err = sub.Next(w.ctx, 100); err == nil {
			read = d.Through
		}
	}
	if read < 2 { // the damage is at event 3 or behind it
		t.Fatalf("a reader of the run gets %d events, and %v", read, err)
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, event.ErrIntegrity) && !errors.Is(err, event.ErrCorrupt) {
		t.Fatalf("a reader of the run ends with %v", err)
	}
	changes := session.NewChanges(session.ChangesOptions{Sessions: w.store})
	defer changes.Close()
	feed := run.NewSessionFeed(run.SessionFeedOptions{Runs: w.store, Sessions: w.store, Hub: e.hub, Changes: changes})
	for _, after := range []run.SessionCursor{{}, {Ord: r.Ord, Sequence: r.LastSequence}} {
		reader := feed.Subscribe(r.SessionID, after)
		for found := false; !found; {
			d, err := reader.Next(w.ctx, 100)
			if err != nil {
				t.Fatalf("a reader of the conversation after %+v ends with %v", after, err)
			}
			found = d.RunID == next.ID
		}
	}
}

// TestReaderOfGivenUpRun: a reader that has everything and waits learns of the end, though no event says it.
func TestReaderOfGivenUpRun(t *testing.T) {
	w := newWorld(t)
	e, r := halted(t, w, damages["chunk between"])
	tail, err := w.store.Tail(w.ctx, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	sub := e.hub.Subscribe(r.ID, tail.Last)
	ended := make(chan error, 1)
	go func() {
		_, err := sub.Next(w.ctx, 100)
		ended <- err
	}()
	w.eventually(func() bool { return e.hub.Watched() == 1 })
	if _, err := e.Cancel(w.ctx, r.ID); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Fatalf("the reader ends with %v", err)
	}
}

// TestDecisionOnDamagedRun: a run that was interrupted, and whose log was damaged while it waited, cannot be gone on from. The
// run that would have done so says that, and the conversation is free.
func TestDecisionOnDamagedRun(t *testing.T) {
	w := newWorld(t)
	e := w.boot(run.Limits{})
	r := w.interrupted(e, "t1")
	w.exec("UPDATE runs SET body = json_remove(body, '$.interrupt.open') WHERE id = ?1", r.ID) // as documents of before are
	w.exec("UPDATE chunks SET body = CAST(replace(CAST(body AS TEXT), 'delete', 'dElEtE') AS BLOB) WHERE run = ?1", r.ID)
	res, err := w.decide(e, r, approve("t1"))
	if err != nil {
		t.Fatal(err)
	}
	if end := last[event.RunError](t, e.events(res.Run.ID)); end.Code != "interrupt_lost" || end.SideEffects != event.SideEffectsNone {
		t.Fatalf("ended as %+v", end)
	}
	w.settled(res.Run.ID)
	last[event.RunFinished](t, e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID))
}
