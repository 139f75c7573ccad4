package enginetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Release lets what is held in a conversation's workspace go on: CountHeld, CallHeld. It waits for the workspace to be there.
// The empty id is every conversation that has one, and there has to be one.
func (e *Engine) Release(ctx context.Context, sessionID string) error {
	pattern := filepath.Join(e.opts.Data, "sandboxes", "state", sessionID+"*", "*", "workspace")
	for {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("failed to look for a workspace: %w", err)
		}
		for _, workspace := range found {
			if err := os.WriteFile(filepath.Join(workspace, gate), nil, 0o600); err != nil {
				return fmt.Errorf("failed to release a conversation: %w", err)
			}
		}
		if len(found) > 0 {
			return nil
		}
		select {
		case <-time.After(readyPause):
		case <-ctx.Done():
			return fmt.Errorf("conversation %q has no workspace: %w", sessionID, context.Cause(ctx))
		}
	}
}
