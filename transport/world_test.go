package transport_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/engine/agent"
	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/catalog"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/openfga"
	"github.com/harness-engine/harness-engine/resolvers"
	"github.com/harness-engine/harness-engine/store/files"
	"github.com/harness-engine/harness-engine/store/sqlite"
	"github.com/harness-engine/harness-engine/transport"
	"github.com/harness-engine/harness-engine/transport/auth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	environment = "test"
	epoch       = "log_test"  // of the logs
	mark        = ".a32920aa" // that ids end in, for that epoch
)

// facts reads the committed documents for the guard, past the spy: the one read that a check may do.
type facts struct{ store *sqlite.Store }

func (f facts) Ownership(ctx context.Context, o authz.Object) (authz.Ownership, bool, error) {
	sessionID := o.ID
	if o.Type == authz.TypeRun {
		r, err := f.store.Run(ctx, o.ID)
		if errors.Is(err, run.ErrNotFound) {
			return authz.Ownership{}, false, nil
		}
		if err != nil {
			return authz.Ownership{}, false, err
		}
		sessionID = r.SessionID
	}
	b, err := f.store.Session(ctx, sessionID)
	if errors.Is(err, session.ErrNotFound) {
		return authz.Ownership{}, false, nil
	}
	return authz.Ownership{Environment: b.Key.Environment, Owner: b.Key.Subject, AgentID: b.Key.AgentID, SessionID: b.ID}, err == nil, err
}

// conversations counts none.
type conversations struct{}

func (conversations) PinnedConversations(context.Context, agent.Agent, int) (int, error) {
	return 0, nil
}

// adapter is a harness for the catalog.
type adapter struct{ id string }

func (a adapter) Descriptor() harness.Descriptor {
	return harness.Descriptor{
		ID: a.id, DisplayName: "Harness " + a.id, Description: "For tests.", AdapterVersion: "1.0.0", HarnessVersion: "2.0.0",
		ContractVersions: []int{harness.ContractVersion}, ExecutionMode: harness.ExecutionSandbox, TrustBoundary: "process",
		OptionsSchema: json.RawMessage(`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"temperature":{"type":"number"}},"additionalProperties":false}`),
		Models:        []harness.Model{{Provider: "anthropic", ID: "claude", Name: "Claude"}},
		Capabilities: map[harness.Capability]harness.Level{harness.StreamText: harness.Native, harness.RuntimeCancel: harness.Native, harness.SessionMultiTurn: harness.Native,
			harness.InterruptFormInput: harness.Native, harness.InterruptToolApproval: harness.Native, harness.InputDocuments: harness.Native},
		SupplyChain: harness.SupplyChain{Packages: []string{"x@1.0.0"}, Licence: "MIT", NetworkBehaviour: "none"},
	}
}
func (adapter) Probe(context.Context) harness.Probe {
	return harness.Probe{Availability: harness.Available, Detail: "ready", HarnessVersion: "2.0.0"}
}

type capabilities struct{}

func (capabilities) Mint(harness.Binding, string, time.Time) (string, error) {
	return "capability", nil
}

// world is the edge on real parts: SQLite, an OpenFGA server, the catalog, the agent service, the coordinator, the hub.
type world struct {
	t        *testing.T
	ctx      context.Context
	cancel   context.CancelFunc
	spy      *spy
	client   *openfga.Client
	server   *openfga.Embedded
	dev      *auth.Dev
	edge     *transport.Server
	http     *httptest.Server
	hub      *event.Hub
	agents   *agent.Service
	runs     *run.Coordinator
	readyErr error
	dir      string // everything that is stored
	changes  *session.Changes
	gate     *gate // of what the server writes
}

// option changes how a world is made.
type option struct {
	limits  transport.Limits
	api     resolvers.Limits
	maxAge  time.Duration
	origins []string
}

// patience bounds what a test waits for; nothing takes as long unless it is broken.
const patience = time.Minute

