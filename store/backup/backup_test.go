package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/engine/thread"
	"github.com/harness-engine/harness-engine/store"
	"github.com/harness-engine/harness-engine/store/files"
	"github.com/harness-engine/harness-engine/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var when = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// source is a data folder with an open store.
type source struct {
	t     *testing.T
	dir   string
	store *sqlite.Store
	blobs *files.Store
}

func newSource(t *testing.T) *source {
	t.Helper()
	s := &source{t: t, dir: t.TempDir()}
	var err error
	quiet := slog.New(slog.DiscardHandler)
	if s.store, err = sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(s.dir, "engine.sqlite"), Logger: quiet, ReserveBytes: -1, MinFreeBytes: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.store.Close() })
	if s.blobs, err = files.Open(t.Context(), files.Options{Folder: filepath.Join(s.dir, "blobs"), Logger: quiet, MinFreeBytes: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.blobs.Close() })
	if err := os.WriteFile(filepath.Join(s.dir, "token.key"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.PutValueIfAbsent(t.Context(), store.ValueIncarnation, []byte("log_original")); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *source) options(dest string) Options {
	return Options{Data: s.dir, Dest: dest, Engine: "test", Database: "engine.sqlite", Blobs: "blobs", Others: []string{"openfga.sqlite"}, Plain: []string{"token.key", "absent"}}
}

// commit gives a conversation its next state and removes the one before, as the end of a turn does.
func (s *source) commit(ctx context.Context, b session.Binding, content string) (session.Binding, error) {
	th := thread.Threads{Blobs: s.blobs}
	sum := sha256.Sum256([]byte(content))
	head, err := th.Save(ctx, b.ID, 1, "run_"+b.ID, b.Head, harness.State{
		Codec: "tar", Hash: hex.EncodeToString(sum[:]), Size: int64(len(content)), Body: io.NopCloser(bytes.NewReader([]byte(content))),
	})
	if err != nil {
		return b, err
	}
	b.Head, b.Rev = head, b.Rev+1
	if err := s.store.UpdateSession(ctx, b); err != nil {
		return b, err
	}
	return b, th.Keep(ctx, b.ID, 1, head)
}

func (s *source) session(id string) session.Binding {
	s.t.Helper()
	b := session.Binding{ID: id, Rev: 1, Key: session.Key{Environment: "dev", Subject: "alice", AgentID: "agt_1", ConversationID: id},
		Epoch: 1, NextOrd: 2, LeaseGen: 1, LastOp: "op", CreatedAt: when, UpdatedAt: when}
	r := run.Run{ID: "run_" + id, Rev: 1, Status: run.StatusQueued, Environment: "dev", Subject: "alice", SessionID: id, Epoch: 1, Ord: 1, AgentID: "agt_1", CreatedAt: when}
	b.Active = &session.Active{Run: r.ID, Ord: 1, Epoch: 1, Pin: session.Pin{AgentVersion: 1}, Gen: 1, Owner: "eng"}
	if err := errors.Join(s.store.InsertRun(s.t.Context(), r), s.store.InsertSession(s.t.Context(), b)); err != nil {
		s.t.Fatal(err)
	}
	return b
}

// TestBackupOfBusyConversations copies while conversations replace their states as fast as they can: whatever moment the
// copy has, each state that it names is there.
func TestBackupOfBusyConversations(t *testing.T) {
	s := newSource(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 4)
	for i := range cap(done) {
		b := s.session(fmt.Sprintf("ses_%d", i))
		go func() {
			for n := 0; ; n++ {
				var err error
				if b, err = s.commit(ctx, b, fmt.Sprintf("state %d of %s", n, b.ID)); err != nil {
					if ctx.Err() != nil {
						err = nil
					}
					done <- err
					return
				}
			}
		}()
	}
	folder := t.TempDir()
	for i := range 5 {
		dest := filepath.Join(folder, fmt.Sprint(i))
		m, report, err := Create(t.Context(), s.options(dest))
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Findings) != 0 || report.Sessions != 4 || m.Incarnation != "log_original" || m.Runs != 4 {
			t.Fatalf("backup %d: %+v", i, report)
		}
	}
	stop()
	for range cap(done) {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	m, report, err := Restore(t.Context(), RestoreOptions{Source: filepath.Join(folder, "4"), Data: filepath.Join(folder, "data"), Database: "engine.sqlite", Blobs: "blobs", Incarnation: "log_new"})
	if err != nil || len(report.Findings) != 0 || len(m.Files) != 6 {
		t.Fatalf("%+v, %+v, %v", m, report, err)
	}
	restored, err := sqlite.OpenReader(t.Context(), sqlite.Options{Path: filepath.Join(folder, "data", "engine.sqlite")})
	if err != nil {
		t.Fatal(err)
	}
	defer restored.Close()
	if value, err := restored.Value(t.Context(), store.ValueIncarnation); err != nil || string(value) != "log_new" {
		t.Fatalf("%q, %v", value, err)
	}
	if key, err := os.ReadFile(filepath.Join(folder, "data", "token.key")); err != nil || string(key) != "secret" {
		t.Fatalf("%q, %v", key, err)
	}
}

// TestBackupOfADamagedStore is made all the same, and says what is wrong.
func TestBackupOfADamagedStore(t *testing.T) {
	s := newSource(t)
	b, err := s.commit(t.Context(), s.session("ses_1"), "state")
	if err == nil {
		err = s.blobs.Delete(t.Context(), thread.SpaceOf(b.ID, 1), b.Head.Ref)
	}
	if err != nil {
		t.Fatal(err)
	}
	dest := filepath.Join(t.TempDir(), "backup")
	_, report, err := Create(t.Context(), s.options(dest))
	if err != nil || len(report.Findings) != 1 || report.Findings[0].Code != "head_missing" {
		t.Fatalf("%+v, %v", report, err)
	}
	if _, err := Read(dest); err != nil {
		t.Fatal(err)
	}
}

// TestBackupThatFailsIsNone leaves no manifest, and a restore leaves nothing.
func TestBackupThatFailsIsNone(t *testing.T) {
	s := newSource(t)
	s.session("ses_1")
	if err := os.WriteFile(filepath.Join(s.dir, "openfga.sqlite"), bytes.Repeat([]byte("no database "), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	dest := filepath.Join(t.TempDir(), "backup")
	if _, _, err := Create(t.Context(), s.options(dest)); err == nil {
		t.Fatal("a file that is no database was copied as one")
	}
	if _, err := Read(dest); !errors.Is(err, ErrNotBackup) {
		t.Fatalf("half a backup: %v", err)
	}
	data := filepath.Join(t.TempDir(), "data")
	if _, _, err := Restore(t.Context(), RestoreOptions{Source: dest, Data: data, Database: "engine.sqlite", Blobs: "blobs", Incarnation: "log_new"}); !errors.Is(err, ErrNotBackup) {
		t.Fatalf("half a backup was restored: %v", err)
	}
	if _, _, err := Create(t.Context(), s.options(dest)); !errors.Is(err, ErrNotEmpty) {
		t.Fatalf("into a folder with something in it: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Create(ended, s.options(filepath.Join(t.TempDir(), "b"))); !errors.Is(err, context.Canceled) {
		t.Fatalf("given up: %v", err)
	}
}

// FuzzManifest reads manifests that anybody may have written: none names a file outside of the backup.
func FuzzManifest(f *testing.F) {
	sum := hex.EncodeToString(make([]byte, 32))
	for _, path := range []string{"engine.sqlite", "../x", "/etc/passwd", "blobs/../../x", `a\b`, "", ".", "manifest.json"} {
		raw, err := json.Marshal(Manifest{Format: Format, Files: []File{{Path: path, SHA256: sum}}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := decode(raw)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		seen := map[string]bool{}
		for _, file := range m.Files {
			at := filepath.Join("/backup", filepath.FromSlash(file.Path))
			if rel, err := filepath.Rel("/backup", at); err != nil || !filepath.IsLocal(rel) || seen[at] || file.Size < 0 {
				t.Fatalf("%q is taken", file.Path)
			}
			seen[at] = true
		}
	})
}

// TestRestoreThroughALink: a data folder that is a link stays one, and what it leads to gets the data.
func TestRestoreThroughALink(t *testing.T) {
	s := newSource(t)
	folder, disk := t.TempDir(), t.TempDir()
	if _, _, err := Create(t.Context(), s.options(filepath.Join(folder, "backup"))); err != nil {
		t.Fatal(err)
	}
	target, link := filepath.Join(disk, "data"), filepath.Join(folder, "data")
	if err := errors.Join(os.Mkdir(target, 0o700), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Restore(t.Context(), RestoreOptions{Source: filepath.Join(folder, "backup"), Data: link, Database: "engine.sqlite", Blobs: "blobs", Incarnation: "log_new"}); err != nil {
		t.Fatal(err)
	}
	if at, err := os.Readlink(link); err != nil || at != target {
		t.Fatalf("the link leads to %q, %v", at, err)
	}
	if _, err := os.Stat(filepath.Join(target, "engine.sqlite")); err != nil {
		t.Fatal(err)
	}
}
