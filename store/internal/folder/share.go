package folder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Waiting for another process that is opening the same folder.
const (
	openingSuffix = ".opening"
	openingPause  = 10 * time.Millisecond
)

// Share joins the processes that have the folder open together. prepare runs while no other process opens it; sole says
// that no other has it open, so that what a crash left may be put in order. The lock lasts as long as the file that is
// returned is open: Lock on the same name fails with ErrHeld until then, and Share fails with it while Lock is held.
// It waits for others that are opening, until ctx ends.
func Share(ctx context.Context, folder, name string, prepare func(sole bool) error) (_ *os.File, err error) {
	opening, err := WaitLock(ctx, folder, name+openingSuffix)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opening.Close() }()
	sole := true
	f, err := Lock(folder, name)
	if errors.Is(err, ErrHeld) {
		sole = false
		f, err = shared(folder, name)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	if err := prepare(sole); err != nil {
		return nil, err
	}
	// The kernel drops the exclusive lock before it gives the shared one: who opens meanwhile waits for opening.
	if err := share(f); err != nil {
		return nil, err
	}
	return f, nil
}

// WaitLock is Lock that waits for the holder, until ctx ends.
func WaitLock(ctx context.Context, folder, name string) (*os.File, error) {
	for {
		f, err := Lock(folder, name)
		if !errors.Is(err, ErrHeld) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w; it did not finish in time: %w", err, context.Cause(ctx))
		case <-time.After(openingPause):
		}
	}
}

func shared(folder, name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(folder, name), os.O_RDWR|os.O_CREATE, FileMode)
	if err != nil {
		return nil, fmt.Errorf("failed to open lock file: %w", err)
	}
	if err := share(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func share(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("%w: %s is locked%s", ErrHeld, f.Name(), holder(f))
	case err != nil:
		return fmt.Errorf("failed to share %s: %w", f.Name(), err)
	}
	return nil
}

// Gate lets one process at a time through, in about the order in which they came. It is a lock on a file of its own.
type Gate struct{ f *os.File }

// NewGate opens the gate of that name in the folder.
func NewGate(folder, name string) (*Gate, error) {
	f, err := os.OpenFile(filepath.Join(folder, name), os.O_RDWR|os.O_CREATE, FileMode)
	if err != nil {
		return nil, fmt.Errorf("failed to open gate: %w", err)
	}
	return &Gate{f}, nil
}

// Enter waits until no other process is inside, or given up is closed; false says the latter. A process that was stopped
// inside keeps all others out until it goes on or dies: the kernel opens the gate behind the dead only. So blocked is
// called each time that the wait has lasted for another patience.
func (g *Gate) Enter(givenUp <-chan struct{}, patience time.Duration, blocked func()) (bool, error) {
	err := flock(g.f, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return false, fmt.Errorf("failed to enter gate: %w", err)
	}
	entered := make(chan error, 1)
	go func() { entered <- flock(g.f, unix.LOCK_EX) }() // outlives a wait that is given up, until the gate is closed
	tick := time.NewTicker(patience)
	defer tick.Stop()
	for {
		select {
		case err := <-entered:
			if err != nil {
				return false, fmt.Errorf("failed to enter gate: %w", err)
			}
			return true, nil
		case <-tick.C:
			blocked()
		case <-givenUp:
			return false, nil
		}
	}
}

// Leave lets the next one in.
func (g *Gate) Leave() error {
	if err := flock(g.f, unix.LOCK_UN); err != nil {
		return fmt.Errorf("failed to leave gate: %w", err)
	}
	return nil
}

// Close gives the gate up.
func (g *Gate) Close() error { return g.f.Close() }

// flock locks or unlocks the file. It holds the descriptor while it waits, so that a file that is closed meanwhile gives
// its number to no other before.
func flock(f *os.File, how int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var locked error
	err = conn.Control(func(fd uintptr) {
		for {
			if locked = unix.Flock(int(fd), how); !errors.Is(locked, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, locked)
}
