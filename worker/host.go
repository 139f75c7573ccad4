package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/id"
)

// Times of a host's life.
const (
	DefaultOrphanTTL = 15 * time.Minute

	openTime           = 2 * time.Minute // for a driver to open
	closeTime          = 5 * time.Second // for a driver to close
	defaultCancelGrace = 10 * time.Second
	maxCancelGrace     = 10 * time.Minute
	shutdownGrace      = 5 * time.Second // for an active turn to end at shutdown
)

// HostOptions configures a Host.
type HostOptions struct {
	Drivers   map[string]func() Driver // by harness id
	Workspace string                   // folder of the agent's files; must exist
	State     string                   // folder of the harness's state; must exist
	Scratch   string                   // folder for packed thread states; must exist; empty: the folder for temporary files
	Mark      string                   // names the sandbox in the environment of its processes
	OrphanTTL time.Duration            // without any call or open stream; 0 means DefaultOrphanTTL
	ParkedTTL time.Duration            // the same while an interrupted turn is parked; 0 means DefaultParkedTTL
	Record    string                   // folder of records for tests, see RecordVariable; empty: nothing is recorded
	Log       *slog.Logger
}

// Host serves one binding with one driver for as long as its process lives. It ends by Stop, or by itself when no
// engine looks after it.
type Host struct {
	o          HostOptions
	instance   string
	tree       *ProcessTree
	facade     *facade
	attendance *attendance
	life       context.Context // ends when the host stops
	endLife    context.CancelFunc
	watching   sync.WaitGroup
	stopOnce   sync.Once
	done       chan struct{}

	mu      sync.Mutex
	state   state
	binding harness.Binding
	lease   int64
	fenced  chan struct{} // closed when the lease changes hands
	built   [32]byte      // digest of the construction
	harness string
	limits  Limits
	opened  chan struct{} // closed when opening has ended
	openErr *Error
	driver  Driver
	runs    map[string]*turn
	kept    []*turn // ended turns whose journal is still there, oldest first
	active  *turn
	stuck   bool // a driver did not return: it cannot take another turn
	thread  thread

	interrupted string        // run that ended last, where an interrupt ended it
	abandoning  chan struct{} // what was parked for it is being ended, until this is closed
}

type state int

const (
	unbound   state = iota
	restoring       // the state folder is being filled
	opening
	bound
	failed  // the driver could not be opened
	closing // Stop was called
)

// Caller is who calls: for whom, and with which right.
type Caller struct {
	Binding  harness.Binding
	LeaseGen int64
}

// NewHost starts a host. There is at most one in a process, because it owns the process's children.
func NewHost(o HostOptions) (*Host, error) {
	if o.OrphanTTL == 0 {
		o.OrphanTTL = DefaultOrphanTTL
	}
	if o.ParkedTTL == 0 {
		o.ParkedTTL = DefaultParkedTTL
	}
	o.Scratch = scratchDir(o.Scratch)
	h := &Host{
		o: o, instance: id.New(id.Worker),
		done: make(chan struct{}), fenced: make(chan struct{}), runs: map[string]*turn{},
	}
	h.attendance = newAttendance(o.OrphanTTL, max(o.OrphanTTL, o.ParkedTTL), h.parks)
	var err error
	if h.facade, err = newFacade(o.Log); err != nil {
		return nil, err
	}
	if h.tree, err = NewProcessTree(TreeOptions{Mark: o.Mark, Log: o.Log}); err != nil {
		h.facade.close()
		return nil, err
	}
	h.life, h.endLife = context.WithCancel(context.Background())
	h.watching.Add(1)
	go func() {
		defer h.watching.Done()
		if h.attendance.orphaned(h.life) {
			o.Log.Warn("no engine looked after this worker", "for", o.OrphanTTL)
			go h.Stop()
		}
	}()
	return h, nil
}

// Instance is the incarnation of this worker.
func (h *Host) Instance() string { return h.instance }

// Done is closed when the host has stopped and nothing of its process tree is left.
func (h *Host) Done() <-chan struct{} { return h.done }

