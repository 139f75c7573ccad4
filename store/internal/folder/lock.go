package folder

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrHeld: another process holds the lock.
var ErrHeld = errors.New("folder: locked by another process")

// Lock takes a lock on the file of that name in the folder, or fails with ErrHeld and the holder's process id. The lock
// belongs to the open file (flock), so the kernel drops it when the process ends, however it ends. The file itself
// stays. Closing it gives the lock free.
func Lock(folder, name string) (*os.File, error) {
	path := filepath.Join(folder, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, FileMode)
	if err != nil {
		return nil, fmt.Errorf("failed to open lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("failed to lock %s: %w", path, err)
		}
		return nil, fmt.Errorf("%w: %s is locked%s", ErrHeld, path, holder(f))
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
