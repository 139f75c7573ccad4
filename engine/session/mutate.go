package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/harness-engine/harness-engine/engine/id"
)

// Transition is a pure change of a binding, see transition.go.
type Transition func(b Binding, op Op) (Binding, error)

// Retries of one mutation. Contention on one conversation is a handful of writers; a store that cannot say what
// became of a write is asked again with growing pauses until the context ends.
const (
	mutateAttempts = 64
	unknownPause   = 20 * time.Millisecond
	unknownPauseTo = time.Second
)

// Mutate applies the transition to the stored binding by conditional update, again on a lost race, and returns the
// binding that it made. The transition's error is returned as it is, with the binding that it saw; so is ErrNotFound.
// An unknown outcome is resolved by re-reading and looking for the operation's id, until ctx ends.
func Mutate(ctx context.Context, store Store, sessionID string, now func() time.Time, t Transition) (Binding, error) {
	op := Op{ID: id.New("op"), Now: now()}
	for range mutateAttempts {
		b, err := store.Session(ctx, sessionID)
		if err != nil {
			return b, fmt.Errorf("failed to read session %s: %w", sessionID, err)
		}
		next, err := t(b, op)
		if err != nil {
			return b, err
		}
		switch err := store.UpdateSession(ctx, next); {
		case err == nil:
			return next, nil
		case errors.Is(err, ErrRevision):
			continue
		case errors.Is(err, ErrUnknownOutcome):
			mine, err := resolve(ctx, store, next)
			if err != nil {
				return b, err
			}
			if mine {
				return next, nil
			}
		default:
			return b, fmt.Errorf("failed to update session %s: %w", sessionID, err)
		}
	}
	return Binding{}, fmt.Errorf("failed to update session %s: %w after %d attempts", sessionID, ErrRevision, mutateAttempts)
}

// resolve finds out whether the write of next happened. A newer revision by another writer hides ours only when ours
// came first and was read by that writer, and each transition is idempotent under its lease, so "not mine" is retried.
func resolve(ctx context.Context, store Store, next Binding) (bool, error) {
	pause := unknownPause
	for {
		b, err := store.Session(ctx, next.ID)
		if err == nil {
			return b.Rev == next.Rev && b.LastOp == next.LastOp, nil
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("failed to learn what became of session %s: %w", next.ID, context.Cause(ctx))
		case <-time.After(pause):
			pause = min(2*pause, unknownPauseTo)
		}
	}
}
