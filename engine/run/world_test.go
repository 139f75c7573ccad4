package run_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/store/sqlite"
)

var alice = authz.Caller{Environment: "test", Subject: "alice"}

// world is what outlives an engine: the store, the host with its workers, the agent that a user edits.
type world struct {
	t       testing.TB
	ctx     context.Context
	path    string // of the store's database
	store   *sqlite.Store
	host    *workers
	agent   agent.Agent
	secret  []byte
	ready   error // what the catalog says of the harness
	allowed bool
	mute    atomic.Int64 // how many checks get no answer from now on

	// The store, unless a test puts something before it.
	log      event.Log
	sessions session.Store
	runs     run.Store
	blobs    *blobs
	states   blob.Store

	peers *peers // nil: an engine knows of no other
}

// patience is for what comes about unless it is broken: a test may wait for hundreds of syncs of a slow disk.
const patience = 10 * time.Minute

// migrated is the file of a store with nothing in it. To make one takes a dozen syncs of the disk, and each test needs one.
var migrated = sync.OnceValues(func() ([]byte, error) {
	folder, err := os.MkdirTemp("", "run")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "engine.sqlite")
	store, err := open(context.Background(), path)
	if err == nil {
		err = store.Close()
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func open(ctx context.Context, path string) (*sqlite.Store, error) {
	return sqlite.Open(ctx, sqlite.Options{Path: path, ReserveBytes: -1, Logger: slog.New(slog.DiscardHandler)})
}

func newWorld(t testing.TB) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	path := filepath.Join(t.TempDir(), "engine.sqlite")
	file, err := migrated()
	if err == nil {
		err = os.WriteFile(path, file, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	store, err := open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	w := &world{t: t, ctx: ctx, path: path, store: store, host: newWorkers(), secret: make([]byte, 32), allowed: true, log: store, sessions: store, runs: store, blobs: newBlobs()}
	w.states = w.blobs
	w.agent = agent.Agent{ID: id.New(id.Agent), Rev: 1, State: agent.StateActive, Environment: "test", Owner: "alice", Slug: "a", Version: 1}
	if err := store.InsertAgent(ctx, w.agent); err != nil {
		t.Fatal(err)
	}
	w.version(1)
	return w
}

// version stores a version of the agent and makes it current.
func (w *world) version(n int64) {
	w.t.Helper()
	v := agent.Version{AgentID: w.agent.ID, Number: n, Blueprint: agent.Blueprint{Name: fmt.Sprintf("v%d", n), Harness: agent.Harness{ID: "scripted"}}}
	if err := w.store.InsertVersion(w.ctx, v); err != nil {
		w.t.Fatal(err)
	}
	if n > 1 {
		w.agent.Rev, w.agent.Version = w.agent.Rev+1, n
		if err := w.store.UpdateAgent(w.ctx, w.agent); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) Ready(context.Context, string) error { return w.ready }

func (w *world) Descriptor(string) (harness.Descriptor, bool) {
	d := harness.Descriptor{ID: "scripted", AdapterVersion: "1.0.0"}
	d.Capabilities = map[harness.Capability]harness.Level{}
	if w.host.keeps {
		d.Capabilities[harness.ThreadDurableCommit] = harness.Native
	}
	if w.host.takes {
		d.Capabilities[harness.InputDocuments] = harness.Native
	}
	return d, true
}

func (w *world) DefaultModel(string) harness.ModelRef { return harness.ModelRef{} }

func (w *world) Mint(harness.Binding, string, time.Time) (string, error) { return "capability", nil }

func (w *world) Check(context.Context, authz.Check) (bool, error) {
	if w.mute.Add(-1) >= 0 {
		return false, errors.New("no answer")
	}
	return w.allowed, nil
}

func (w *world) CheckAll(_ context.Context, cs []authz.Check) ([]bool, error) {
	return make([]bool, len(cs)), nil
}

// engine is one boot of the coordinator.
type engine struct {
	*run.Coordinator
	*world
	hub  *event.Hub
	boot string
}

func (w *world) boot(limits run.Limits) *engine {
	hub := event.NewHub(event.HubOptions{Log: w.store, Poll: 50 * time.Millisecond})
	boot := id.New(id.Boot)
	o := run.Options{
		Runs: w.runs, Blobs: w.states, Sessions: w.sessions, Events: w.log, Publish: hub.Publish, Agents: w.store, Harnesses: w, Workers: w.host,
		Capabilities: w, Authz: w, Secret: w.secret, Boot: boot, Limits: limits,
	}
	if w.peers != nil {
		o.Replicas = w.peers
	}
	c := run.New(o)
	e := &engine{Coordinator: c, world: w, hub: hub, boot: boot}
	if w.peers != nil {
		w.peers.join(e)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Drain(ctx); err != nil {
			w.t.Errorf("drain: %v", err)
		}
		hub.Close()
	})
	return e
}

func (w *world) start(e *engine, req run.StartRequest) run.Run {
	w.t.Helper()
	r, err := e.Start(w.ctx, w.request(req))
	if err != nil {
		w.t.Fatalf("start: %v", err)
	}
	return r
}

func (w *world) request(req run.StartRequest) run.StartRequest {
	req.Caller, req.AgentID = alice, w.agent.ID
	return req
}

// events reads the run to its terminal, through the hub as a client does.
func (e *engine) events(runID string) []event.Event {
	e.t.Helper()
	sub := e.hub.Subscribe(runID, 0)
	var all []event.Event
	for {
		d, err := sub.Next(e.ctx, 100)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			e.t.Fatalf("events of %s after %d: %v", runID, len(all), err)
		}
		all = append(all, d.Events...)
	}
}

// settled waits until the run has ended and its conversation is free, and returns the run.
func (w *world) settled(runID string) run.Run {
	w.t.Helper()
	var r run.Run
	w.eventually(func() bool {
		var err error
		if r, err = w.store.Run(w.ctx, runID); err != nil || !r.Status.Ended() {
			return false
		}
		b, err := w.store.Session(w.ctx, r.SessionID)
		return err == nil && (b.Active == nil || b.Active.Run != runID)
	})
	return r
}

// eventually asks again until the condition holds or the test's time is over.
func (w *world) eventually(holds func() bool) {
	w.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatal("waited in vain")
		}
	}
}

// begun waits until the run's turn is on its worker and its first event is logged.
func (e *engine) begun(r run.Run) *worker {
	e.t.Helper()
	var w *worker
	e.eventually(func() bool { // one that was idle may go meanwhile, and another come
		w = e.host.only()
		return w != nil && w.has(r.ID)
	})
	return w
}

func types(events []event.Event) string {
	var s []string
	for _, e := range events {
		s = append(s, string(e.Type()))
	}
	return strings.Join(s, " ")
}

func wantCode(t testing.TB, err error, code problem.Code) *problem.Error {
	t.Helper()
	p, ok := problem.As(err)
	if !ok || p.Code != code {
		t.Fatalf("got %v, want %s", err, code)
	}
	return p
}

func last[T event.Data](t testing.TB, events []event.Event) T {
	t.Helper()
	if len(events) == 0 {
		t.Fatal("no events")
	}
	d, ok := events[len(events)-1].Data.(T)
	if !ok {
		t.Fatalf("ended as %+v", events[len(events)-1].Data)
	}
	return d
}
