// Package replicas lets the engines of one host that share a data folder find each other: it implements
// replica.Directory and carries hints between them.
//
// Each engine has a file in the folder, which it keeps locked while it lives and whose time it changes at each beat. The
// kernel drops the lock when the process ends, however it ends: the others see a death at their next look, and need the
// beat only for an engine that is stopped. Hints are datagrams to the socket beside the file.
package replicas

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harness-engine/harness-engine/engine/replica"
	"github.com/harness-engine/harness-engine/store/internal/folder"
)

// Suffixes of an engine's files.
const (
	memberSuffix = ".engine"
	socketSuffix = ".sock"
	newSuffix    = ".new"
)

// nameLength is how much of an engine's id names its files: a socket's path is short.
const nameLength = 12

// Info is what an engine tells of itself.
type Info struct {
	ID   string `json:"id"`
	Addr string `json:"addr"` // where it serves clients
	PID  int    `json:"pid"`
	// Lease is what it was told to judge by, in nanoseconds; 0 where nobody was told. Engines that judge by different ones would
	// take runs from each other while both live.
	Lease time.Duration `json:"lease,omitempty"`
	// Tool says that it is no engine but a command of the operator's that writes to the store: it is known so that it is ended
	// when it stands still in a commit, and for nothing else.
	Tool bool `json:"tool,omitempty"`
}

// Options configure Join. Folder and Info are required.
type Options struct {
	Folder string
	Info   Info
	Beat   time.Duration      // default: a sixth of replica.DefaultLease
	OnHint func(replica.Hint) // called one after the other; must not block for long; nil: hints are dropped
	Logger *slog.Logger
}

// Member is this engine among the others.
type Member struct {
	o        Options
	name     string
	file     *os.File
	conn     *net.UnixConn
	lastBeat atomic.Pointer[time.Time]
	outbox   outbox

	stop  chan struct{}
	work  sync.WaitGroup
	leave sync.Once
	left  error
}

var _ replica.Directory = (*Member)(nil)

// Join makes this engine known, and begins to beat. Call Leave at the end.
func Join(o Options) (_ *Member, err error) {
	if o.Info.ID == "" || o.Folder == "" {
		return nil, errors.New("failed to join the engines: folder and id are required")
	}
	o.Beat = cmp.Or(max(o.Beat, 0), replica.DefaultLease/6)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnHint == nil {
		o.OnHint = func(replica.Hint) {}
	}
	m := &Member{o: o, name: o.Info.ID[max(0, len(o.Info.ID)-nameLength):], stop: make(chan struct{})}
	m.outbox.init()
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("failed to join the engines of %s: %w", o.Folder, err), m.Leave())
		}
	}()
	if err := folder.Make(o.Folder); err != nil {
		return nil, err
	}
	if err := sameLease(o); err != nil {
		return nil, err
	}
	if m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path(socketSuffix), Net: "unixgram"}); err != nil {
		return nil, fmt.Errorf("failed to listen for hints: %w", err)
	}
	if err := m.appear(); err != nil {
		return nil, err
	}
	now := time.Now()
	m.lastBeat.Store(&now)
	m.work.Go(m.beat)
	m.work.Go(m.listen)
	m.work.Go(m.send)
	return m, nil
}

// sameLease refuses an engine that would judge by another lease than those that are there.
func sameLease(o Options) error {
	found, err := look(context.Background(), o.Folder)
	if err != nil {
		return err
	}
	for _, f := range found {
		if mine, theirs := o.Info.Lease, f.info.Lease; mine != 0 && theirs != 0 && mine != theirs {
			return fmt.Errorf("the lease is %s, and that of engine %d is %s: it must be the same for all", mine, f.info.PID, theirs)
		}
	}
	return nil
}

// Path names a file of this engine in the folder, for instance a socket. It is removed when the engine has died or left.
func (m *Member) Path(suffix string) string { return m.path(suffix) }

func (m *Member) path(suffix string) string { return filepath.Join(m.o.Folder, m.name+suffix) }

// appear makes the file under its name when it is whole and locked.
func (m *Member) appear() error {
	f, err := folder.Lock(m.o.Folder, m.name+newSuffix)
	if err != nil {
		return err
	}
	m.file = f // the lock stays with the file, whatever its name
	raw, err := json.Marshal(m.o.Info)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("failed to write member file: %w", err)
	}
	if _, err := f.WriteAt(append(raw, '\n'), 0); err != nil {
		return fmt.Errorf("failed to write member file: %w", err)
	}
	if err := os.Rename(m.path(newSuffix), m.path(memberSuffix)); err != nil {
		return fmt.Errorf("failed to name member file: %w", err)
	}
	return nil
}

// beat changes the file's time again and again.
func (m *Member) beat() {
	tick := time.NewTicker(m.o.Beat)
	defer tick.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-tick.C:
		}
		sent := time.Now()
		if err := os.Chtimes(m.path(memberSuffix), sent, sent); err != nil {
			m.o.Logger.Error("beat failed", "error", err)
			continue
		}
		m.lastBeat.Store(&sent)
	}
}

// LastBeat is when the last beat that arrived was sent.
func (m *Member) LastBeat() time.Time { return *m.lastBeat.Load() }

// Sightings implements replica.Directory. Files of the dead are removed.
func (m *Member) Sightings(ctx context.Context) ([]replica.Sighting, error) {
	found, err := look(ctx, m.o.Folder)
	if err != nil {
		return nil, err
	}
	out := make([]replica.Sighting, len(found))
	peers := make([]string, 0, len(found))
	for i, f := range found {
		out[i] = replica.Sighting{ID: f.info.ID, Beat: f.beat, Tool: f.info.Tool}
		if f.info.ID != m.o.Info.ID && !f.info.Tool {
			peers = append(peers, strings.TrimSuffix(f.path, memberSuffix)+socketSuffix)
		}
	}
	m.outbox.setPeers(peers)
	return out, nil
}

// Leave makes this engine unknown: the others may take over what it drove at once. It may be called again.
func (m *Member) Leave() error {
	m.leave.Do(func() {
		close(m.stop)
		if m.file != nil {
			err := os.Remove(m.path(memberSuffix))
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			m.left = errors.Join(err, m.file.Close())
		}
		if m.conn != nil {
			m.left = errors.Join(m.left, m.conn.Close())
		}
		m.work.Wait()
		removeFiles(m.path(""))
	})
	return m.left
}

// Starting lets one engine of the folder start at a time: it waits for the others, until ctx ends or for startTimeout.
// done lets the next one start.
func Starting(ctx context.Context, path string) (done func(), err error) {
	if err := folder.Make(path); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("another engine is starting on the data folder"))
	defer cancel()
	lock, err := folder.WaitLock(ctx, path, "start.lock")
	if err != nil {
		return nil, fmt.Errorf("failed to start: %w", err)
	}
	return func() { _ = lock.Close() }, nil
}

// startTimeout is how long an engine waits for others that start.
const startTimeout = time.Minute

// Living lists the engines whose process lives, for tools of the same host. A folder that is missing has none.
func Living(ctx context.Context, path string) ([]Info, error) {
	found, err := look(ctx, path)
	if err != nil {
		return nil, err
	}
	var infos []Info
	for _, f := range found {
		if !f.info.Tool {
			infos = append(infos, f.info)
		}
	}
	return infos, nil
}
