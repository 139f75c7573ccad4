package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// The state folder of a conversation's epoch is shared by its workers, one after the other. Engines that share a data
// folder may each believe that they have to start the next one; the one with the higher sandbox generation is right. The
// file "owner" in the epoch's folder says which sandbox may use it, and the file "lock" is locked while a worker does:
// whoever starts one holds the lock first and reads the owner then, so that an engine that was stopped in the middle
// of a start cannot wake up and empty the folder under the worker of another.
const (
	ownerFile = "owner"
	lockFile  = "lock"

	ownTime  = 10 * time.Second // for another engine to let the owner file go; it holds it for a moment
	ownPause = 5 * time.Millisecond
)

// claimOf is the content of an owner file.
func claimOf(b harness.Binding) string { return fmt.Sprintf("%d %s\n", b.SandboxGen, address(b)) }

// parseClaim reads the content of an owner file. What cannot be read was torn by a machine that lost power, after which no
// worker lives: it says nothing.
func parseClaim(s string) (gen int64, addr string) {
	number, addr, ok := strings.Cut(strings.TrimSuffix(s, "\n"), " ")
	gen, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || gen < 1 || !addrPattern.MatchString(addr) {
		return 0, ""
	}
	return gen, addr
}

// own makes the binding's sandbox the owner of its epoch's folder, and ends the sandbox that was it. harness.ErrConflict
// when a later one is.
func (m *Manager) own(ctx context.Context, b harness.Binding, dir string) error {
	before, err := replaceOwner(ctx, b, dir)
	if err != nil {
		return fmt.Errorf("failed to own state of session %s: %w", b.SessionID, err)
	}
	if before == "" || before == address(b) {
		return nil
	}
	if _, err := os.Lstat(m.spec(before).Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return m.end(ctx, before, AnyLease, true) // of an earlier sandbox generation: it is nobody's
}

// replaceOwner writes the owner and returns the address of the one before, or an empty one.
func replaceOwner(ctx context.Context, b harness.Binding, dir string) (string, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return "", err
	}
	defer folder.Close() // which lets the lock go
	if err := lockFolder(ctx, folder); err != nil {
		return "", err
	}
	path := filepath.Join(dir, ownerFile)
	var gen int64
	var addr string
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", err
	default:
		gen, addr = parseClaim(string(raw))
	}
	if gen > b.SandboxGen {
		return "", fmt.Errorf("%w: a later worker was started", harness.ErrConflict)
	}
	temp := path + ".new"
	if err := os.WriteFile(temp, []byte(claimOf(b)), 0o600); err != nil {
		return "", err
	}
	return addr, os.Rename(temp, path)
}

// lockFolder waits, bounded, for the lock of an open folder.
func lockFolder(ctx context.Context, folder *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, ownTime)
	defer cancel()
	for {
		err := unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-time.After(ownPause):
		case <-ctx.Done():
			return fmt.Errorf("another engine holds it: %w", context.Cause(ctx))
		}
	}
}
