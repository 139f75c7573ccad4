package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/harness-engine/harness-engine/broker"
	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/catalog"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/id"
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
	if ctx, err = e.openStores(ctx); err != nil {
		return nil, err
	}
	background, halt := context.WithCancel(context.WithoutCancel(ctx))
	e.later(func(context.Context) error { halt(); e.background.Wait(); return nil })

	fga, err := e.startAuthorization(ctx, c)
	if err != nil {
		return nil, err
	}
	upstreams, err := e.upstreams(c)
	if err != nil {
		return nil, err
	}
	signer, err := e.startBroker(ctx, upstreams)
	if err != nil {
		return nil, err
	}
	harnesses, err := e.newCatalog(ctx, c, slices.Sorted(maps.Keys(upstreams)))
	if err != nil {
		return nil, err
	}
	e.background.Go(func() { harnesses.Run(background) })
	agents, err := agent.NewService(agent.Options{Store: e.store, Reviewer: harnesses, Tuples: fga, Usage: usage{e.store}, Logger: log, Self: boot, Dead: e.roster.Dead})
	if err != nil {
		return nil, err
	}
	if err := e.restate(ctx, fga, agents); err != nil {
		return nil, err
	}
	e.background.Go(func() { agents.Run(background) })
	if err := e.takeOver(ctx, c, run.Options{Boot: boot, Harnesses: harnesses, Capabilities: signer, Authz: fga}); err != nil {
		return nil, err
	}
	keeper := retention.New(retention.Options{Store: e.store, Sessions: e.store, Keep: c.Retain, Logger: log})
	e.background.Go(func() { keeper.Run(background) })
	cleaner := retention.NewCleaner(retention.CleanerOptions{Content: e.store, Blobs: e.blobs, Logger: log})
	e.background.Go(func() { cleaner.Run(background) })
	e.background.Go(func() { e.coordinator.Run(background) })
	return e, e.openEdge(ctx, c, fga, agents, harnesses)
}

// openStores opens what the engine keeps. The context that it returns ends when the store dies while the parts start, for
// which nobody waits: what it does not answer now, it never will.
func (e *engine) openStores(ctx context.Context) (_ context.Context, err error) {
	if e.store, err = sqlite.Open(ctx, sqlite.Options{Path: e.data.path(fileStore), Blocked: e.blocked, Logger: e.log}); err != nil {
		return ctx, err
	}
	e.later(func(context.Context) error {
		if e.store.Err() != nil {
			return nil //nolint:nilerr // serve has reported it; what it could not commit is for the next start to judge
		}
		return e.store.Close()
	})
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
	if e.blobs, err = files.Open(ctx, files.Options{Folder: e.data.path(dirBlobs), Logger: e.log}); err != nil {
		return ctx, err
	}
	e.later(func(context.Context) error { return e.blobs.Close() })
	return ctx, nil
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
func (e *engine) startBroker(ctx context.Context, upstreams map[string]broker.Upstream) (*broker.Signer, error) {
	key, err := e.secret(ctx, store.ValueBrokerSecret)
	if err != nil {
		return nil, err
	}
	signer, err := broker.NewSigner(key, nil)
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

// newCatalog registers the harnesses of this build, which may use the models of the providers.
func (e *engine) newCatalog(ctx context.Context, c serveCmd, providers []string) (*catalog.Catalog, error) {
	node, err := nodeDir(c.NodeDir)
	if err != nil {
		return nil, err
	}
	return catalog.New(ctx, catalog.Options{
		Adapters: adapters(node), Logger: e.log,
		Policy: catalog.Policy{AllowExperimental: c.AllowExperimental, Disabled: c.DisableHarness, Providers: providers},
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

// takeOver makes the coordinator, of which o has what is made already, and what follows logs and conversations; then it takes
// over the runs that an engine before left.
func (e *engine) takeOver(ctx context.Context, c serveCmd, o run.Options) (err error) {
	if o.Workers, err = e.newWorkers(c); err != nil {
		return err
	}
	if o.Secret, err = e.secret(ctx, store.ValueIDSecret); err != nil {
		return err
	}
	hub := event.NewHub(event.HubOptions{Log: e.store})
	e.later(func(context.Context) error { hub.Close(); return nil })
	changes := session.NewChanges(session.ChangesOptions{Sessions: e.store, Logger: e.log})
	e.later(func(context.Context) error { changes.Close(); return nil })
	o.Runs, o.Sessions, o.Events, o.Agents, o.Blobs = e.store, e.store, e.store, e.store, e.blobs
	o.Publish, o.Changed, o.Replicas, o.Admit, o.Log = e.publishTo(hub), changes.Publish, e, e.admit, e.log
	o.Limits = run.Limits{MaxRuns: c.MaxRuns, MaxRunDuration: c.MaxRunTime, IdleWorker: c.IdleWorker, InterruptDeadline: c.InterruptDeadline}
	e.coordinator = run.New(o)
	e.later(func(ctx context.Context) error {
		err := e.coordinator.Drain(ctx)
		return errors.Join(err, e.leave()) // from now on, other engines take over what was let go
	})
	e.hints.Store(&hints{hub: hub, changes: changes, sessions: e.store, coordinator: e.coordinator})
	if err := e.coordinator.Recover(ctx); err != nil {
		return fmt.Errorf("failed to take over runs: %w", err)
	}
	return nil
}

// openEdge makes what clients call.
func (e *engine) openEdge(ctx context.Context, c serveCmd, fga *openfga.Client, agents *agent.Service, harnesses *catalog.Catalog) error {
	guard, err := authz.NewGuard(authz.GuardOptions{
		Checker: fga, Facts: run.Ownership{Sessions: e.store, Runs: e.store}, Environment: c.Environment, Logger: e.log,
	})
	if err != nil {
		return err
	}
	incarnation, err := e.incarnation(ctx)
	if err != nil {
		return err
	}
	attachments, err := file.NewService(file.Options{Files: e.store, Blobs: e.blobs})
	if err != nil {
		return err
	}
	follow := e.hints.Load()
	api, err := resolvers.New(resolvers.Options{
		Guard: guard, Agents: agents, Catalog: harnesses, Sessions: e.store, Runs: e.store, LogEpoch: incarnation,
		Control: e.coordinator, Events: e.store, Hub: follow.hub, Changes: follow.changes, Files: attachments, Logger: e.log,
		Feed: run.NewSessionFeed(run.SessionFeedOptions{Runs: e.store, Sessions: e.store, Hub: follow.hub, Changes: follow.changes}),
	})
	if err != nil {
		return err
	}
	e.edge, err = transport.NewServer(transport.Options{
		API: api, Files: attachments, Authenticator: e.tokens, AllowedOrigins: c.AllowedOrigin, Playground: c.Playground, Logger: e.log,
		Limits: transport.Limits{
			MaxSockets: c.MaxStreams, MaxCallerStreams: c.MaxCallerStreams, MaxExecuting: c.MaxOperations, MaxCallerActive: c.MaxCallerOperations,
		},
		Checks: []transport.Check{
			{Name: "store", Check: func(context.Context) error { return e.admit() }},
			{Name: "authorization", Check: fga.Ready},
		},
	})
	return err
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

// usage counts conversations for the report on a draft.
type usage struct{ sessions session.Store }

func (u usage) PinnedConversations(ctx context.Context, a agent.Agent, limit int) (int, error) {
	return u.sessions.PinnedSessions(ctx, a.Environment, a.ID, limit)
}
