package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/worker"
	"github.com/harness-engine/harness-engine/worker/folder"
)

// Defaults and times of a manager.
const (
	DefaultMaxSandboxes = 32
	DefaultIdleTime     = 30 * time.Second

	destroyTime   = 30 * time.Second
	shutDownTime  = 2 * time.Second
	retryAfterSec = 5
)

// Options configures a Manager.
type Options struct {
	Data         string // folder of sandboxes and states; made when it is missing
	Backends     map[string]Backend
	Profiles     []Profile // the first that serves a harness is taken
	MaxSandboxes int       // alive at a time; 0 is DefaultMaxSandboxes
	// IdleTime is how long a worker must have been idle before its place is given to another conversation when all are
	// taken; a fifteenth of it where none has been for so long. 0 is DefaultIdleTime.
	IdleTime     time.Duration
	BrokerSocket string // path of the broker's unix socket, handed to every worker; empty: there is none
	Log          *slog.Logger
}

// Manager keeps the sandboxes of one machine. Several managers may share a data folder, each in its own engine.
type Manager struct {
	o        Options
	runDir   string
	stateDir string

	mu       sync.Mutex
	live     map[string]bool // addresses that may have a worker
	starting map[string]bool // of these, the ones whose worker may not be there yet
}

// NewManager checks the options and looks for sandboxes that an earlier engine left.
func NewManager(o Options) (*Manager, error) {
	data, err := filepath.Abs(o.Data)
	if err != nil || o.Data == "" {
		return nil, errors.New("failed to make sandbox manager: no data folder")
	}
	if o.MaxSandboxes == 0 {
		o.MaxSandboxes = DefaultMaxSandboxes
	}
	if o.IdleTime == 0 {
		o.IdleTime = DefaultIdleTime
	}
	if len(o.Profiles) == 0 {
		return nil, errors.New("failed to make sandbox manager: no profile")
	}
	profiles := make([]Profile, len(o.Profiles))
	for i, p := range o.Profiles {
		if profiles[i], err = p.normalised(o.Backends); err != nil {
			return nil, err
		}
	}
	o.Profiles = profiles
	if o.BrokerSocket != "" {
		if o.BrokerSocket, err = filepath.Abs(o.BrokerSocket); err != nil {
			return nil, fmt.Errorf("failed to make sandbox manager: %w", err)
		}
	}
	m := &Manager{o: o, runDir: filepath.Join(data, "sbx"), stateDir: filepath.Join(data, "state"),
		live: map[string]bool{}, starting: map[string]bool{}}
	for what, path := range map[string]string{
		"sandbox": m.spec(address(harness.Binding{})).Socket, "broker": o.BrokerSocket,
	} {
		if over := len(path) - worker.MaxSocketPath; over > 0 {
			return nil, fmt.Errorf("failed to make sandbox manager: the path of the %s socket is %d bytes too long for a unix socket (at most %d); choose a shorter data folder",
				what, over, worker.MaxSocketPath)
		}
	}
	for _, dir := range []string{m.runDir, m.stateDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("failed to make sandbox manager: %w", err)
		}
		// The folder may be older than this rule.
		if err := os.Chmod(dir, 0o700); err != nil {
			return nil, fmt.Errorf("failed to make sandbox manager: %w", err)
		}
	}
	found, err := m.List(context.Background())
	if err != nil {
		return nil, err
	}
	for _, addr := range found {
		m.live[addr] = true
	}
	return m, nil
}

func (m *Manager) spec(addr string) Spec {
	dir := filepath.Join(m.runDir, addr)
	return Spec{Addr: addr, Dir: dir, Socket: filepath.Join(dir, "s"), SecretFile: filepath.Join(dir, "secret")}
}

// Reserve names the sandbox of a binding: the same binding, the same address. Nothing is made.
func (m *Manager) Reserve(b harness.Binding) string { return address(b) }

