// Package folder does what every store on a local disk needs of its folder: make it, sync it, lock it against a second
// engine, and know the room on its disk.
package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Modes that keep others out.
const (
	Mode     fs.FileMode = 0o700
	FileMode fs.FileMode = 0o600
)

// Make makes the folder and those above it where they are missing, and makes its name durable.
func Make(path string) error {
	_, err := os.Stat(path)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("failed to look for folder: %w", err)
	}
	if err := os.MkdirAll(path, Mode); err != nil {
		return fmt.Errorf("failed to make folder: %w", err)
	}
	return Sync(filepath.Dir(path))
}

// Sync makes new, changed and removed names in the folder durable.
func Sync(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("failed to sync folder: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("failed to sync folder %s: %w", path, err)
	}
	return nil
}

// Free is the number of bytes that an ordinary user may still write to the folder's disk.
func Free(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("failed to read free disk space: %w", err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // the types differ between systems
}
