package run_test

import (
	"context"
	"testing"

	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// TestLeftOverWorkerIsTaken: an engine that starts looks for workers that are nobody's. One that another engine, which has come
// meanwhile, begins a turn on while the first still looks is not ended under it.
func TestLeftOverWorkerIsTaken(t *testing.T) {
	w := newWorld(t)
	e1 := w.boot(run.Limits{})
	first := w.start(e1, run.StartRequest{Text: "hello", ConversationID: "c"})
	e1.events(first.ID)
	w.settled(first.ID)
	wk := w.host.only()

	late := w.boot(run.Limits{})
	var r run.Run
	w.sessions = &lister{Store: w.store, listed: func() { // the bindings have been read: the worker is idle, and nobody's
		if r.ID == "" {
			r = w.start(late, run.StartRequest{Text: "wait", ConversationID: "c"})
			w.eventually(func() bool { return wk.has(r.ID) })
		}
	}}
	e2 := w.boot(run.Limits{})
	if err := e2.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	if len(w.host.destroyed) != 0 {
		t.Fatalf("destroyed %v", w.host.destroyed)
	}
	wk.say(r.ID, done)
	e1.leave()
	w.settled(r.ID)
}

// lister tells when busy sessions have been listed.
type lister struct {
	session.Store
	listed func()
}

func (l *lister) BusySessions(ctx context.Context, after string, limit int) ([]session.Busy, error) {
	page, err := l.Store.BusySessions(ctx, after, limit)
	l.listed()
	return page, err
}