// Start makes the sandbox, starts its worker and binds it. It returns a problem with code CAPACITY when the machine
// is full, HARNESS_UNAVAILABLE when the worker or the harness does not come up, and harness.ErrConflict when the
// sandbox has a living worker: whoever started it may be another engine, so it is not ended here. What a dead one left is
// removed. After any other error nothing is left.
//
// The worker begins with the thread state of head: the state folder of the conversation's epoch is emptied and filled from
// it, and the workspace stays. Nil is no state: a harness whose state is committed then begins with an empty folder, any
// other with what the worker before left. An error of head's own is returned as it is, wrapped.
func (m *Manager) Start(ctx context.Context, b harness.Binding, leaseGen int64, addr string, c harness.Construction, head *harness.Snapshot) (harness.Runtime, error) {
	if addr != address(b) {
		return nil, fmt.Errorf("failed to start sandbox %.32q: %w: it is not the address of the binding", addr, harness.ErrConflict)
	}
	profile, backend, err := m.choose(c.Harness)
	if err != nil {
		return nil, err
	}
	s := m.spec(addr)
	s.OrphanTTL, s.ParkedTTL = profile.OrphanTTL, profile.ParkedTTL
	if s.State, s.Workspace, err = m.folders(b); err != nil {
		return nil, err
	}
	epoch := filepath.Dir(s.State)
	s.Lock, s.Owner, s.Claim = filepath.Join(epoch, lockFile), filepath.Join(epoch, ownerFile), claimOf(b)
	defer m.begin(addr)()
	if err := m.claim(ctx, addr); err != nil {
		return nil, err
	}
	if err := m.own(ctx, b, epoch); err != nil {
		m.release(addr)
		return nil, err
	}
	if err := m.makeDir(ctx, s, leaseGen); err != nil {
		return nil, fmt.Errorf("failed to start sandbox %s: %w", addr, err)
	}
	begin := time.Now()
	r, err := m.launch(ctx, s, profile, backend, b, leaseGen, c, head)
	if err != nil {
		level := slog.LevelError
		if ctx.Err() != nil { // the run was cancelled, or the engine ends
			level = slog.LevelInfo
		}
		m.o.Log.Log(ctx, level, "failed to start sandbox", "sandbox", addr, "error", err)
		return nil, m.undo(ctx, s, backend, b, leaseGen, err)
	}
	m.o.Log.Info("sandbox is ready", "sandbox", addr, "instance", r.Instance(), "took", time.Since(begin))
	return r, nil
}

// undo removes what a failed start left, and returns why it failed: harness.ErrStaleLease when another engine has taken
// the worker over meanwhile. Then it is not this one's to end.
func (m *Manager) undo(ctx context.Context, s Spec, backend Backend, b harness.Binding, leaseGen int64, failure error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTime)
	defer cancel()
	err := m.shutDown(ctx, s, backend, b, leaseGen)
	if !errors.Is(err, harness.ErrStaleLease) {
		err = m.end(ctx, s.Addr, leaseGen, false)
	}
	if errors.Is(err, harness.ErrStaleLease) {
		return fmt.Errorf("failed to start sandbox %s: %w", s.Addr, errors.Join(err, failure))
	}
	if err != nil {
		m.o.Log.Error("failed to clean up after a failed start", "sandbox", s.Addr, "error", err)
	}
	return failure
}

// shutDown asks the worker itself, for as long as one that is well needs to answer.
func (m *Manager) shutDown(ctx context.Context, s Spec, backend Backend, b harness.Binding, leaseGen int64) error {
	ctx, cancel := context.WithTimeout(ctx, shutDownTime)
	defer cancel()
	client, err := m.dial(ctx, s, backend, b, leaseGen)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return client.Shutdown(ctx)
}

