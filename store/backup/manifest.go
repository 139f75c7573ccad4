// Package backup copies the data of running engines into a folder, and makes a data folder of such a copy.
package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/store/internal/folder"
)

// Format is the version of a backup's layout. A backup of another is refused.
const Format = 1

// Names in a backup.
const (
	manifestName = "manifest.json"
	maxManifest  = 256 << 20
)

// Errors of a backup that cannot be used.
var (
	// ErrNotBackup: the folder has no manifest of a backup.
	ErrNotBackup = errors.New("backup: not a backup")
	// ErrFormat: the backup is of another version of the layout.
	ErrFormat = errors.New("backup: format is not known")
	// ErrDamaged: a file is missing, or is not what the manifest says.
	ErrDamaged = errors.New("backup: damaged")
	// ErrNotEmpty: the target has something in it already.
	ErrNotEmpty = errors.New("backup: target is not empty")
)

// Manifest says what a backup has. It is written last: a folder without one is no backup.
type Manifest struct {
	Format      int       `json:"format"`
	Engine      string    `json:"engine"` // version that made it
	CreatedAt   time.Time `json:"createdAt"`
	Incarnation string    `json:"incarnation"` // of the store that was copied
	Runs        int64     `json:"runs"`
	Events      int64     `json:"events"`
	Files       []File    `json:"files"` // by path, ascending
}

// File is one file of a backup.
type File struct {
	Path   string `json:"path"` // below the folder, with slashes
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Read reads a backup's manifest. ErrNotBackup, ErrFormat and ErrDamaged are wrapped.
func Read(dir string) (Manifest, error) {
	var m Manifest
	f, err := os.Open(filepath.Join(dir, manifestName))
	if errors.Is(err, os.ErrNotExist) {
		return m, fmt.Errorf("%w: %s has no %s", ErrNotBackup, dir, manifestName)
	}
	if err != nil {
		return m, fmt.Errorf("failed to read backup: %w", err)
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return m, fmt.Errorf("failed to read backup: %w", err)
	}
	return decode(raw)
}

// decode reads and checks a manifest.
func decode(raw []byte) (Manifest, error) {
	var m Manifest
	if len(raw) > maxManifest {
		return m, fmt.Errorf("%w: %s is above %d bytes", ErrDamaged, manifestName, maxManifest)
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("%w: %s cannot be decoded: %w", ErrDamaged, manifestName, err)
	}
	if m.Format != Format {
		return m, fmt.Errorf("%w: it has %d, this engine knows %d; use the engine that made it (%.64s)", ErrFormat, m.Format, Format, m.Engine)
	}
	for i, f := range m.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Path)) || strings.Contains(f.Path, `\`) || f.Size < 0 || len(f.SHA256) != 2*sha256.Size ||
			f.Path == manifestName || i > 0 && m.Files[i-1].Path >= f.Path {
			return m, fmt.Errorf("%w: %s has an impossible entry %d", ErrDamaged, manifestName, i)
		}
	}
	return m, nil
}

// write makes the backup one: the manifest is synced and gets its name at last.
func (m Manifest) write(dir string) error {
	raw, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return fmt.Errorf("failed to encode manifest: %w", err)
	}
	path := filepath.Join(dir, manifestName)
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, folder.FileMode)
	if err != nil {
		return fmt.Errorf("failed to write manifest: %w", err)
	}
	_, err = f.Write(append(raw, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("failed to write manifest: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("failed to write manifest: %w", err)
	}
	return folder.Sync(dir)
}

// sum reads a file to its end.
func sum(ctx context.Context, dir, path string) (File, error) {
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(path)))
	if err != nil {
		return File{}, err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	n, err := io.Copy(h, reader{ctx, f})
	if err != nil {
		return File{}, err
	}
	return File{Path: path, Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

// reader ends with its context.
type reader struct {
	ctx context.Context //nolint:containedctx // of one copy
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}

// copyFile copies a file with its folders, synced; the folder's own entry is synced by syncTree.
func copyFile(ctx context.Context, from, to, path string) error {
	src, err := os.Open(filepath.Join(from, filepath.FromSlash(path)))
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	target := filepath.Join(to, filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(target), folder.Mode); err != nil {
		return err
	}
	dst, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, folder.FileMode)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, reader{ctx, src})
	return errors.Join(err, dst.Sync(), dst.Close())
}

// syncTree makes the names in all folders durable.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return folder.Sync(path)
	})
}

// emptyFolder makes the folder, or makes sure that it is empty.
func emptyFolder(dir string) error {
	if err := os.MkdirAll(dir, folder.Mode); err != nil {
		return fmt.Errorf("failed to make %s: %w", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("failed to list %s: %w", dir, err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%w: %s has %s in it", ErrNotEmpty, dir, entries[0].Name())
	}
	return nil
}
