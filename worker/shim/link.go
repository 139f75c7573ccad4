package shim

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of how often a worker speaks.
const (
	minVouchPause = 50 * time.Millisecond
	maxVouchPause = 15 * time.Second
)

// Link is a worker's side: it tells the shim how long it may be silent, and notices when the shim is gone.
type Link struct {
	file *os.File
}

// OpenLink takes over the descriptor that the shim gave. No program that the worker starts inherits it.
func OpenLink(fd uint) (*Link, error) {
	unix.CloseOnExec(int(fd))
	if err := unix.SetNonblock(int(fd), true); err != nil { // so that a write can be given up
		return nil, errors.New("failed to open link to shim: not a descriptor")
	}
	return &Link{file: os.NewFile(uintptr(fd), "link")}, nil
}

// Gone blocks until the shim is gone.
func (l *Link) Gone() {
	b := make([]byte, 1)
	for {
		if _, err := l.file.Read(b); err != nil {
			return
		}
	}
}

// Vouch tells the shim, again and again, for how long the worker may go on without a word: left says for how long nobody
// need look after it, and margin is what it gets beyond that, because it ends by itself first. It returns when ctx ends.
func (l *Link) Vouch(ctx context.Context, left func() time.Duration, margin time.Duration) {
	for {
		now := left()
		_ = l.file.SetWriteDeadline(time.Now().Add(maxVouchPause)) // a shim that is stopped reads nothing
		_, _ = l.file.WriteString(strconv.FormatInt((now+margin).Milliseconds(), 10) + "\n")
		select {
		case <-time.After(min(max(now/4, minVouchPause), maxVouchPause)):
		case <-ctx.Done():
			return
		}
	}
}
