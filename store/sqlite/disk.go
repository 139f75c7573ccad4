package sqlite

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/harness-engine/harness-engine/store/internal/folder"
)

// reserveName is the file that holds room on the disk for what must be written when the disk is full: terminal
// events, and the documents that a run's end changes.
const reserveName = "engine.reserve"

// disk knows the room on the data folder's disk.
type disk struct {
	folder  string
	reserve int64       // bytes of the reserve file; 0 or less: none
	full    atomic.Bool // the last write found no room, and there was not clearly more since
	faults  *faults     // in tests, see faults_on.go
}

func newDisk(o Options) *disk {
	return &disk{folder: filepath.Dir(o.Path), reserve: o.ReserveBytes}
}

func (d *disk) free() (int64, error) {
	if free, ok := d.faults.freeBytes(); ok {
		return free, nil
	}
	return folder.Free(d.folder)
}

func (d *disk) reservePath() string { return filepath.Join(d.folder, reserveName) }

// makeReserve makes the reserve file where it is missing or short. The bytes are written, not only promised, since
// a file with holes holds no room.
func (d *disk) makeReserve() error {
	if d.reserve <= 0 {
		return nil
	}
	if st, err := os.Stat(d.reservePath()); err == nil && st.Size() == d.reserve {
		return nil
	}
	if free, err := d.free(); err != nil || free < 4*d.reserve {
		return errors.Join(fmt.Errorf("not enough room for a reserve of %d bytes", d.reserve), err)
	}
	f, err := os.OpenFile(d.reservePath(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("failed to make reserve: %w", err)
	}
	block := make([]byte, 1<<16)
	_, _ = rand.Read(block) // what compresses would hold less room
	for n := int64(0); n < d.reserve && err == nil; n += int64(len(block)) {
		_, err = f.Write(block[:min(int64(len(block)), d.reserve-n)])
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("failed to fill reserve: %w", err), os.Remove(d.reservePath()))
	}
	return nil
}

// giveUpReserve frees the room of the reserve file and reports whether there was any.
func (d *disk) giveUpReserve() bool {
	err := os.Remove(d.reservePath())
	return err == nil || !errors.Is(err, fs.ErrNotExist) && d.reserve > 0 && os.Truncate(d.reservePath(), 0) == nil
}

// recovered reports whether there is clearly room again: the reserve and as much beside it several times over.
func (d *disk) recovered() bool {
	free, err := d.free()
	return err == nil && free > 8*max(d.reserve, 1<<20)
}
