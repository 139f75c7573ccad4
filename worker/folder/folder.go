// Package folder packs parts of a folder into one stream, restores such a stream, and removes what is in a folder.
// Nothing here follows a link, and nothing is read or written outside the folder.
package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Codec names the form of a packed folder: a tar stream (POSIX.1-2001) in one gzip member (RFC 1952). The same content
// makes the same bytes: entries are sorted, and carry no time, owner or permission but "may be executed".
const Codec = "tar+gzip"

// Limits bound one packed folder.
type Limits struct {
	Packed  int64 // bytes of the stream
	Content int64 // bytes of all files
	Entries int   // files and folders
}

// maxName bounds the path of one entry, in bytes.
const maxName = 1 << 10

// Errors of packing and restoring.
var (
	ErrTooLarge = errors.New("folder is too large")
	// ErrKind: there is a link, a socket or a device where only files and folders may be.
	ErrKind = errors.New("not a regular file or folder")
	// ErrChanged: something wrote into the folder while it was read.
	ErrChanged = errors.New("changed while it was packed")
	// ErrDamaged: the stream is not one that Pack made.
	ErrDamaged = errors.New("packed folder is damaged")
)

// CheckPaths says whether the paths can be packed together: relative, clean, with slashes, none twice, none above
// another.
func CheckPaths(paths []string) error {
	for i, p := range paths {
		if !nameOK(p) {
			return fmt.Errorf("path %d: must be a relative path without dots, at most %d bytes", i+1, maxName)
		}
	}
	sorted := slices.Sorted(slices.Values(paths))
	for i, p := range sorted {
		for _, q := range sorted[i+1:] {
			if p == q || strings.HasPrefix(q, p+"/") {
				return fmt.Errorf("path %q: is above or the same as another", q)
			}
		}
	}
	return nil
}

func nameOK(p string) bool {
	return p != "." && fs.ValidPath(p) && len(p) <= maxName && utf8.ValidString(p) && !strings.ContainsRune(p, 0)
}

// Empty removes everything in a folder, and leaves the folder.
func Empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("failed to empty folder: %w", err)
	}
	for _, e := range entries {
		if err := Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("failed to empty folder: %w", err)
		}
	}
	return nil
}

// Remove removes a file or a folder with everything in it, also what its owner may not write to. It is no error when it
// is not there.
func Remove(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	walk := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(p, 0o700) // what this does not help shows when it is removed
		}
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return errors.Join(walk, os.RemoveAll(path))
}
