package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/harness-engine/harness-engine/broker"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/replica"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/store"
	"github.com/harness-engine/harness-engine/store/files"
	"github.com/harness-engine/harness-engine/store/replicas"
	"github.com/harness-engine/harness-engine/store/sqlite"
	"github.com/harness-engine/harness-engine/transport"
	"github.com/harness-engine/harness-engine/transport/auth"
)

// engine is the assembled service.
type engine struct {
	data   dataFolder
	log    *slog.Logger
	tokens *auth.Dev
	store  *sqlite.Store
	blobs  *files.Store
	fake   *fakeModel // nil unless it answers the model calls
	edge   *transport.Server

	member      *replicas.Member
	roster      *replica.Roster
	leave       func() error // makes this engine unknown to the others; may be called again
	broker      *broker.Listener
	coordinator *run.Coordinator
	hints       atomic.Pointer[hints]
	stop        []func(context.Context) error // in the order of starting
	background  sync.WaitGroup
}

// later registers what undoes a step of assembling.
func (e *engine) later(f func(context.Context) error) { e.stop = append(e.stop, f) }

// close undoes the assembling, last step first. It goes on after an error, and joins them.
func (e *engine) close(ctx context.Context) error {
	var errs []error
	for _, f := range slices.Backward(e.stop) {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}

// ending bounds the undoing of what was assembled: briefly where the store is dead, since nothing that was begun can be ended.
func (e *engine) ending(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := drainTimeout
	if e.store != nil && e.store.Err() != nil {
		timeout = deadTimeout
	}
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}

// serve answers clients until ctx ends, or a part dies that the engine cannot be without.
func (e *engine) serve(ctx context.Context, listener net.Listener) error {
	server := e.edge.HTTP(listener.Addr().String())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	e.later(func(ctx context.Context) error { // first at the end: stop accepting, move the clients on, wait for answers
		e.edge.Drain()
		err := server.Shutdown(ctx)
		if err != nil {
			err = errors.Join(err, server.Close())
		}
		return errors.Join(err, e.edge.Wait(ctx))
	})
	select {
	case <-ctx.Done():
		return nil
	case err := <-served:
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return fmt.Errorf("failed to serve: %w", err)
	case err := <-e.broker.Done():
		return fmt.Errorf("failed to serve workers: %w", err)
	case <-e.store.Dead():
		return fmt.Errorf("the store failed, and nothing more may be acknowledged: %w", e.store.Err())
	}
}

// admit refuses new work while the disk has no room for it.
func (e *engine) admit() error { return errors.Join(e.store.Admit(), e.blobs.Admit()) }

// secret returns the store's secret of that name, made at its first use.
func (e *engine) secret(ctx context.Context, name string) ([]byte, error) {
	fresh := make([]byte, 32)
	_, _ = rand.Read(fresh) // never fails
	secret, err := e.store.PutValueIfAbsent(ctx, name, fresh)
	if err != nil {
		return nil, fmt.Errorf("failed to read %s: %w", name, err)
	}
	return secret, nil
}

// incarnation returns the store's, which is made with it.
func (e *engine) incarnation(ctx context.Context) (string, error) {
	name, err := e.store.PutValueIfAbsent(ctx, store.ValueIncarnation, []byte(id.New(id.Log)))
	if err != nil {
		return "", fmt.Errorf("failed to read the store's incarnation: %w", err)
	}
	return string(name), nil
}
