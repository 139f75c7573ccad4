package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/integrity"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/engine/thread"
	"github.com/harness-engine/harness-engine/store"
	"github.com/harness-engine/harness-engine/store/files"
	"github.com/harness-engine/harness-engine/store/sqlite"
)

const page = 500

// Options are where the data is and where it shall go. All but Others and Plain are required.
type Options struct {
	Data     string   // data folder of engines, which may be at work
	Dest     string   // folder for the backup: empty, or made
	Engine   string   // version that goes into the manifest
	Database string   // name of the store's database in Data
	Blobs    string   // name of the folder of blobs in Data
	Others   []string // names of further databases, which may be missing; copied after the store's
	Plain    []string // names of small files, which may be missing
}

// Create makes a backup and checks it: SQLite checks the databases, and integrity.Verify what is in the store; its report tells
// what was wrong in the original already. Whatever fails leaves a folder without a manifest, which is no backup.
//
// The database is copied first and then the content that the copy names. Until that is done no engine removes content: a state
// that a conversation replaces meanwhile stays until its next turn.
func Create(ctx context.Context, o Options) (m Manifest, report integrity.Report, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("failed to back up %s: %w", o.Data, err)
		}
	}()
	if err := emptyFolder(o.Dest); err != nil {
		return m, report, err
	}
	if err := os.Mkdir(filepath.Join(o.Dest, o.Blobs), 0o700); err != nil {
		return m, report, err
	}
	if err := copyStore(ctx, o); err != nil {
		return m, report, err
	}
	for _, name := range o.Others {
		if _, err := os.Stat(filepath.Join(o.Data, name)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := sqlite.CopyInto(ctx, filepath.Join(o.Data, name), filepath.Join(o.Dest, name)); err != nil {
			return m, report, err
		}
		if err := sqlite.CheckFile(ctx, filepath.Join(o.Dest, name)); err != nil {
			return m, report, err
		}
	}
	for _, name := range o.Plain {
		if err := copyFile(ctx, o.Data, o.Dest, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return m, report, fmt.Errorf("failed to copy %s: %w", name, err)
		}
	}
	report, incarnation, err := check(ctx, o.Dest, o.Database, o.Blobs)
	if err != nil {
		return m, report, err
	}
	m = Manifest{
		Format: Format, Engine: o.Engine, CreatedAt: time.Now().UTC().Truncate(time.Second), Incarnation: incarnation,
		Runs: report.Runs, Events: report.Events,
	}
	if m.Files, err = sums(ctx, o.Dest); err != nil {
		return m, report, err
	}
	if err := syncTree(o.Dest); err != nil {
		return m, report, err
	}
	return m, report, m.write(o.Dest)
}

// copyStore copies the store's database and the content that it names.
func copyStore(ctx context.Context, o Options) error {
	release, err := files.Hold(ctx, filepath.Join(o.Data, o.Blobs))
	if err != nil {
		return err
	}
	defer release()
	dest := filepath.Join(o.Dest, o.Database)
	if err := sqlite.CopyInto(ctx, filepath.Join(o.Data, o.Database), dest); err != nil {
		return err
	}
	if err := sqlite.CheckFile(ctx, dest); err != nil {
		return err
	}
	return copyContent(ctx, o, dest)
}

// copyContent copies all content that the database names. What the data folder does not have is a finding, which the check of
// the copy tells.
func copyContent(ctx context.Context, o Options, database string) error {
	from, err := files.NewReader(filepath.Join(o.Data, o.Blobs))
	if err != nil {
		return err
	}
	s, err := sqlite.OpenReader(ctx, sqlite.Options{Path: database, Readers: 1})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	take := func(space blob.Space, hash string) error {
		path, err := from.File(space, hash)
		if err != nil {
			return nil //nolint:nilerr // no name of content: the document is damaged, which the check tells
		}
		err = copyFile(ctx, filepath.Join(o.Data, o.Blobs), filepath.Join(o.Dest, o.Blobs), filepath.ToSlash(path))
		// Attachments of equal content are one file.
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("failed to copy blob %s: %w", hash, err)
		}
		return nil
	}
	err = each(ctx, s.SessionIDs, func(id string) error {
		b, err := s.Session(ctx, id)
		if skip(err) || err == nil && b.Head.Rev == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		return take(thread.SpaceOf(b.ID, b.Epoch), b.Head.Ref)
	})
	if err != nil {
		return err
	}
	return each(ctx, s.AttachmentIDs, func(id string) error {
		a, err := s.Attachment(ctx, id)
		if skip(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return take(blob.Attachments, a.Hash)
	})
}

// skip says that a document is gone by now, or damaged, which the check of the copy tells.
func skip(err error) bool {
	return errors.Is(err, integrity.ErrDamaged) || errors.Is(err, session.ErrNotFound) || errors.Is(err, file.ErrNotFound)
}

func each(ctx context.Context, list func(ctx context.Context, after string, limit int) ([]string, error), do func(id string) error) error {
	for after := ""; ; {
		ids, err := list(ctx, after, page)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := do(id); err != nil {
				return err
			}
			after = id
		}
		if len(ids) < page {
			return nil
		}
	}
}

// check looks at everything in a copy, which nobody changes.
func check(ctx context.Context, dir, database, blobs string) (integrity.Report, string, error) {
	s, err := sqlite.OpenReader(ctx, sqlite.Options{Path: filepath.Join(dir, database), Readers: 1})
	if err != nil {
		return integrity.Report{}, "", err
	}
	content, err := files.NewReader(filepath.Join(dir, blobs))
	var report integrity.Report
	if err == nil {
		report, err = integrity.Verify(ctx, integrity.Options{Source: s, Blobs: content})
	}
	incarnation := ""
	if err == nil {
		var value []byte
		value, err = s.Value(ctx, store.ValueIncarnation)
		if errors.Is(err, store.ErrNoValue) { // no engine has had it open since there are any
			err = nil
		}
		incarnation = string(value)
	}
	if err := errors.Join(err, s.Close()); err != nil {
		return report, "", fmt.Errorf("failed to check the copy: %w", err)
	}
	// SQLite leaves nothing beside a database that was only read, but what it made to read it.
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Remove(filepath.Join(dir, database+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return report, "", err
		}
	}
	return report, incarnation, nil
}

// sums hashes all files of a folder, by path.
func sums(ctx context.Context, dir string) (all []File, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f, err := sum(ctx, dir, filepath.ToSlash(rel))
		if err != nil {
			return fmt.Errorf("failed to read %s: %w", rel, err)
		}
		all = append(all, f)
		return nil
	})
	slices.SortFunc(all, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return all, err
}
