package integrity_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/integrity"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/store/files"
	"github.com/harness-engine/harness-engine/store/sqlite"
)

// counting counts the reads of logs.
type counting struct {
	*sqlite.Store
	reads int
}

func (c *counting) Chunks(ctx context.Context, runID string, first int64, limit int) ([]event.Chunk, error) {
	c.reads++
	return c.Store.Chunks(ctx, runID, first, limit)
}

// TestLongChainIsReadOnce verifies a conversation in which each run goes on from the one before, with a tool open all the
// way, listed from the last: no log is read again and again.
func TestLongChainIsReadOnce(t *testing.T) {
	const runs = 60
	dir := t.TempDir()
	w := open(t, dir)
	defer w.close()
	name := func(i int) string { return fmt.Sprintf("run_%03d", runs-i) } // the last is listed first
	for i := range runs {
		r := document(name(i), "ses_chain", int64(i+1), run.StatusRunning)
		before := ""
		if i > 0 {
			before = name(i - 1)
			r.Continues = &run.Continuation{Run: before, Interrupt: id.OfInterrupt(before), Revision: 1}
		}
		data := []event.Data{begin(before)}
		if i == 0 {
			data = append(data, tool)
		}
		if i < runs-1 {
			data = append(data, interrupt(r.ID), event.RunInterrupted{InterruptID: id.OfInterrupt(r.ID), Reason: "approval", Thread: local})
			r.Interrupt = &run.Interrupt{Settled: session.Resumed, ResumedBy: name(i + 1)}
		} else {
			data = append(data, result, finish)
		}
		w.project(r, w.chunk(r.ID, "ses_chain", 1, 1, 0, data...))
	}
	b := binding("ses_chain", runs+1)
	b.Decided = &session.Decided{Interrupt: id.OfInterrupt(name(runs - 2)), Revision: 1, How: session.Resumed, Run: name(runs - 1)}
	w.must(w.store.InsertSession(t.Context(), b))
	blobs, err := files.NewReader(filepath.Join(dir, "blobs"))
	w.must(err)
	source := &counting{Store: w.store}
	r, err := integrity.Verify(t.Context(), integrity.Options{Source: source, Blobs: blobs})
	if err != nil || len(r.Findings) != 0 || r.Runs != runs || r.Partial != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if source.reads > 2*runs {
		t.Errorf("%d reads of %d logs", source.reads, runs)
	}
}
