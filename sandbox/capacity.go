package sandbox

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/worker"
)

// hurry is by how much a worker need be idle less when no other makes room: refusing a run is worse than a slower start
// of a conversation's next turn. What is left spans the calls of a turn that begins.
const hurry = 15

// claim takes a place. When all are taken it looks for workers that have ended by themselves, and then for idle ones,
// which it ends: their harness state stays, so the next turn of their conversation only starts slower.
func (m *Manager) claim(ctx context.Context, addr string) error {
	if err := m.notice(ctx); err != nil {
		return err
	}
	if m.tryClaim(addr) {
		return nil
	}
	m.sweep()
	if m.tryClaim(addr) {
		return nil
	}
	m.mu.Lock()
	others := slices.Sorted(maps.Keys(m.live))
	m.mu.Unlock()
	for _, idle := range []time.Duration{m.o.IdleTime, m.o.IdleTime / hurry} {
		for _, other := range others {
			if m.evict(ctx, other, idle) && m.tryClaim(addr) {
				return nil
			}
		}
	}
	return problem.New(problem.Capacity, "all %d sandboxes are in use", m.o.MaxSandboxes).With("retryAfter", retryAfterSec)
}

// notice counts the workers that other engines on this data folder have started since.
func (m *Manager) notice(ctx context.Context) error {
	found, err := m.List(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, addr := range found {
		if m.live[addr] {
			continue
		}
		if _, err := m.backendOf(m.spec(addr)); err == nil {
			m.live[addr] = true
		}
	}
	return nil
}

func (m *Manager) tryClaim(addr string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.live) >= m.o.MaxSandboxes && !m.live[addr] {
		return false
	}
	m.live[addr] = true
	return true
}

// occupy takes a place that is known to be free.
func (m *Manager) occupy(addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live[addr] = true
}

// begin notes that a sandbox is being started; the result notes that it is over.
func (m *Manager) begin(addr string) (over func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.starting[addr] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.starting, addr)
	}
}

func (m *Manager) release(addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, addr)
}

// sweep frees the places of workers that have ended. Their folders stay for whoever destroys them.
func (m *Manager) sweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for addr := range m.live {
		if m.starting[addr] {
			continue
		}
		if _, err := m.backendOf(m.spec(addr)); errors.Is(err, harness.ErrGone) {
			delete(m.live, addr)
		}
	}
}

// evict ends a worker that has been idle for a time, and reports whether it did. The worker decides: it refuses while it
// has a turn or anybody's attention.
func (m *Manager) evict(ctx context.Context, addr string, idle time.Duration) bool {
	s := m.spec(addr)
	secret, err := readSecret(s.SecretFile)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, destroyTime)
	defer cancel()
	if err := worker.EndIdle(ctx, s.Socket, secret, idle); err != nil {
		return false
	}
	m.o.Log.Info("idle sandbox ended to make room", "sandbox", addr)
	if err := m.end(ctx, addr, AnyLease, true); err != nil { // the worker has agreed, and takes nobody's call any more
		m.o.Log.Error("failed to destroy idle sandbox", "sandbox", addr, "error", err)
		return false
	}
	return true
}
