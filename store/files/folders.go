package files

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/store/internal/folder"
)

// Several processes share the folders that hold blobs. Who makes or uses one shares a lock with the others; who removes
// one excludes them, and counts the removal in the locked file, so that the others forget which folders they had made
// durable.

// A removal takes a moment.
const (
	foldersPause   = time.Millisecond
	foldersTimeout = 5 * time.Second
)

// useFolders keeps other processes from removing folders until leave is called.
func (s *Store) useFolders() (leave func(), err error) {
	var f *os.File
	for until := time.Now().Add(foldersTimeout); ; time.Sleep(foldersPause) {
		if f, err = s.lockRound(unix.LOCK_SH | unix.LOCK_NB); err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(until) { // its remover is stopped
			return nil, err
		}
	}
	round, err := readRound(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if round != s.round {
		clear(s.known)
		s.round = round
	}
	return func() { _ = f.Close() }, nil
}

// removeFolders keeps other processes from using folders until leave is called. It fails while one does.
func (s *Store) removeFolders() (leave func(), err error) {
	f, err := s.lockRound(unix.LOCK_EX | unix.LOCK_NB)
	if err != nil {
		return nil, err
	}
	round, err := readRound(f)
	if err == nil {
		_, err = f.WriteAt(binary.BigEndian.AppendUint64(nil, uint64(round+1)), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("failed to count a removal: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// lockRound locks the file for as long as it is open. Each caller has a file of its own: a lock belongs to it.
func (s *Store) lockRound(how int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.root, roundName), os.O_RDWR|os.O_CREATE, folder.FileMode)
	if err != nil {
		return nil, fmt.Errorf("failed to open %s: %w", roundName, err)
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, unix.EINTR):
			return nil, errors.Join(fmt.Errorf("failed to lock %s: %w", roundName, err), f.Close())
		}
	}
}

// readRound is the number of removals so far.
func readRound(f *os.File) (int64, error) {
	var b [8]byte
	n, err := f.ReadAt(b[:], 0)
	if n < len(b) && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("failed to read %s: %w", roundName, err)
	}
	return int64(binary.BigEndian.Uint64(b[:])), nil
}
