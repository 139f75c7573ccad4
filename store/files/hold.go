package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/store/internal/folder"
)

// holdName is the file whose lock says that nothing is removed for a while.
const holdName = "hold.lock"

// Hold keeps every process from removing blobs of the folder until release is called, or this process dies: a copy of a database
// that is made meanwhile names nothing that is gone by the time that it is copied. A Delete that comes meanwhile removes
// nothing and is no error: whoever keeps states removes older ones again the next time. It waits until nobody removes, or ctx ends.
func Hold(ctx context.Context, root string) (release func(), err error) {
	f, err := folder.WaitLock(ctx, root, holdName)
	if err != nil {
		return nil, fmt.Errorf("failed to hold blobs %s: %w", root, err)
	}
	return func() { _ = f.Close() }, nil
}

// removing lets a removal go on until leave is called; it is false where blobs are held.
func (s *Store) removing() (leave func(), ok bool, err error) {
	f, err := os.OpenFile(filepath.Join(s.root, holdName), os.O_RDWR|os.O_CREATE, folder.FileMode)
	if err != nil {
		return nil, false, fmt.Errorf("failed to open %s: %w", holdName, err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { _ = f.Close() }, true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, false, f.Close()
		default:
			return nil, false, errors.Join(fmt.Errorf("failed to lock %s: %w", holdName, err), f.Close())
		}
	}
}