// makeDir makes the sandbox's folder, with the lease in it.
func (m *Manager) makeDir(ctx context.Context, s Spec, leaseGen int64) error {
	err := os.Mkdir(s.Dir, 0o700)
	if err == nil {
		err = holdLease(ctx, s, leaseGen)
	}
	if !errors.Is(err, os.ErrExist) {
		if err != nil {
			m.release(s.Addr)
		}
		return err
	}
	if _, err := m.backendOf(s); !errors.Is(err, harness.ErrGone) {
		return fmt.Errorf("%w: it has a living worker", harness.ErrConflict)
	}
	if err := m.end(ctx, s.Addr, leaseGen, false); err != nil {
		return err
	}
	m.occupy(s.Addr)
	if err := os.Mkdir(s.Dir, 0o700); err != nil {
		return err
	}
	return holdLease(ctx, s, leaseGen)
}

func (m *Manager) launch(ctx context.Context, s Spec, p Profile, backend Backend, b harness.Binding, leaseGen int64, c harness.Construction, head *harness.Snapshot) (harness.Runtime, error) {
	if err := writeSecret(s.SecretFile); err != nil {
		return nil, fmt.Errorf("failed to start sandbox %s: %w", s.Addr, err)
	}
	launching, cancel := context.WithTimeout(ctx, p.StartTimeout)
	defer cancel()
	if err := backend.Launch(launching, s); err != nil {
		return nil, unavailable("the worker could not be started", ctx, err)
	}
	client, err := m.dial(launching, s, backend, b, leaseGen)
	if err != nil {
		return nil, unavailable("the worker could not be reached", ctx, err)
	}
	if head != nil && head.Rev > 0 {
		if err := restore(ctx, client, *head); err != nil {
			_ = client.Close()
			return nil, err
		}
	}
	if err := client.Bind(ctx, worker.BindRequest{Construction: &c, BrokerSocket: m.o.BrokerSocket, Limits: p.Limits}); err != nil {
		_ = client.Close()
		var e *worker.Error
		if errors.As(err, &e) && e.Code == worker.CodeOpenFailed {
			return nil, unavailable(e.Message, ctx, err)
		}
		return nil, unavailable("the worker could not be bound", ctx, err)
	}
	return client, nil
}

// restore tells what is wrong with the state apart from what is wrong with the worker.
func restore(ctx context.Context, client *worker.Client, head harness.Snapshot) error {
	err := client.Restore(ctx, head)
	var e *worker.Error
	if err == nil || !errors.As(err, &e) && !errors.Is(err, harness.ErrUnreachable) {
		return err
	}
	return unavailable("the thread state could not be restored", ctx, err)
}

// unavailable is what a client may see of a failed start. The caller's own cancellation stays what it is.
func unavailable(message string, ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("failed to start sandbox: %w", context.Cause(ctx))
	}
	return problem.New(problem.HarnessUnavailable, "%s", message).Because(err)
}

// Attach takes over the running worker of a binding with a lease generation. It returns harness.ErrGone when there is
// no such worker any more, harness.ErrUnreachable when there is one that does not answer, harness.ErrStaleLease and
// harness.ErrConflict as the worker says.
func (m *Manager) Attach(ctx context.Context, b harness.Binding, leaseGen int64, addr string) (harness.Runtime, error) {
	if addr != address(b) {
		return nil, fmt.Errorf("failed to attach to sandbox %.32q: %w: it is not the address of the binding", addr, harness.ErrConflict)
	}
	s := m.spec(addr)
	backend, err := m.backendOf(s)
	if err != nil {
		return nil, fmt.Errorf("failed to attach to sandbox %s: %w", addr, err)
	}
	if err := holdLease(ctx, s, leaseGen); err != nil {
		return nil, fmt.Errorf("failed to attach to sandbox %s: %w", addr, err)
	}
	client, err := m.dial(ctx, s, backend, b, leaseGen)
	if err == nil {
		if err = client.Attach(ctx, m.o.BrokerSocket); err == nil {
			return client, nil
		}
		_ = client.Close()
	}
	if errors.Is(err, harness.ErrUnreachable) {
		if alive, e := backend.Alive(s); e == nil && !alive {
			return nil, fmt.Errorf("failed to attach to sandbox %s: %w: it ended meanwhile", addr, harness.ErrGone)
		}
	}
	return nil, fmt.Errorf("failed to attach to sandbox %s: %w", addr, err)
}