// Ready describes the host.
func (h *Host) Ready() Ready {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := Ready{
		ProtocolVersions: []int{ProtocolVersion}, Instance: h.instance,
		Harnesses: slices.Sorted(maps.Keys(h.o.Drivers)),
	}
	if h.state == bound || h.state == opening {
		r.Bound = &Bound{Binding: h.binding, LeaseGen: h.lease, Harness: h.harness}
	}
	if h.active != nil {
		r.ActiveRun = h.active.spec.RunID
	}
	r.ParkedRun = h.parkedRun()
	return r
}

// enter checks the caller and adopts a higher lease. The caller holds h.mu, and does what it came for before it lets
// go: between the check and the effect no other lease can come.
func (h *Host) enter(c Caller) *Error {
	switch h.state {
	case unbound, restoring, failed:
		return &Error{Code: CodeNotBound, Message: "this worker serves no binding"}
	}
	b := h.binding
	switch {
	case c.Binding.SessionID != b.SessionID || c.Binding.Epoch != b.Epoch:
		return &Error{Code: CodeWrongBinding, Message: "this worker serves another session or epoch"}
	case c.Binding.SandboxGen != b.SandboxGen:
		return &Error{Code: CodeWrongGeneration, Message: "this worker is another sandbox generation"}
	case c.LeaseGen < h.lease:
		return &Error{Code: CodeStaleLease, Message: "an engine with a higher lease generation serves this binding"}
	case c.LeaseGen > h.lease:
		h.lease = c.LeaseGen
		close(h.fenced)
		h.fenced = make(chan struct{})
	}
	h.attendance.touch()
	return nil
}

// work is enter for calls that start or change something, which a stopping host refuses.
func (h *Host) work(c Caller) *Error {
	if err := h.enter(c); err != nil {
		return err
	}
	if h.state == closing {
		return &Error{Code: CodeClosing, Message: "this worker is stopping"}
	}
	return nil
}

// Bind makes the host serve the caller's binding, or attaches the caller to it when it does already. It returns when
// the driver is open; the opening goes on when ctx ends.
func (h *Host) Bind(ctx context.Context, c Caller, r BindRequest) error {
	if err := r.validate(); err != nil {
		return err
	}
	opened, err := h.bind(c, r)
	if err != nil {
		return err
	}
	select {
	case <-opened:
	case <-ctx.Done():
		return ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.openErr != nil {
		return h.openErr
	}
	return nil
}

func (h *Host) bind(c Caller, r BindRequest) (<-chan struct{}, error) {
	digest, err := constructionDigest(r.Construction)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == failed {
		return nil, h.openErr
	}
	if h.state == restoring {
		return nil, &Error{Code: CodeBusy, Message: "a thread state is being restored"}
	}
	if h.state != unbound {
		if err := h.work(c); err != nil {
			return nil, err
		}
		if r.Construction != nil && digest != h.built {
			return nil, &Error{Code: CodeConflict, Message: "this worker was built from another construction"}
		}
		h.facade.setBroker(r.BrokerSocket)
		return h.opened, nil
	}
	if r.Construction == nil {
		return nil, &Error{Code: CodeNotBound, Message: "this worker serves no binding"}
	}
	newDriver, ok := h.o.Drivers[r.Construction.Harness]
	if !ok {
		return nil, &Error{Code: CodeBadRequest, Field: "construction.harness", Message: "this worker cannot drive the harness"}
	}
	h.state, h.binding, h.lease, h.built = opening, c.Binding, c.LeaseGen, digest
	h.harness, h.limits, h.opened = r.Construction.Harness, r.Limits.normalised(), make(chan struct{})
	h.facade.setBroker(r.BrokerSocket)
	h.attendance.touch()
	go h.open(newDriver(), *r.Construction)
	return h.opened, nil
}

func (h *Host) open(d Driver, c harness.Construction) {
	defer close(h.opened)
	ctx, cancel := context.WithTimeout(h.life, openTime)
	defer cancel()
	begin := time.Now()
	err := guarded(func() error {
		if err := h.prepare(d); err != nil {
			return err
		}
		return d.Open(ctx, Environment{
			Workspace: h.o.Workspace, State: h.o.State, ModelURL: h.facade.url(), Tree: h.tree, Log: h.o.Log,
		}, c)
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.o.Log.Info("driver is open", "harness", c.Harness, "took", time.Since(begin))
		h.driver = d
		if h.state == opening {
			h.state = bound
		}
		return
	}
	h.o.Log.Error("failed to open driver", "harness", c.Harness, "error", err)
	h.openErr = &Error{Code: CodeOpenFailed, Message: "the harness could not be opened"}
	if f := new(Failure); errors.As(err, &f) && f.Message != "" {
		h.openErr.Message = f.Message
	}
	if h.state == opening {
		h.state = failed
	}
}

// guarded turns a panic of a driver into an error.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("driver panicked: %v", p)
		}
	}()
	return f()
}

