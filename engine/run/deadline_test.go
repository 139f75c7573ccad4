package run

import (
	"context"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/session"
)

// pendingSessions is a store whose one conversation waits for a person, while it does.
type pendingSessions struct {
	session.Store
	b session.Binding
}

func (s *pendingSessions) BusySessions(context.Context, string, int) ([]session.Busy, error) {
	if s.b.Pending == nil {
		return nil, nil
	}
	return []session.Busy{{ID: s.b.ID, Interrupt: s.b.Pending.Interrupt}}, nil
}

func (s *pendingSessions) Session(context.Context, string) (session.Binding, error) { return s.b, nil }

type noRuns struct{ Store }

func (noRuns) UnfinishedRuns(context.Context, string, int) ([]Run, error) { return nil, nil }

// TestDeadlineOfSettledInterrupt: an engine keeps no timer of what another engine has settled.
func TestDeadlineOfSettledInterrupt(t *testing.T) {
	at := time.Now().Add(time.Hour)
	s := &pendingSessions{b: session.Binding{ID: "ses_1", Pending: &session.Pending{Interrupt: "int_1", Revision: 1, Deadline: &at}}}
	c := New(Options{Sessions: s, Runs: noRuns{}, Boot: "eng_1"})
	t.Cleanup(func() {
		if err := c.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		if err := c.Sweep(t.Context()); err != nil || !c.expires("ses_1", "int_1") {
			t.Fatalf("deadlines %v, %v", c.deadlines, err)
		}
	}
	s.b.Pending = nil
	if err := c.Sweep(t.Context()); err != nil || len(c.deadlines) != 0 {
		t.Fatalf("deadlines %v, %v", c.deadlines, err)
	}
}
