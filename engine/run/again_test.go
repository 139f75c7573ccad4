package run_test

import (
	"context"
	"sync"
	"testing"

	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
)

// steppedSessions lets two admissions of one run pass one after the other.
type steppedSessions struct {
	session.Store
	mu      sync.Mutex
	calls   int
	arrived chan struct{}    // closed when both are there
	pass    [2]chan struct{} // closed when the first, the second may go on
}

func (s *steppedSessions) InsertSession(ctx context.Context, b session.Binding) error {
	s.mu.Lock()
	n := s.calls
	s.calls++
	if s.calls == len(s.pass) {
		close(s.arrived)
	}
	s.mu.Unlock()
	if n < len(s.pass) {
		<-s.pass[n]
	}
	return s.Store.InsertSession(ctx, b)
}

// TestAdmittedAgainWhileSettling: two callers of one key find the run unadmitted; one is so slow that it admits the run
// when that has been driven to its end, and the engine has not let go of it yet. The conversation must not stay busy.
func TestAdmittedAgainWhileSettling(t *testing.T) {
	w := newWorld(t)
	s := &steppedSessions{Store: w.store, arrived: make(chan struct{}), pass: [2]chan struct{}{make(chan struct{}), make(chan struct{})}}
	w.sessions = s
	ended, release := make(chan struct{}), make(chan struct{})
	w.host.ended = sync.OnceFunc(func() { close(ended); <-release })
	e := w.boot(run.Limits{})

	var callers sync.WaitGroup
	ids := make([]string, 2)
	for i := range ids {
		callers.Go(func() {
			r, err := e.Start(w.ctx, w.request(run.StartRequest{Text: "hello", ConversationID: "c", IdempotencyKey: "k"}))
			if err != nil {
				t.Errorf("start: %v", err)
			}
			ids[i] = r.ID
		})
	}
	<-s.arrived
	close(s.pass[0])
	<-ended // the first admission's run is over and settled, and its execution still there
	close(s.pass[1])
	callers.Wait()
	close(release)
	if ids[0] != ids[1] {
		t.Fatalf("one key made the runs %v", ids)
	}
	w.settled(ids[0])
	if n := w.host.begun(ids[0]); n != 1 {
		t.Fatalf("the turn was started %d times", n)
	}
	e.events(w.start(e, run.StartRequest{Text: "hello", ConversationID: "c"}).ID)
}
