package broker

import (
	"context"
	"errors"
	"testing"

	"github.com/harness-engine/harness-engine/engine/session"
)

// bindingStore is a session store that only reads one document.
type bindingStore struct {
	session.Store
	binding session.Binding
	err     error
}

func (s bindingStore) Session(context.Context, string) (session.Binding, error) {
	return s.binding, s.err
}

func TestCommittedOfABinding(t *testing.T) {
	for name, c := range map[string]struct {
		binding    session.Binding
		epoch, gen int64
		run        string
	}{
		"idle, warm":     {session.Binding{Epoch: 2, SandboxGen: 3, Sandbox: &session.Sandbox{Gen: 3}}, 2, 3, ""},
		"active":         {session.Binding{Epoch: 2, SandboxGen: 3, Sandbox: &session.Sandbox{Gen: 3}, Active: &session.Active{Run: "run_x", Epoch: 2}}, 2, 3, "run_x"},
		"draining":       {session.Binding{Epoch: 3, SandboxGen: 3, Sandbox: &session.Sandbox{Gen: 3}, Draining: "run_x", Active: &session.Active{Run: "run_x", Epoch: 2}}, 2, 3, "run_x"},
		"without worker": {session.Binding{Epoch: 2, SandboxGen: 3}, 2, 4, ""},
	} {
		epoch, gen, run, err := Sessions{bindingStore{binding: c.binding}}.Committed(t.Context(), "ses_x")
		if err != nil || epoch != c.epoch || gen != c.gen || run != c.run {
			t.Errorf("%s: got epoch %d, generation %d, run %q, %v", name, epoch, gen, run, err)
		}
	}
	if _, _, _, err := (Sessions{bindingStore{err: session.ErrNotFound}}).Committed(t.Context(), "ses_x"); !errors.Is(err, ErrUnknownSession) {
		t.Errorf("missing session: %v", err)
	}
	down := errors.New("down")
	if _, _, _, err := (Sessions{bindingStore{err: down}}).Committed(t.Context(), "ses_x"); !errors.Is(err, down) || errors.Is(err, ErrUnknownSession) {
		t.Errorf("store down: %v", err)
	}
}
