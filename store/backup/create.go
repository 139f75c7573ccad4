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

// attempts bounds how often the database is copied anew, because conversations went on and replaced states that the copy
// names before they could be copied.
const attempts = 8

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
// Content is copied first, then the databases, then the content that the copy names and that is not there yet. A state
// that a conversation has replaced in between is gone, so the database is copied anew then: by that time most of the rest
// is there, and the gap is short.
func Create(ctx context.Context, o Options) (m Manifest, report integrity.Report, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("failed to back up %s: %w", o.Data, err)
		}
	}()
	if err := emptyFolder(o.Dest); err != nil {
		return m, report, err
	}
	from, err := files.NewReader(filepath.Join(o.Data, o.Blobs))
	if err != nil {
		return m, report, err
	}
	c := copier{o: o, from: from, there: map[string]bool{}}
	if err := os.Mkdir(filepath.Join(o.Dest, o.Blobs), 0o700); err != nil {
		return m, report, err
	}
	if _, _, err := c.content(ctx, filepath.Join(o.Data, o.Database)); err != nil {
		return m, report, err
	}
	named, err := c.database(ctx)
	if err != nil {
		return m, report, err
	}
	if err := c.prune(named); err != nil {
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

// copier copies content.
type copier struct {
	o     Options
	from  *files.Reader
	there map[string]bool // paths of blobs that are copied
}

// database copies the store's database until all content that the copy names is there, too, and returns what it names.
func (c *copier) database(ctx context.Context) (map[string]bool, error) {
	dest := filepath.Join(c.o.Dest, c.o.Database)
	for range attempts {
		if err := os.Remove(dest); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := sqlite.CopyInto(ctx, filepath.Join(c.o.Data, c.o.Database), dest); err != nil {
			return nil, err
		}
		named, missing, err := c.content(ctx, dest)
		if err != nil {
			return nil, err
		}
		// What the original has not either is no reason to wait: it is a finding, and told as such.
		gone := false
		for _, m := range missing {
			gone = gone || m.replaced(ctx, filepath.Join(c.o.Data, c.o.Database))
		}
		if !gone {
			return named, sqlite.CheckFile(ctx, dest)
		}
	}
	return nil, fmt.Errorf("conversations replaced their states %d times while they were copied; try again when less is going on", attempts)
}

// missing is content that a database names and that is not there.
type missing struct {
	session string // whose head it is; empty: of an attachment
	head    session.Head
}

// replaced says whether the conversation has another head by now.
func (m missing) replaced(ctx context.Context, database string) bool {
	if m.session == "" {
		return false
	}
	s, err := sqlite.OpenReader(ctx, sqlite.Options{Path: database, Readers: 1})
	if err != nil {
		return false
	}
	defer func() { _ = s.Close() }()
	b, err := s.Session(ctx, m.session)
	return err == nil && b.Head.Hash != m.head.Hash
}

// content copies all content that the database names and that is not there yet. It returns the paths of what it names, and
// what the data folder does not have.
func (c *copier) content(ctx context.Context, database string) (named map[string]bool, absent []missing, err error) {
	s, err := sqlite.OpenReader(ctx, sqlite.Options{Path: database, Readers: 1})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	named = map[string]bool{}
	take := func(space blob.Space, hash string, m missing) error {
		path, err := c.from.File(space, hash)
		if err != nil { // the document is damaged, which the check tells
			return nil //nolint:nilerr // see above
		}
		path = filepath.ToSlash(path)
		named[path] = true
		if c.there[path] {
			return nil
		}
		err = copyFile(ctx, filepath.Join(c.o.Data, c.o.Blobs), filepath.Join(c.o.Dest, c.o.Blobs), path)
		if errors.Is(err, fs.ErrNotExist) {
			absent = append(absent, m)
			return nil
		}
		if err != nil {
			return fmt.Errorf("failed to copy blob %s: %w", hash, err)
		}
		c.there[path] = true
		return nil
	}
	err = each(ctx, s.SessionIDs, func(id string) error {
		b, err := s.Session(ctx, id)
		if skip(err) || b.Head.Rev == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		return take(thread.SpaceOf(b.ID, b.Epoch), b.Head.Ref, missing{session: b.ID, head: b.Head})
	})
	if err != nil {
		return nil, nil, err
	}
	err = each(ctx, s.AttachmentIDs, func(id string) error {
		a, err := s.Attachment(ctx, id)
		if skip(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return take(blob.Attachments, a.Hash, missing{})
	})
	return named, absent, err
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

// prune removes copied content that the copied database does not name.
func (c *copier) prune(named map[string]bool) error {
	for path := range c.there {
		if named[path] {
			continue
		}
		if err := os.Remove(filepath.Join(c.o.Dest, c.o.Blobs, filepath.FromSlash(path))); err != nil {
			return err
		}
	}
	return nil
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