// backendOf finds the backend whose worker runs in the sandbox, or harness.ErrGone.
func (m *Manager) backendOf(s Spec) (Backend, error) {
	for _, backend := range m.o.Backends {
		alive, err := backend.Alive(s)
		if err != nil {
			return nil, err
		}
		if alive {
			return backend, nil
		}
	}
	return nil, harness.ErrGone
}

func (m *Manager) dial(ctx context.Context, s Spec, backend Backend, b harness.Binding, leaseGen int64) (*worker.Client, error) {
	secret, err := readSecret(s.SecretFile)
	if err != nil {
		return nil, err
	}
	return worker.Dial(ctx, worker.ClientOptions{
		Socket: s.Socket, Secret: secret, Binding: b, LeaseGen: leaseGen, Isolation: backend.Isolation(),
	})
}

// Destroy ends the worker, everything that it started, and its folder. State and workspace stay. The worker is asked first, and
// given its time. harness.ErrStaleLease, and nothing is ended, where an engine with a higher lease generation has attached to it.
// It is idempotent.
func (m *Manager) Destroy(ctx context.Context, addr string, leaseGen int64) error {
	return m.end(ctx, addr, leaseGen, true)
}

// Kill is Destroy without a word to the worker: for one that does not answer, or that is not to go on for a moment.
func (m *Manager) Kill(ctx context.Context, addr string, leaseGen int64) error {
	return m.end(ctx, addr, leaseGen, false)
}

func (m *Manager) end(ctx context.Context, addr string, leaseGen int64, ask bool) error {
	if !addrPattern.MatchString(addr) {
		return fmt.Errorf("failed to destroy sandbox %.32q: not an address", addr)
	}
	s := m.spec(addr)
	if err := endLease(ctx, s, leaseGen); err != nil {
		return fmt.Errorf("failed to destroy sandbox %s: %w", addr, err)
	}
	for name, backend := range m.o.Backends {
		if err := backend.Kill(ctx, s, ask); err != nil {
			return fmt.Errorf("failed to destroy sandbox %s (%s): %w", addr, name, err)
		}
	}
	if err := folder.Remove(s.Dir); err != nil {
		return fmt.Errorf("failed to destroy sandbox %s: %w", addr, err)
	}
	m.release(addr)
	return nil
}

// Leases gives the sandboxes that have a folder, alive or not, each with the highest lease generation that has used it. An
// engine that starts compares them with the bindings and destroys what belongs to none, under the lease that it saw: what
// another engine has attached to since is not ended.
func (m *Manager) Leases(ctx context.Context) (map[string]int64, error) {
	all, err := m.List(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]int64, len(all))
	for _, addr := range all {
		r, err := readLease(m.spec(addr).Dir)
		if err != nil {
			return nil, fmt.Errorf("failed to list sandboxes: %w", err)
		}
		out[addr] = r.gen
	}
	return out, nil
}

// List names the sandboxes that have a folder, alive or not.
func (m *Manager) List(context.Context) ([]string, error) {
	entries, err := os.ReadDir(m.runDir)
	if err != nil {
		return nil, fmt.Errorf("failed to list sandboxes: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && addrPattern.MatchString(e.Name()) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

func (m *Manager) choose(harnessID string) (Profile, Backend, error) {
	for _, p := range m.o.Profiles {
		if p.serves(harnessID) {
			return p, m.o.Backends[p.Backend], nil
		}
	}
	return Profile{}, nil, problem.New(problem.HarnessUnavailable, "no sandbox profile serves this harness")
}

func writeSecret(path string) error {
	if err := os.WriteFile(path, []byte(rand.Text()+rand.Text()+"\n"), 0o600); err != nil {
		return fmt.Errorf("failed to write secret: %w", err)
	}
	return nil
}

func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", harness.ErrGone
	}
	if err != nil {
		return "", fmt.Errorf("failed to read secret: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return "", fmt.Errorf("failed to read secret: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}
