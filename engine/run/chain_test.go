package run_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
)

// readCounter counts the reads of logs.
type readCounter struct {
	event.Log
	reads atomic.Int64
}

func (l *readCounter) Read(ctx context.Context, runID string, after int64, n int) ([]event.Chunk, error) {
	l.reads.Add(1)
	return l.Log.Read(ctx, runID, after, n)
}

// goOn decides the run's interrupt, and lets the run that goes on ask again: a call of the first run stays open all the time.
func (w *world) goOn(e *engine, r run.Run, n int) run.Run {
	w.t.Helper()
	call := fmt.Sprint("t", n)
	res, err := w.decide(e, r, approve(call))
	if err != nil {
		w.t.Fatal(err)
	}
	wk := e.begun(*res.Run)
	if open := wk.runs[res.Run.ID].resume.Inherit.Tools; len(open) != 2 || open[0].ID != "first" || open[1].ID != call {
		w.t.Fatalf("run %d inherits %+v", n, open)
	}
	wk.say(res.Run.ID, event.ToolFinished{ToolCallID: call, Result: "ok"})
	wk.ask(res.Run.ID, fmt.Sprint("t", n+1))
	e.events(res.Run.ID)
	return w.settled(res.Run.ID)
}

// chained is a run that has asked, with a call open that no decision is about.
func (w *world) chained(e *engine) run.Run {
	w.t.Helper()
	r := w.start(e, run.StartRequest{Text: "wait", ConversationID: "c"})
	wk := e.begun(r)
	wk.say(r.ID, event.ToolStarted{ToolCallID: "first", Name: "wait"})
	wk.ask(r.ID, "t1")
	e.events(r.ID)
	return w.settled(r.ID)
}

// TestLongChain: what a run takes over costs the same, however many runs it goes on from; and it is the same where the
// documents do not say it, as those of before did not.
func TestLongChain(t *testing.T) {
	w := newWorld(t)
	w.host.keeps = true
	log := &readCounter{Log: w.store}
	w.log = log
	e := w.boot(run.Limits{})
	r := w.chained(e)
	var reads []int64
	const runs = 20
	for n := 1; n <= runs; n++ {
		before := log.reads.Load()
		r = w.goOn(e, r, n)
		reads = append(reads, log.reads.Load()-before)
	}
	if reads[runs-1] != reads[1] {
		t.Fatalf("reads of logs, run by run: %v", reads)
	}
	w.exec("UPDATE runs SET body = json_remove(body, '$.interrupt.open')")
	r = w.goOn(e, r, runs+1)
	if r.Interrupt.Open == nil {
		t.Fatal("the next run does not say what it left open")
	}
}

// BenchmarkContinuedRuns goes on from an interrupt again and again, 500 runs for one operation. Compare the first with the last.
func BenchmarkContinuedRuns(b *testing.B) {
	for b.Loop() {
		w := newWorld(b)
		w.host.keeps = true
		log := &readCounter{Log: w.store}
		w.log = log
		e := w.boot(run.Limits{})
		r := w.chained(e)
		for n := 1; n <= 500; n++ {
			r = w.goOn(e, r, n)
		}
		b.ReportMetric(float64(log.reads.Load()), "logreads/op")
	}
}