// constructionDigest names a construction by its content, however its JSON is spelled.
func constructionDigest(c *harness.Construction) ([32]byte, error) {
	if c == nil {
		return [32]byte{}, nil
	}
	plain := *c
	if plain.Options != nil {
		var v any
		dec := json.NewDecoder(bytes.NewReader(plain.Options))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			return [32]byte{}, &Error{Code: CodeBadRequest, Field: "construction.options", Message: "not valid JSON"}
		}
		plain.Options, _ = json.Marshal(v)
	}
	raw, err := json.Marshal(plain)
	if err != nil {
		return [32]byte{}, fmt.Errorf("failed to digest construction: %w", err)
	}
	return sha256.Sum256(raw), nil
}

// mayStop checks a caller that wants to stop the host; it then begins to refuse work. An unbound host may be stopped by
// whoever knows the secret. With a time, the host must have been idle for as long: no turn, no stream, no call, and nothing
// that only this process has: a parked turn, or a state that is not committed yet. The caller's own call does not count.
func (h *Host) mayStop(c Caller, idle time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if idle > 0 {
		if h.active != nil || h.state == opening || h.state == restoring || h.attendance.idle() < idle {
			return &Error{Code: CodeBusy, Message: "this worker is not idle"}
		}
		if h.parkedRun() != "" || h.abandoning != nil || h.thread.last.uncommitted() && h.thread.last.err == nil {
			return &Error{Code: CodeBusy, Message: "this worker holds what nobody else has"}
		}
	}
	if h.state == opening || h.state == bound {
		if err := h.enter(c); err != nil {
			return err
		}
	}
	h.state = closing
	return nil
}

// Stop ends the active turn as cancelled by shutdown, closes the driver and ends the process tree, all in bounded
// time. It may be called several times; each call returns when the host has stopped.
func (h *Host) Stop() {
	h.stopOnce.Do(h.stop)
	<-h.done
}

func (h *Host) stop() {
	h.mu.Lock()
	h.state = closing
	active, opened, parked := h.active, h.opened, h.abandoning
	h.mu.Unlock()
	if active != nil {
		active.cancel(&Cancelled{Reason: event.CancelShutdown})
		select {
		case <-active.ended:
		case <-time.After(shutdownGrace):
			_ = h.tree.KillAll()
			active.giveUp()
			<-active.ended
		}
	}
	h.endLife() // which ends an opening, too
	if opened != nil {
		select {
		case <-opened:
		case <-time.After(closeTime):
			h.o.Log.Warn("driver did not stop opening in time")
		}
	}
	if parked != nil {
		<-parked
	}
	h.mu.Lock()
	d, stuck := h.driver, h.stuck
	h.mu.Unlock()
	if d != nil && !stuck {
		h.closeDriver(d)
	}
	h.facade.close()
	if err := h.tree.Close(); err != nil {
		h.o.Log.Error("failed to end process tree", "error", err)
	}
	h.watching.Wait()
	h.dropPacked()
	close(h.done)
}

// Abandon ends the process tree at once and without a word to anybody. The process has to exit right after.
func (h *Host) Abandon() {
	if err := h.tree.Close(); err != nil {
		h.o.Log.Error("failed to end process tree", "error", err)
	}
}

// Allowance is for how long nobody need look after this worker from now on.
func (h *Host) Allowance() time.Duration { return h.attendance.allowance() }

// closeDriver gives the driver its time; what it leaves is ended with the tree.
func (h *Host) closeDriver(d Driver) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- guarded(func() error { return d.Close(ctx) }) }()
	select {
	case err := <-closed:
		if err != nil {
			h.o.Log.Warn("failed to close driver", "error", err)
		}
	case <-ctx.Done():
		h.o.Log.Warn("driver did not close in time")
	}
}
