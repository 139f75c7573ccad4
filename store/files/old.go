package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/engine/blob"
)

// EachPart calls f with each space that is a part of the whole, for instance threads.ses_1-1 of threads.
func (s *Store) EachPart(ctx context.Context, whole blob.Space, f func(part blob.Space) error) error {
	if _, err := s.place(whole); err != nil {
		return fmt.Errorf("failed to list spaces: %w", err)
	}
	base := filepath.Join(s.root, string(whole)+".sub")
	groups, err := os.ReadDir(base)
	if missing(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("failed to list spaces of %s: %w", whole, err)
	}
	for _, group := range groups {
		parts, err := os.ReadDir(filepath.Join(base, group.Name()))
		if err != nil && !missing(err) {
			return fmt.Errorf("failed to list spaces of %s: %w", whole, err)
		}
		for _, part := range parts {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			space := whole + "." + blob.Space(part.Name())
			if !spacePattern.MatchString(string(space)) {
				continue
			}
			if err := f(space); err != nil {
				return err
			}
		}
	}
	return nil
}

// DeleteOld removes a blob that was last stored before a time, and reports whether it did. While others store, or blobs are
// held, it removes none: it excludes them, and storing content again gives it a new time.
func (s *Store) DeleteOld(_ context.Context, space blob.Space, hash string, before time.Time) (bool, error) {
	path, err := s.path(space, hash)
	if err != nil {
		return false, fmt.Errorf("failed to delete blob: %w", err)
	}
	if st, err := os.Stat(path); err != nil || !st.ModTime().Before(before) { // a look without a lock
		if missing(err) {
			err = nil
		}
		return false, err
	}
	removed, err := s.deleteOld(path, before)
	if err != nil {
		return false, fmt.Errorf("failed to delete blob %s: %w", hash, err)
	}
	if p, _ := s.place(space); p.flat && removed {
		s.removeEmpty(p.base)
	}
	return removed, nil
}

func (s *Store) deleteOld(path string, before time.Time) (bool, error) {
	leave, ok, err := s.removing()
	if err != nil || !ok {
		return false, err
	}
	defer leave()
	s.places.Lock()
	defer s.places.Unlock()
	done, err := s.removeFolders()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer done()
	st, err := os.Stat(path)
	if err != nil || !st.ModTime().Before(before) {
		if missing(err) {
			err = nil
		}
		return false, err
	}
	return true, os.Remove(path)
}
