package main

import (
	"context"
	"os"
	"sync"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/replica"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/store/replicas"
)

// brokerSuffix names the socket that the workers of one engine call.
const brokerSuffix = ".broker"

// beatsPerLease is how often an engine says that it lives.
const beatsPerLease = 6

// join makes this engine known to the others on the data folder, and looks who they are.
func (e *engine) join(ctx context.Context, c serveCmd, boot, addr string) (err error) {
	e.member, err = replicas.Join(replicas.Options{
		Folder: e.data.path(dirReplicas), Info: replicas.Info{ID: boot, Addr: addr, PID: os.Getpid(), Lease: c.Lease},
		Beat: c.Lease / beatsPerLease, OnHint: e.hinted, Logger: e.log,
	})
	if err != nil {
		return err
	}
	e.leave = e.member.Leave
	e.later(func(context.Context) error { return e.leave() })
	e.roster = replica.NewRoster(replica.RosterOptions{
		Self: boot, Directory: e.member, Lease: c.Lease, LastBeat: e.member.LastBeat, Logger: e.log,
		Changed: e.toCoordinator((*run.Coordinator).Wake), Doubted: e.toCoordinator((*run.Coordinator).LetGo),
	})
	if err := e.roster.Look(ctx); err != nil {
		return err
	}
	// From now on, not when all is assembled: an engine that is stopped in a commit is in the way of that, too.
	looking, halt := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() { defer close(done); e.roster.Run(looking) }()
	e.leave = sync.OnceValue(func() error { halt(); <-done; return e.member.Leave() })
	e.log.Info("engines on the data folder", "engines", e.roster.Living())
	return nil
}

// toCoordinator calls the coordinator, once it is there.
func (e *engine) toCoordinator(f func(*run.Coordinator)) func() {
	return func() {
		if to := e.hints.Load(); to != nil {
			f(to.coordinator)
		}
	}
}

// blocked ends an engine that is stopped in the middle of a commit: no other could write until it goes on.
func (e *engine) blocked(pid int) {
	killed, err := e.member.End(context.Background(), pid, e.roster.Still)
	switch {
	case err != nil:
		e.log.Error("an engine that has stopped in a commit was not ended", "pid", pid, "error", err)
	case killed:
		e.log.Error("an engine that had stopped in a commit was ended, so that others can write", "pid", pid)
	default:
		e.log.Warn("waiting for another engine's commit", "pid", pid)
	}
}

// Gone implements run.Replicas.
func (e *engine) Gone(boot string) bool { return e.roster.Gone(boot) }

// Alone implements run.Replicas.
func (e *engine) Alone() bool { return e.roster.Alone() }

// Tell implements run.Replicas.
func (e *engine) Tell(h replica.Hint) { e.member.Tell(h) }

// publishTo tells subscribers of this engine, and the other engines, of a chunk that is durable.
func (e *engine) publishTo(hub *event.Hub) func(event.Chunk) {
	return func(c event.Chunk) {
		hub.Publish(c)
		e.member.Tell(replica.Hint{Kind: replica.LogGrew, ID: c.RunID})
	}
}

// hints is who acts on what other engines tell.
type hints struct {
	hub         *event.Hub
	changes     *session.Changes
	sessions    session.Store
	coordinator *run.Coordinator
}

// hinted hands a hint over; those that come before the engine is assembled are dropped, since it reads everything then.
func (e *engine) hinted(h replica.Hint) {
	to := e.hints.Load()
	if to == nil {
		return
	}
	switch h.Kind {
	case replica.LogGrew:
		to.hub.Wake(h.ID)
	case replica.BindingChanged:
		if !to.changes.Watching() {
			return
		}
		b, err := to.sessions.Session(context.Background(), h.ID)
		if err != nil {
			to.changes.Lost()
			break
		}
		to.changes.Publish(b)
	case replica.Everything:
		to.hub.WakeAll()
		to.changes.Lost()
	}
	to.coordinator.Hinted(h)
}
