package run

import (
	"context"
	"errors"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/session"
)

// Ownership reads who owns a session or a run, for the check that comes before any other read. It implements
// authz.Facts.
type Ownership struct {
	Sessions session.Store
	Runs     Store
}

// Ownership returns false for what does not exist and for runs that a client may not see.
func (o Ownership) Ownership(ctx context.Context, obj authz.Object) (authz.Ownership, bool, error) {
	switch obj.Type {
	case authz.TypeSession:
		b, err := o.Sessions.Session(ctx, obj.ID)
		if errors.Is(err, session.ErrNotFound) {
			return authz.Ownership{}, false, nil
		}
		return authz.Ownership{Environment: b.Key.Environment, Owner: b.Key.Subject, AgentID: b.Key.AgentID, SessionID: b.ID}, err == nil, err
	case authz.TypeRun:
		r, err := o.Runs.Run(ctx, obj.ID)
		if errors.Is(err, ErrNotFound) || (err == nil && (r.Status == StatusAdmitting || r.Status == StatusRejected)) {
			return authz.Ownership{}, false, nil
		}
		return authz.Ownership{Environment: r.Environment, Owner: r.Subject, AgentID: r.AgentID, SessionID: r.SessionID}, err == nil, err
	}
	return authz.Ownership{}, false, nil
}
