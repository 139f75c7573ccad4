package replicas

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/harness-engine/harness-engine/engine/replica"
)

// End kills an engine, or a tool, that has joined and that the caller has seen stand still, where it is the process. It is for one
// that is stopped in the middle of a commit: as long as it lives no other can commit, and when it dies it has committed or
// it has not. It reports whether it killed.
func (m *Member) End(ctx context.Context, pid int, still func(replica.Sighting) bool) (bool, error) {
	if pid <= 0 || pid == os.Getpid() {
		return false, nil
	}
	p, err := os.FindProcess(pid) // a handle of the process, not of the number: it may be given to another
	if err != nil {
		return false, fmt.Errorf("failed to find engine %d: %w", pid, err)
	}
	defer func() { _ = p.Release() }()
	found, err := look(ctx, m.o.Folder) // behind the finding: who is listed now has lived since
	if err != nil {
		return false, err
	}
	for _, f := range found {
		if f.info.PID == pid && still(replica.Sighting{ID: f.info.ID, Beat: f.beat, Tool: f.info.Tool}) {
			if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return false, fmt.Errorf("failed to end engine %d: %w", pid, err)
			}
			return true, nil
		}
	}
	return false, nil
}
