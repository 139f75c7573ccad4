package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/id"
)

// documents lets an authz.Reconciler settle agents.
type documents struct {
	store          Store
	now            func() time.Time
	abandonedAfter time.Duration
	self           string
}

// Unsettled implements authz.Documents.
func (d *documents) Unsettled(ctx context.Context, after string, limit int) ([]authz.Document, error) {
	agents, err := d.store.UnsettledAgents(ctx, after, limit)
	if err != nil {
		return nil, fmt.Errorf("failed to list unsettled agents: %w", err)
	}
	out := make([]authz.Document, len(agents))
	for i, a := range agents {
		out[i] = document(a)
	}
	return out, nil
}

// Document implements authz.Documents. A creation that has no version yet belongs to whoever is creating it and is not
// shown; one that has stayed so is given up first.
func (d *documents) Document(ctx context.Context, object authz.Object) (authz.Document, bool, error) {
	a, err := d.store.Agent(ctx, object.ID)
	if errors.Is(err, ErrNotFound) {
		return authz.Document{}, false, nil
	}
	if err != nil {
		return authz.Document{}, false, fmt.Errorf("failed to read agent %s: %w", object.ID, err)
	}
	if a.State != StateCreating {
		return document(a), true, nil
	}
	switch _, err := d.store.Version(ctx, a.ID, a.Version); {
	case err == nil:
		return document(a), true, nil
	case !errors.Is(err, ErrNotFound):
		return authz.Document{}, false, fmt.Errorf("failed to read version %d of agent %s: %w", a.Version, a.ID, err)
	}
	if d.now().Sub(a.CreatedAt) < d.abandonedAfter {
		return authz.Document{}, false, nil
	}
	given := deleting(a, d.now(), d.self)
	if err := d.store.UpdateAgent(ctx, given); err != nil {
		return authz.Document{}, false, fmt.Errorf("failed to give up agent %s: %w", a.ID, err)
	}
	return document(given), true, nil
}

// MarkWriting implements authz.Documents.
func (d *documents) MarkWriting(ctx context.Context, doc authz.Document, name string) (authz.Document, error) {
	a, err := d.update(ctx, doc, func(a *Agent) { a.Authz = a.Authz.Writing(name) })
	return document(a), err
}

// MarkApplied implements authz.Documents.
func (d *documents) MarkApplied(ctx context.Context, doc authz.Document, wrote []string) error {
	_, err := d.update(ctx, doc, func(a *Agent) {
		a.Authz = a.Authz.Applied(doc.Outbox.DesiredRev).Wrote(wrote...)
		switch a.State {
		case StateCreating:
			a.State = StateActive
		case StateDeleting:
			a.State = StateDeleted
		}
	})
	return err
}

// update changes the agent of the document, where that is as it was read.
func (d *documents) update(ctx context.Context, doc authz.Document, change func(*Agent)) (Agent, error) {
	a, err := d.store.Agent(ctx, doc.Object.ID)
	if err != nil {
		return a, fmt.Errorf("failed to read agent %s: %w", doc.Object.ID, err)
	}
	if a.Rev != doc.Rev {
		return a, fmt.Errorf("agent %s: %w", a.ID, authz.ErrChanged)
	}
	change(&a)
	a.Rev++
	a.LastOp, a.UpdatedAt = id.New("op"), d.now()
	err = d.store.UpdateAgent(ctx, a)
	if errors.Is(err, ErrRevision) || errors.Is(err, ErrUnknownOutcome) {
		return a, fmt.Errorf("agent %s: %w", a.ID, authz.ErrChanged) // read it again, and see
	}
	if err != nil {
		return a, fmt.Errorf("failed to update agent %s: %w", a.ID, err)
	}
	return a, nil
}

func document(a Agent) authz.Document {
	return authz.Document{
		Object: authz.Agent(a.ID), Outbox: a.Authz, Rev: a.Rev,
		Waits: a.State == StateCreating || a.State == StateDeleting,
	}
}

// deleting is the agent on its way to DELETED: no tuples are wanted any more. Self is about to remove them.
func deleting(a Agent, now time.Time, self string) Agent {
	a.Rev++
	a.State = StateDeleting
	a.Authz = a.Authz.Desire(nil).Writing(self)
	a.LastOp, a.UpdatedAt = id.New("op"), now
	return a
}
