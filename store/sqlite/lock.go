package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// lockName is the file in the data folder whose lock says that an engine has it open. The lock belongs to the open
// file (flock), so the kernel drops it when the process ends, however it ends. The file itself stays.
const lockName = "engine.lock"

// lockFolder takes the folder's lock, or fails with ErrLocked and the holder's process id.
func lockFolder(folder string) (*os.File, error) {
	path := filepath.Join(folder, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("failed to open lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("failed to lock %s: %w", path, err)
		}
		return nil, fmt.Errorf("%w: %s is locked%s", ErrLocked, path, holder(f))
	}
	// The process id is a help for people only; a failure to write it changes nothing.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

// holder says which process wrote its id into the lock file.
func holder(f *os.File) string {
	buf := make([]byte, 32)
	n, _ := f.ReadAt(buf, 0)
	if pid, err := strconv.Atoi(string(bytes.TrimSpace(buf[:n]))); err == nil {
		return fmt.Sprintf(" by process %d", pid)
	}
	return ""
}