func newWorld(t *testing.T, o option) *world {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, ctx: ctx, cancel: cancel, dir: dir}
	store, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(dir, "engine.sqlite"), ReserveBytes: -1, Logger: quiet})
	must(err)
	t.Cleanup(func() { _ = store.Close() })
	w.spy = &spy{Store: store}
	w.server, err = openfga.StartEmbedded(ctx, openfga.EmbeddedOptions{Path: filepath.Join(dir, "authz.db"), RequestTimeout: patience, Logger: quiet})
	must(err)
	t.Cleanup(func() { _ = w.server.Close(context.Background()) })
	w.client, err = openfga.NewClient(ctx, openfga.ClientOptions{Endpoint: w.server.Endpoint(), Token: w.server.Token(), Timeout: patience, Logger: quiet})
	must(err)
	t.Cleanup(w.client.Close)
	must(w.client.Apply(ctx, authz.Platform(), authz.PlatformTuples([]string{"ada"}, []string{"alice", "bob", "rita"}, false)))

	guard, err := authz.NewGuard(authz.GuardOptions{Checker: w.client, Facts: facts{store}, Environment: environment, Logger: quiet, MaxAge: o.maxAge})
	must(err)
	cat, err := catalog.New(ctx, catalog.Options{Adapters: []harness.Adapter{adapter{"scripted"}, adapter{"other"}}, Policy: catalog.Policy{AllowExperimental: true}, Logger: quiet})
	must(err)
	w.agents, err = agent.NewService(agent.Options{Store: w.spy, Reviewer: cat, Tuples: w.client, Usage: conversations{}, Logger: quiet})
	must(err)
	w.hub = event.NewHub(event.HubOptions{Log: w.spy, Poll: 50 * time.Millisecond, Logger: quiet})
	t.Cleanup(w.hub.Close)
	blobs, err := files.Open(ctx, files.Options{Folder: filepath.Join(dir, "blobs"), Logger: quiet})
	must(err)
	t.Cleanup(func() { _ = blobs.Close() })
	w.changes = session.NewChanges(session.ChangesOptions{Sessions: w.spy, Poll: time.Hour, Logger: quiet})
	t.Cleanup(w.changes.Close)
	w.runs = run.New(run.Options{
		Runs: w.spy, Sessions: w.spy, Events: w.spy, Publish: w.hub.Publish, Agents: w.agents, Harnesses: cat, Workers: &host{turns: map[string]*turn{}},
		Capabilities: capabilities{}, Authz: w.client, Secret: make([]byte, 32), Boot: id.New(id.Boot), Changed: w.changes.Publish, Blobs: blobs, Log: quiet,
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.runs.Drain(ctx); err != nil {
			t.Errorf("drain: %v", err)
		}
	})
	attachments, err := file.NewService(file.Options{Files: w.spy, Blobs: blobs})
	must(err)
	api, err := resolvers.New(resolvers.Options{
		LogEpoch: epoch, Guard: guard, Agents: w.agents, Catalog: cat, Sessions: w.spy, Runs: w.spy, Control: w.runs, Events: w.spy, Hub: w.hub, Changes: w.changes, Files: attachments,
		Feed:   run.NewSessionFeed(run.SessionFeedOptions{Runs: w.spy, Sessions: w.spy, Hub: w.hub, Changes: w.changes}),
		Limits: o.api, Logger: quiet,
	})
	must(err)
	w.dev, err = auth.NewDev(auth.DevOptions{KeyFile: filepath.Join(dir, "token.key"), Environment: environment})
	must(err)
	w.edge, err = transport.NewServer(transport.Options{
		API: api, Files: attachments, Authenticator: w.dev, AllowedOrigins: o.origins, Playground: true, Limits: o.limits, Logger: quiet,
		Checks: []transport.Check{
			{Name: "store", Check: func(context.Context) error { return w.readyErr }},
			{Name: "authorization", Check: func(context.Context) error { return nil }},
		},
	})
	must(err)
	w.http = httptest.NewUnstartedServer(nil)
	w.http.Config = w.edge.HTTP("")
	w.gate = &gate{shut: map[string]bool{}}
	w.gate.changed.L = &w.gate.mu
	w.http.Listener = gated{w.http.Listener, w.gate}
	w.http.Start()
	t.Cleanup(func() {
		w.edge.Drain()
		w.http.Close()
		w.http.Client().CloseIdleConnections()
	})
	return w
}

