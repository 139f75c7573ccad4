package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/harness-engine/harness-engine/engine/integrity"
	"github.com/harness-engine/harness-engine/store/internal/folder"
	"github.com/harness-engine/harness-engine/store/sqlite"
)

// RestoreOptions are what is made a data folder of. All are required.
type RestoreOptions struct {
	Source      string // the backup
	Data        string // the data folder: empty, or made
	Database    string // name of the store's database
	Blobs       string // name of the folder of blobs
	Incarnation string // of the restored store, a new one
}

// Restore makes a data folder of a backup. Every file is checked against the manifest while it is copied, and the store is
// verified. The folder gets its name at last, so that no engine can open half of it. What the backup's store said of its
// incarnation and of authorization stores is forgotten: cursors of the original expire, and the next start of an engine
// states the tuples of all agents anew. ErrNotBackup, ErrFormat, ErrDamaged and ErrNotEmpty are wrapped.
func Restore(ctx context.Context, o RestoreOptions) (m Manifest, report integrity.Report, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("failed to restore %s: %w", o.Source, err)
		}
	}()
	if m, err = Read(o.Source); err != nil {
		return m, report, err
	}
	if err := emptyFolder(o.Data); err != nil { // whoever has it open has a lock in it
		return m, report, err
	}
	data, err := filepath.Abs(o.Data)
	if err == nil { // a link may lead to another disk, and stays
		data, err = filepath.EvalSymlinks(data)
	}
	if err != nil {
		return m, report, err
	}
	half, err := os.MkdirTemp(filepath.Dir(data), "."+filepath.Base(data)+".restoring-*")
	if err != nil {
		return m, report, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(half))
		}
	}()
	for _, want := range m.Files {
		switch err := copyFile(ctx, o.Source, half, want.Path); {
		case errors.Is(err, fs.ErrNotExist):
			return m, report, fmt.Errorf("%w: %s is missing", ErrDamaged, want.Path)
		case err != nil:
			return m, report, err
		}
		got, err := sum(ctx, half, want.Path)
		if err != nil {
			return m, report, err
		}
		if got != want {
			return m, report, fmt.Errorf("%w: %s is not what the manifest says", ErrDamaged, want.Path)
		}
	}
	if err := sqlite.Restored(ctx, filepath.Join(half, o.Database), o.Incarnation); err != nil {
		return m, report, err
	}
	if report, _, err = check(ctx, half, o.Database, o.Blobs); err != nil {
		return m, report, err
	}
	if err := syncTree(half); err != nil {
		return m, report, err
	}
	if err := os.Remove(data); err != nil { // which succeeds for an empty folder only
		return m, report, err
	}
	if err := os.Rename(half, data); err != nil {
		return m, report, err
	}
	return m, report, folder.Sync(filepath.Dir(data))
}
