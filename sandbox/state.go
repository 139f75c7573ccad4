package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker/folder"
)

// sessionPattern keeps a session id a plain folder name.
var sessionPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// epochDir is the folder of a conversation's epoch: what its harness keeps, and the agent's files.
func (m *Manager) epochDir(sessionID string, epoch int64) (string, error) {
	if !sessionPattern.MatchString(sessionID) || epoch < 1 {
		return "", fmt.Errorf("failed to name state folder: %.32q, epoch %d", sessionID, epoch)
	}
	return filepath.Join(m.stateDir, sessionID, strconv.FormatInt(epoch, 10)), nil
}

// folders makes the folders of a binding's epoch, which its workers share one after the other.
func (m *Manager) folders(b harness.Binding) (state, workspace string, err error) {
	dir, err := m.epochDir(b.SessionID, b.Epoch)
	if err != nil {
		return "", "", err
	}
	state, workspace = filepath.Join(dir, "state"), filepath.Join(dir, "workspace")
	for _, d := range []string{state, workspace} {
		if err := makeFolder(d); err != nil {
			return "", "", fmt.Errorf("failed to make state folder of session %s: %w", b.SessionID, err)
		}
	}
	return state, workspace, nil
}

// makeTries bounds how often a folder is made again below one that was just removed.
const makeTries = 100

// makeFolder makes a folder and what is above it. Whoever forgets the epoch before may remove the session's folder, when that is
// empty, between the making of the one and of the other.
func makeFolder(path string) (err error) {
	for range makeTries {
		if err = os.MkdirAll(path, 0o700); !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return err
}

// ForgetState removes what the epochs of a conversation up to this one left: their harnesses' state and their workspaces.
// An earlier epoch may still be there when the engine ended while it forgot that. The worker must be destroyed before. It
// is idempotent.
func (m *Manager) ForgetState(_ context.Context, sessionID string, epoch int64) error {
	dir, err := m.epochDir(sessionID, epoch)
	if err != nil {
		return err
	}
	session := filepath.Dir(dir)
	entries, err := os.ReadDir(session)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("failed to forget state of session %s: %w", sessionID, err)
	}
	var failed []error
	for _, e := range entries {
		if n, err := strconv.ParseInt(e.Name(), 10, 64); err != nil || n > epoch {
			continue
		}
		if err := folder.Remove(filepath.Join(session, e.Name())); err != nil {
			failed = append(failed, fmt.Errorf("failed to forget state of session %s, epoch %s: %w", sessionID, e.Name(), err))
		}
	}
	_ = os.Remove(session) // only when it was the last epoch
	return errors.Join(failed...)
}