func (w *world) token(subject string) string {
	w.t.Helper()
	token, err := w.dev.MintDev(subject, time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

// reply is a GraphQL response.
type reply struct {
	status int
	Data   map[string]any
	Errors []struct {
		Message    string
		Path       []any
		Extensions map[string]any
	}
}

// code is the first error's; empty without an error.
func (r reply) code() string {
	if len(r.Errors) == 0 {
		return ""
	}
	code, _ := r.Errors[0].Extensions["code"].(string)
	return code
}

func (r reply) field() string {
	if len(r.Errors) == 0 {
		return ""
	}
	field, _ := r.Errors[0].Extensions["field"].(string)
	return field
}

// at walks the data by keys and indexes.
func (r reply) at(path ...any) any {
	var v any = r.Data
	for _, step := range path {
		switch s := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[s]
		case int:
			l, _ := v.([]any)
			if s >= len(l) {
				return nil
			}
			v = l[s]
		}
	}
	return v
}

type vars map[string]any

// ask sends an operation as the subject; nobody for "".
func (w *world) ask(subject, query string, v vars) reply {
	w.t.Helper()
	body, err := json.Marshal(map[string]any{"query": query, "variables": v})
	if err != nil {
		w.t.Fatal(err)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if subject != "" {
		header.Set("Authorization", "Bearer "+w.token(subject))
	}
	return w.send(http.MethodPost, "/graphql", header, string(body))
}

func (w *world) send(method, path string, header http.Header, body string) reply {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.ctx, method, w.http.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header = header
	resp, err := w.http.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	r := reply{status: resp.StatusCode}
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		w.t.Fatalf("%s %s: %d: %v", method, path, resp.StatusCode, err)
	}
	return r
}

// must is ask for an operation that has to go well.
func (w *world) must(subject, query string, v vars) reply {
	w.t.Helper()
	r := w.ask(subject, query, v)
	if len(r.Errors) > 0 {
		w.t.Fatalf("%s: %+v", query, r.Errors)
	}
	return r
}

const saveAgent = `mutation($input: SaveAgentInput!) { saveAgent(input: $input) {
	__typename
	... on SaveAgentSuccess { agent { id revision version harnessId } version { number fingerprint } }
	... on Problem { code message }
	... on ValidationFailed { report { issues { path code } } }
	... on ValidationStale { report { fingerprint } }
	... on RevisionConflict { currentRevision }
} }`

func draft(slug string) vars {
	return vars{"name": "Helper", "slug": slug, "harness": vars{"id": "scripted"}, "prompt": vars{"system": "Be kind."}}
}

// agent saves a new agent and returns its id.
func (w *world) agent(subject, slug string) string {
	w.t.Helper()
	r := w.must(subject, saveAgent, vars{"input": vars{"draft": draft(slug)}})
	saved, _ := r.at("saveAgent", "agent", "id").(string)
	if saved == "" {
		w.t.Fatalf("not saved: %v", r.Data)
	}
	return saved
}

const startRun = `mutation($input: StartRunInput!) { startRun(input: $input) {
	__typename
	... on StartRunSuccess { run { id status sessionId agentId input { text } } }
	... on Problem { code message }
	... on SessionBusy { activeRunId activeRun { id } }
	... on CapacityExhausted { retryAfterSeconds }
} }`

// start starts a run and returns its id and its session's.
func (w *world) start(subject, agentID, conversation, text string) (runID, sessionID string) {
	w.t.Helper()
	r := w.must(subject, startRun, vars{"input": vars{"agentId": agentID, "conversationId": conversation, "message": vars{"text": text}}})
	runID, _ = r.at("startRun", "run", "id").(string)
	sessionID, _ = r.at("startRun", "run", "sessionId").(string)
	if runID == "" {
		w.t.Fatalf("not started: %v", r.Data)
	}
	return runID, sessionID
}

// log is a run whose events the test writes: a document in the store with a log of its own.
type log struct {
	w       *world
	id      string
	session string
	writer  *event.Writer
}

func (w *world) log(subject, agentID string) *log {
	w.t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	key := session.Key{Environment: environment, Subject: subject, AgentID: agentID, ConversationID: id.New("cnv")}
	b := session.New(id.New(id.Session), key, session.Op{ID: id.New("op"), Now: now})
	if err := w.spy.Store.InsertSession(w.ctx, b); err != nil {
		w.t.Fatal(err)
	}
	r := run.Run{
		ID: id.New(id.Run), Rev: 1, Status: run.StatusRunning, Environment: environment, Subject: subject, SessionID: b.ID, Epoch: b.Epoch,
		Ord: 1, AgentID: agentID, AgentVersion: 1, Harness: "scripted", Input: run.Input{Text: "hello"}, CreatedAt: now,
	}
	if err := w.spy.Store.InsertRun(w.ctx, r); err != nil {
		w.t.Fatal(err)
	}
	writer, err := event.OpenWriter(w.ctx, event.WriterConfig{
		Log: w.spy.Store, Publish: w.hub.Publish, RunID: r.ID, SessionID: b.ID, Gen: 1, Nonce: "test", Bounds: event.DefaultBounds(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return &log{w: w, id: r.ID, session: b.ID, writer: writer}
}

func (l *log) append(data ...event.Data) {
	l.w.t.Helper()
	events := make([]event.Event, len(data))
	for i, d := range data {
		events[i] = event.Event{Data: d}
	}
	if _, err := l.writer.Append(l.w.ctx, event.Batch{Events: events}); err != nil {
		l.w.t.Fatal(err)
	}
}

func started() event.Data {
	return event.RunStarted{Harness: "scripted", AdapterVersion: "1.0.0", AgentVersion: 1}
}

func finished() event.Data {
	return event.RunFinished{Outcome: "success", StopReason: "end_turn", Thread: event.ThreadState{Durability: event.DurabilityLocal}}
}
