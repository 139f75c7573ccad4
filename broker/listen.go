package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"
)

// maxSocketPath is the longest path of a unix socket on Linux, without the final NUL (unix(7)).
const maxSocketPath = 107

// closeTimeout bounds how long Close waits for calls that go on.
const closeTimeout = 5 * time.Second

// Listener serves a Broker on a unix socket.
type Listener struct {
	path   string
	server *http.Server
	done   chan error
}

// Listen serves the broker on a unix socket that only the engine's user may open. A socket that a dead engine left
// behind is replaced; one that answers is an error.
func (b *Broker) Listen(path string) (*Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("failed to listen for workers: the socket path has %d bytes, at most %d are possible; choose a shorter data folder", len(path), maxSocketPath)
	}
	if err := clearSocket(path); err != nil {
		return nil, fmt.Errorf("failed to listen for workers on %s: %w", path, err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("failed to listen for workers on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("failed to close the socket %s to others: %w", path, err), l.Close())
	}
	out := &Listener{
		path: path, done: make(chan error, 1),
		server: &http.Server{
			Handler: b.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		},
	}
	go func() {
		err := out.server.Serve(l)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		out.done <- err
		close(out.done)
	}()
	return out, nil
}

// Path is the socket's.
func (l *Listener) Path() string { return l.path }

// Done gives the error with which serving ended by itself, or is closed after Close.
func (l *Listener) Done() <-chan error { return l.done }

// Close stops listening, gives calls a moment to end, and then cuts them: workers see a cut stream, never a short one.
func (l *Listener) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	err := l.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = l.server.Close()
	}
	if err != nil {
		return fmt.Errorf("failed to close the workers' socket: %w", err)
	}
	return nil
}

// clearSocket removes a socket on which nobody listens any more. Anything else at the path is left alone.
func clearSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return errors.New("something that is no socket is there")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
		return errors.New("another engine listens there")
	}
	return os.Remove(path)
}
