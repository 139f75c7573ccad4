package run_test

import (
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
)

// TestIdleWorkerOfAnotherEngine: an engine that drove a conversation's turn keeps its hands off the worker that another engine
// has used since. A person's decision may wait in it.
func TestIdleWorkerOfAnotherEngine(t *testing.T) {
	for name, ends := range map[string]func(w *world, e1, e2 *engine){
		"its timer runs out": func(w *world, e1, _ *engine) { // the later conversation's worker is retired after it
			r := w.start(e1, run.StartRequest{Text: "hello", ConversationID: "later"})
			e1.events(r.ID)
			w.eventually(func() bool {
				return w.settled(r.ID).Status == run.StatusFinished && w.binding(r.SessionID).Sandbox == nil
			})
		},
		"it ends as the last": func(w *world, e1, e2 *engine) {
			e2.leave()
			w.peers.gone(e2)
			e1.leave()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.peers = newPeers()
			e1, e2 := w.boot(run.Limits{IdleWorker: 200 * time.Millisecond}), w.boot(run.Limits{})
			first := w.start(e1, run.StartRequest{Text: "hello", ConversationID: "c"})
			last[event.RunFinished](t, e1.events(first.ID))
			w.settled(first.ID)
			r := w.interrupted(e2, "t1")
			addr := w.binding(r.SessionID).Sandbox.Addr
			ends(w, e1, e2)
			if b := w.binding(r.SessionID); b.Sandbox == nil || b.Sandbox.Addr != addr || b.Pending == nil {
				t.Fatalf("the worker that a decision waits in was retired: %+v, pending %+v", b.Sandbox, b.Pending)
			}
		})
	}
}
