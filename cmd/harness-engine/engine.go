package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/harness-engine/harness-engine/broker"
	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/catalog"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/replica"
	"github.com/harness-engine/harness-engine/engine/retention"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/openfga"
	"github.com/harness-engine/harness-engine/resolvers"
	"github.com/harness-engine/harness-engine/sandbox"
	"github.com/harness-engine/harness-engine/sandbox/process"
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
	halt        context.CancelFunc // of what runs in the background
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

// assemble starts the parts from the store outwards and takes over the runs that an engine before left.
func assemble(ctx context.Context, c serveCmd, addr string, log *slog.Logger) (_ *engine, err error) {
	e := &engine{log: log}
	defer func() {
		if err != nil {
			ending, cancel := e.ending(ctx)
			defer cancel()
			err = errors.Join(err, e.close(ending))
		}
	}()
	if e.data, err = openDataFolder(c.Data); err != nil {
		return nil, err
	}
	// One engine of the folder starts at a time: the databases are brought up to date by one.
	started, err := replicas.Starting(ctx, e.data.path(dirReplicas))
	if err != nil {
		return nil, err
	}
	defer started()
	boot := id.New(id.Boot)
	if err := e.join(ctx, c, boot, addr); err != nil {
		return nil, err
	}
	if e.tokens, err = auth.NewDev(auth.DevOptions{KeyFile: e.data.path(fileTokenKey), Environment: c.Environment}); err != nil {
		return nil, err
	}
	if e.store, err = sqlite.Open(ctx, sqlite.Options{Path: e.data.path(fileStore), Blocked: e.blocked, Logger: log}); err != nil {
		return nil, err
	}
	e.later(func(context.Context) error {
		if e.store.Err() != nil {
			return nil //nolint:nilerr // serve has reported it; what it could not commit is for the next start to judge
		}
		return e.store.Close()
	})
	// A store that dies while the parts start is waited for by nobody: what it does not answer now, it never will.
	ctx, die := context.WithCancelCause(ctx)
	alive := make(chan struct{})
	e.later(func(context.Context) error { close(alive); return nil })
	go func() {
		select {
		case <-e.store.Dead():
			die(e.store.Err())
		case <-alive:
		}
	}()
	if e.blobs, err = files.Open(ctx, files.Options{Folder: e.data.path(dirBlobs), Logger: log}); err != nil {
		return nil, err
	}
	e.later(func(context.Context) error { return e.blobs.Close() })
	background, halt := context.WithCancel(context.WithoutCancel(ctx))
	e.halt = halt
	e.later(func(context.Context) error { halt(); e.background.Wait(); return nil })

	fga, err := e.startAuthorization(ctx, c)
	if err != nil {
		return nil, err
	}
	guard, err := authz.NewGuard(authz.GuardOptions{
		Checker: fga, Facts: run.Ownership{Sessions: e.store, Runs: e.store}, Environment: c.Environment, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	signer, err := e.startBroker(ctx, c)
	if err != nil {
		return nil, err
	}
	harnesses, err := e.newCatalog(ctx, c)
	if err != nil {
		return nil, err
	}
	e.background.Go(func() { harnesses.Run(background) })
	agents, err := agent.NewService(agent.Options{Store: e.store, Reviewer: harnesses, Tuples: fga, Usage: usage{e.store}, Logger: log})
	if err != nil {
		return nil, err
	}
	if err := e.restate(ctx, fga, agents); err != nil {
		return nil, err
	}
	e.background.Go(func() { agents.Run(background) })

	workers, err := e.newWorkers(c)
	if err != nil {
		return nil, err
	}
	ids, err := e.secret(ctx, store.ValueIDSecret)
	if err != nil {
		return nil, err
	}
	incarnation, err := e.incarnation(ctx)
	if err != nil {
		return nil, err
	}
	hub := event.NewHub(event.HubOptions{Log: e.store})
	e.later(func(context.Context) error { hub.Close(); return nil })
	changes := session.NewChanges(session.ChangesOptions{Sessions: e.store, Logger: log})
	e.later(func(context.Context) error { changes.Close(); return nil })
	e.coordinator = run.New(run.Options{
		Runs: e.store, Sessions: e.store, Events: e.store, Publish: e.publishTo(hub), Replicas: e,
		Agents: e.store, Harnesses: harnesses, Workers: workers, Capabilities: signer, Authz: fga,
		Blobs: e.blobs, Admit: e.admit, Changed: changes.Publish, Secret: ids, Boot: boot, Log: log,
		Limits: run.Limits{MaxRuns: c.MaxRuns, MaxRunDuration: c.MaxRunTime, IdleWorker: c.IdleWorker, InterruptDeadline: c.InterruptDeadline},
	})
	e.later(func(ctx context.Context) error {
		err := e.coordinator.Drain(ctx)
		return errors.Join(err, e.leave()) // from now on, other engines take over what was let go
	})
	e.hints.Store(&hints{hub: hub, changes: changes, sessions: e.store, coordinator: e.coordinator})
	if err := e.coordinator.Recover(ctx); err != nil {
		return nil, fmt.Errorf("failed to take over runs: %w", err)
	}
	keeper := retention.New(retention.Options{Store: e.store, Sessions: e.store, Keep: c.Retain, Logger: log})
	e.background.Go(func() { keeper.Run(background) })
	cleaner := retention.NewCleaner(retention.CleanerOptions{Content: e.store, Blobs: e.blobs, Logger: log})
	e.background.Go(func() { cleaner.Run(background) })
	e.background.Go(func() { e.coordinator.Run(background) })
	attachments, err := file.NewService(file.Options{Files: e.store, Blobs: e.blobs})
	if err != nil {
		return nil, err
	}
	api, err := resolvers.New(resolvers.Options{
		Guard: guard, Agents: agents, Catalog: harnesses, Sessions: e.store, Runs: e.store,
		LogEpoch: incarnation, Control: e.coordinator, Events: e.store, Hub: hub, Changes: changes, Files: attachments, Logger: log,
		Feed: run.NewSessionFeed(run.SessionFeedOptions{Runs: e.store, Sessions: e.store, Hub: hub, Changes: changes}),
	})
	if err != nil {
		return nil, err
	}
	e.edge, err = transport.NewServer(transport.Options{
		API: api, Files: attachments, Authenticator: e.tokens, AllowedOrigins: c.AllowedOrigin, Playground: c.Playground, Logger: log,
		Limits: transport.Limits{MaxSockets: c.MaxStreams, MaxCallerStreams: c.MaxCallerStreams},
		Checks: []transport.Check{
			{Name: "store", Check: func(context.Context) error { return e.admit() }},
			{Name: "authorization", Check: fga.Ready},
		},
	})
	return e, err
}

// startAuthorization starts or finds the OpenFGA server and states who may use the platform.
func (e *engine) startAuthorization(ctx context.Context, c serveCmd) (*openfga.Client, error) {
	o := openfga.ClientOptions{Endpoint: c.OpenFGAURL, StoreID: c.OpenFGAStore, ModelID: c.OpenFGAModel, Token: c.OpenFGAToken, Logger: e.log}
	if o.Endpoint == "" {
		embedded, err := openfga.StartEmbedded(ctx, openfga.EmbeddedOptions{Path: e.data.path(fileOpenFGA), Logger: e.log})
		if err != nil {
			return nil, err
		}
		e.later(embedded.Close)
		o.Endpoint, o.Token = embedded.Endpoint(), embedded.Token()
	}
	client, err := openfga.NewClient(ctx, o)
	if err != nil {
		return nil, err
	}
	e.later(func(context.Context) error { client.Close(); return nil })
	if err := client.Apply(ctx, authz.Platform(), authz.PlatformTuples(c.Admin, nil, true)); err != nil {
		return nil, fmt.Errorf("failed to state who may use the platform: %w", err)
	}
	return client, nil
}

// startBroker opens the door that workers call, with the model upstreams behind it.
func (e *engine) startBroker(ctx context.Context, c serveCmd) (*broker.Signer, error) {
	key, err := e.secret(ctx, store.ValueBrokerSecret)
	if err != nil {
		return nil, err
	}
	signer, err := broker.NewSigner(key, nil)
	if err != nil {
		return nil, err
	}
	upstreams, err := e.upstreams(c)
	if err != nil {
		return nil, err
	}
	b, err := broker.New(broker.Options{Signer: signer, Bindings: broker.Sessions{Store: e.store}, Upstreams: upstreams, Logger: e.log})
	if err != nil {
		return nil, err
	}
	if e.broker, err = b.Listen(e.member.Path(brokerSuffix)); err != nil {
		return nil, err
	}
	e.later(e.broker.Close)
	return signer, nil
}

// upstreams are the configured providers, or the fake for all of them.
func (e *engine) upstreams(c serveCmd) (map[string]broker.Upstream, error) {
	upstreams := broker.UpstreamsFromEnv(os.Getenv)
	if !c.FakeModel && (len(upstreams) > 0 || !c.Dev) {
		return upstreams, nil
	}
	fake, err := startFakeModel()
	if err != nil {
		return nil, err
	}
	e.fake = fake
	e.later(fake.close)
	return fake.upstreams(), nil
}

// newCatalog registers the harnesses of this build.
func (e *engine) newCatalog(ctx context.Context, c serveCmd) (*catalog.Catalog, error) {
	policy := catalog.Policy{AllowExperimental: c.AllowExperimental, Disabled: c.DisableHarness}
	for name := range maps.Keys(broker.UpstreamsFromEnv(os.Getenv)) {
		policy.Providers = append(policy.Providers, name)
	}
	if e.fake != nil {
		policy.Providers = slices.Collect(maps.Keys(e.fake.upstreams()))
	}
	slices.Sort(policy.Providers)
	node, err := nodeDir(c.NodeDir)
	if err != nil {
		return nil, err
	}
	return catalog.New(ctx, catalog.Options{
		Adapters: adapters(node),
		Policy:   policy, Logger: e.log,
	})
}

// newWorkers makes the manager of workers on this host.
func (e *engine) newWorkers(c serveCmd) (*sandbox.Manager, error) {
	binary, err := workerBinary(c.WorkerBinary)
	if err != nil {
		return nil, err
	}
	node, err := nodeDir(c.NodeDir)
	if err != nil {
		return nil, err
	}
	backend, err := process.New(process.Options{
		AllowUnisolated: c.AllowUnisolated, Worker: binary, NodeDir: node, ClaudeDir: claudeDir(node), LogLevel: strings.ToLower(c.LogLevel.String()),
	})
	if err != nil {
		return nil, err
	}
	return sandbox.NewManager(sandbox.Options{
		Data: e.data.path(dirSandboxes), Backends: map[string]sandbox.Backend{"process": backend},
		Profiles:     []sandbox.Profile{{ID: "process", Backend: "process"}},
		MaxSandboxes: c.MaxWorkers, BrokerSocket: e.broker.Path(), Log: e.log,
	})
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

// restate states the tuples of all agents to an authorization store that this store has never met: it is new, or one of the
// two was restored from a backup.
func (e *engine) restate(ctx context.Context, fga *openfga.Client, agents *agent.Service) error {
	name := store.AppliedPrefix + fga.StoreID()
	_, err := e.store.Value(ctx, name)
	if !errors.Is(err, store.ErrNoValue) {
		return err
	}
	n, err := agents.Restate(ctx, e.store)
	if err != nil {
		return err
	}
	if _, err := e.store.PutValueIfAbsent(ctx, name, []byte(id.New(id.Boot))); err != nil {
		return err
	}
	e.log.Info("tuples of all agents are stated", "store", fga.StoreID(), "agents", n)
	return nil
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

// usage counts conversations for the report on a draft.
type usage struct{ sessions session.Store }

func (u usage) PinnedConversations(ctx context.Context, a agent.Agent, limit int) (int, error) {
	return u.sessions.PinnedSessions(ctx, a.Environment, a.ID, limit)
}
