// Package files keeps blobs as files on a local disk: it implements blob.Store.
//
// A blob is written to a file of its own in the folder unfinished.new, synced, and only then renamed to its name, whose folder
// is synced before Put returns. So a name is never seen with less than its whole content, and what was acknowledged is
// there after a crash. Several processes of one host may have the folder open. What a crash leaves in unfinished.new is
// removed by the next that opens it alone.
//
// The name of a blob is its hash, and reading it to its end proves it: a blob that the disk has damaged is refused, and
// storing the content again repairs it.
package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/store"
	"github.com/harness-engine/harness-engine/store/internal/folder"
)

// ErrLocked: another process has the folder to itself.
var ErrLocked = errors.New("files: folder is in use by another engine")

// Names inside the folder that no space has, because of their dots.
const (
	lockName  = "files.lock"
	roundName = "folders.lock"
	newName   = "unfinished.new"
)

// Options of Open. Zero values mean the defaults.
type Options struct {
	// Folder of the blobs, for instance data/blobs. It is made when it is missing.
	Folder string
	Logger *slog.Logger // default: slog.Default()
	// MinFreeBytes is the free disk space that Put leaves to others, so that a database on the same disk can still
	// write what ends runs: default 64 MiB, negative for none.
	MinFreeBytes int64
	// AdmitFreeBytes is the free disk space below which Admit refuses new work: default 256 MiB, negative for none.
	AdmitFreeBytes int64

	system *system // tests cause faults through it
}

// Defaults of Options.
const (
	defaultMinFree   = 64 << 20
	defaultAdmitFree = 256 << 20
)

// Store is an open folder of blobs. It is safe for concurrent use.
type Store struct {
	opts   Options
	root   string
	system *system
	lock   *os.File
	closed atomic.Bool

	// places guards the folders that hold blobs: whoever removes one excludes those who are about to use it.
	places sync.RWMutex
	mu     sync.Mutex
	known  map[string]bool // folders whose name is durable
	round  int64           // of removals, in which known was true
}

var _ blob.Store = (*Store)(nil)

// Open opens or makes the folder and removes what a crash has left half written. It fails with ErrLocked (wrapped) when
// another process has it to itself. ctx bounds the opening only.
func Open(ctx context.Context, o Options) (_ *Store, err error) {
	if o.Folder == "" {
		return nil, fmt.Errorf("%w: folder of the blobs is empty", store.ErrInvalid)
	}
	root, err := filepath.Abs(o.Folder)
	if err != nil {
		return nil, fmt.Errorf("failed to resolve folder of the blobs: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.MinFreeBytes = cmp.Or(o.MinFreeBytes, defaultMinFree)
	o.AdmitFreeBytes = cmp.Or(o.AdmitFreeBytes, defaultAdmitFree)
	s := &Store{opts: o, root: root, system: cmp.Or(o.system, &realSystem), known: map[string]bool{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("failed to open blobs %s: %w", root, err), s.Close())
		}
	}()
	if err := folder.Make(root); err != nil {
		return nil, err
	}
	swept := 0
	s.lock, err = folder.Share(ctx, root, lockName, func(sole bool) (err error) {
		if err := folder.Make(filepath.Join(root, newName)); err != nil || !sole {
			return err
		}
		swept, err = s.sweep(ctx)
		return err
	})
	if errors.Is(err, folder.ErrHeld) {
		err = fmt.Errorf("%w: %w", ErrLocked, err)
	}
	if err != nil {
		return nil, err
	}
	o.Logger.Info("blobs are open", "folder", root, "unfinishedRemoved", swept)
	return s, nil
}

// sweep removes what was being written when the last process ended.
func (s *Store) sweep(ctx context.Context) (int, error) {
	left, err := os.ReadDir(filepath.Join(s.root, newName))
	if err != nil {
		return 0, fmt.Errorf("failed to list unfinished blobs: %w", err)
	}
	for _, e := range left {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		if err := os.Remove(filepath.Join(s.root, newName, e.Name())); err != nil {
			return 0, fmt.Errorf("failed to remove unfinished blob: %w", err)
		}
	}
	return len(left), nil
}

// Close gives the folder free; calls that come later fail with store.ErrClosed. What is being read can be read to its
// end. Let writers finish first.
func (s *Store) Close() error {
	if s.closed.Swap(true) || s.lock == nil {
		return nil
	}
	return s.lock.Close()
}

// Admit says whether new work may begin: nil, store.ErrClosed, or blob.ErrFull when free space is below
// Options.AdmitFreeBytes. Work that has begun is not refused by it.
func (s *Store) Admit() error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return s.room(s.opts.AdmitFreeBytes)
}

// room fails with blob.ErrFull when less than least bytes are free. A disk that does not say is not refused.
func (s *Store) room(least int64) error {
	if least <= 0 {
		return nil
	}
	if free, err := s.system.free(s.root); err == nil && free < least {
		return fmt.Errorf("%w: %d bytes are free, %d are wanted", blob.ErrFull, free, least)
	}
	return nil
}
