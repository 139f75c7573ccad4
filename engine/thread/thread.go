// Package thread keeps the native state of conversations: opaque bytes, immutable, named by their hash. Which of them
// is the head is the binding's to say.
package thread

import (
	"context"
	"fmt"
	"io"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/session"
)

// Threads stores packed states.
type Threads struct{ Blobs blob.Store }

// space keeps the states of one epoch of one conversation apart, so that removing one cannot take the equal bytes of
// another, nor what a cleared conversation has just begun.
func space(sessionID string, epoch int64) blob.Space {
	return blob.Space(fmt.Sprintf("%s.%s-%d", blob.Threads, sessionID, epoch))
}

// SpaceOf is where the states of one epoch of a conversation are.
func SpaceOf(sessionID string, epoch int64) blob.Space { return space(sessionID, epoch) }

// Save makes the state of a run's end durable and returns the head that it can become. It closes the state's body.
func (t Threads) Save(ctx context.Context, sessionID string, epoch int64, runID string, before session.Head, s harness.State) (session.Head, error) {
	defer func() { _ = s.Body.Close() }()
	ref, err := t.Blobs.Put(ctx, space(sessionID, epoch), s.Body, harness.MaxStateBytes, s.Hash)
	if err != nil {
		return session.Head{}, fmt.Errorf("failed to store the state of run %s: %w", runID, err)
	}
	return session.Head{Rev: before.Rev + 1, Ref: ref.Hash, Hash: ref.Hash, Codec: s.Codec, Size: ref.Size, ByRun: runID}, nil
}

// Snapshot gives a head to a worker that starts; nil where there is none.
func (t Threads) Snapshot(sessionID string, epoch int64, h session.Head) *harness.Snapshot {
	if h.Rev == 0 {
		return nil
	}
	return &harness.Snapshot{
		Head: harness.Head{Rev: h.Rev, Hash: h.Hash}, Codec: h.Codec, Size: h.Size,
		Open: func(ctx context.Context) (io.ReadCloser, error) {
			body, _, err := t.Blobs.Open(ctx, space(sessionID, epoch), h.Ref)
			if err != nil {
				return nil, fmt.Errorf("failed to read revision %d of thread %s: %w", h.Rev, sessionID, err)
			}
			return body, nil
		},
	}
}

// sweepPage bounds one listing; a conversation has a handful of states at most.
const sweepPage = 100

// Keep removes every stored state of the epoch but the head's. With no head it removes all. While the epoch goes on,
// only the holder of its run's lease may call it: another run's state could be stored and not be the head yet.
func (t Threads) Keep(ctx context.Context, sessionID string, epoch int64, h session.Head) error {
	for after := ""; ; {
		hashes, err := t.Blobs.List(ctx, space(sessionID, epoch), after, sweepPage)
		if err != nil {
			return fmt.Errorf("failed to list states of thread %s: %w", sessionID, err)
		}
		for _, hash := range hashes {
			after = hash
			if hash == h.Ref {
				continue
			}
			if err := t.Blobs.Delete(ctx, space(sessionID, epoch), hash); err != nil {
				return fmt.Errorf("failed to remove a state of thread %s: %w", sessionID, err)
			}
		}
		if len(hashes) < sweepPage {
			return nil
		}
	}
}
