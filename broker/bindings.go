package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/harness-engine/harness-engine/engine/session"
)

// Sessions reads the binding documents of a store as Bindings.
type Sessions struct{ Store session.Store }

// Committed implements Bindings. A run that drains an older epoch is judged by its own epoch; a binding without a
// worker answers the highest generation given out plus one, which no capability has.
func (s Sessions) Committed(ctx context.Context, sessionID string) (epoch, sandboxGen int64, activeRun string, err error) {
	b, err := s.Store.Session(ctx, sessionID)
	if errors.Is(err, session.ErrNotFound) {
		return 0, 0, "", fmt.Errorf("%w: %w", ErrUnknownSession, err)
	}
	if err != nil {
		return 0, 0, "", fmt.Errorf("failed to read session %s: %w", sessionID, err)
	}
	epoch, sandboxGen = b.Epoch, b.SandboxGen+1
	if b.Active != nil {
		epoch, activeRun = b.Active.Epoch, b.Active.Run
	}
	if b.Sandbox != nil {
		sandboxGen = b.Sandbox.Gen
	}
	return epoch, sandboxGen, activeRun, nil
}
