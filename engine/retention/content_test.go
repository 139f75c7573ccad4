package retention_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/retention"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/engine/thread"
	"github.com/harness-engine/harness-engine/store/files"
)

// TestContentThatNothingNames makes content of every kind, old and young, named and not, and removes what it may.
func TestContentThatNothingNames(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	dir := t.TempDir()
	blobs, err := files.Open(ctx, files.Options{Folder: dir, Logger: slog.New(slog.DiscardHandler), MinFreeBytes: -1})
	w.must(err)
	defer blobs.Close()
	old := time.Now().Add(-retention.ContentAge - time.Hour)

	// place says where a blob is, and makes it old.
	age := func(hash string) {
		t.Helper()
		found := 0
		w.must(filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Name() == hash {
				found++
				err = os.Chtimes(path, old, old)
			}
			return err
		}))
		if found == 0 {
			t.Fatalf("there is no blob %s", hash)
		}
	}
	state := func(sessionID string, epoch int64, content string) string {
		t.Helper()
		sum := sha256.Sum256([]byte(content))
		h, err := thread.Threads{Blobs: blobs}.Save(ctx, sessionID, epoch, "run_1", session.Head{}, harness.State{
			Hash: hex.EncodeToString(sum[:]), Size: int64(len(content)), Body: io.NopCloser(strings.NewReader(content)),
		})
		w.must(err)
		return h.Ref
	}
	attach := func(content string, at time.Time) file.Attachment {
		t.Helper()
		ref, err := blobs.Put(ctx, blob.Attachments, bytes.NewReader([]byte(content)), 100, "")
		w.must(err)
		a := file.Attachment{ID: "att_" + content, Environment: "dev", Owner: "alice", Name: "a", MediaType: "text/plain", Size: ref.Size, Hash: ref.Hash, CreatedAt: at.UTC().Truncate(time.Millisecond)}
		w.must(w.InsertAttachment(ctx, a))
		return a
	}

	head, before, failed := state("ses_a", 2, "head"), state("ses_a", 2, "before"), state("ses_a", 2, "young")
	cleared, stray := state("ses_a", 1, "cleared"), state("ses_gone", 1, "stray")
	w.binding("a", func(b *session.Binding) {
		b.ID, b.Epoch, b.Head = "ses_a", 2, session.Head{Rev: 1, Ref: head, Hash: head}
	})
	sent, unsent, fresh := attach("sent", old), attach("unsent", old), attach("fresh", time.Now())
	w.ended("run_1", when, 1, func(r *run.Run) { r.Input.Attachments = []file.Attachment{sent} })
	for _, hash := range []string{head, before, cleared, stray, sent.Hash, unsent.Hash} {
		age(hash)
	}

	cleaner := retention.NewCleaner(retention.CleanerOptions{Content: w.Store, Blobs: blobs})
	release, err := files.Hold(ctx, dir)
	w.must(err)
	if n, err := cleaner.Clean(ctx); n != 0 || err != nil {
		t.Fatalf("while blobs are held: %d, %v", n, err)
	}
	release()
	if n, err := cleaner.Clean(ctx); n != 4 || err != nil {
		t.Fatalf("removed %d, %v, want 4", n, err)
	}
	there := func(space blob.Space, hash string) bool {
		body, _, err := blobs.Open(ctx, space, hash)
		if err == nil {
			_ = body.Close()
		}
		return err == nil
	}
	for name, c := range map[string]struct {
		space blob.Space
		hash  string
		want  bool
	}{
		"head":            {thread.SpaceOf("ses_a", 2), head, true},
		"state before":    {thread.SpaceOf("ses_a", 2), before, false},
		"young state":     {thread.SpaceOf("ses_a", 2), failed, true},
		"cleared epoch":   {thread.SpaceOf("ses_a", 1), cleared, false},
		"no session":      {thread.SpaceOf("ses_gone", 1), stray, false},
		"sent":            {blob.Attachments, sent.Hash, true},
		"never sent":      {blob.Attachments, unsent.Hash, false},
		"not sent so far": {blob.Attachments, fresh.Hash, true},
	} {
		if got := there(c.space, c.hash); got != c.want {
			t.Errorf("%s: there %t, want %t", name, got, c.want)
		}
	}
	// The same content again, whatever became of it before.
	again := attach("unsent2", time.Now())
	again.Hash = unsent.Hash
	ref, err := blobs.Put(ctx, blob.Attachments, strings.NewReader("unsent"), 100, "")
	if n, cleaning := cleaner.Clean(ctx); err != nil || cleaning != nil || n != 0 || !there(blob.Attachments, ref.Hash) {
		t.Fatalf("content that was stored again: %v, %d, %v", err, n, cleaning)
	}
}

// TestCleaningUnderUploads stores the same few contents again and again while they are removed as fast as they can be: whoever
// has stored one finds it for as long as it is young.
func TestCleaningUnderUploads(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	blobs, err := files.Open(ctx, files.Options{Folder: t.TempDir(), Logger: slog.New(slog.DiscardHandler), MinFreeBytes: -1})
	w.must(err)
	defer blobs.Close()
	done := make(chan error)
	stop := make(chan struct{})
	// Content is deleted when it is older than young by the file system's clock, which ticks some milliseconds behind.
	const young, tick = 200 * time.Millisecond, 20 * time.Millisecond
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			for i := range 4 {
				sum := sha256.Sum256([]byte(fmt.Sprint(i)))
				if _, err := blobs.DeleteOld(ctx, blob.Attachments, hex.EncodeToString(sum[:]), time.Now().Add(-young)); err != nil {
					done <- err
					return
				}
			}
		}
	}()
	for n := range 200 {
		begun := time.Now()
		ref, err := blobs.Put(ctx, blob.Attachments, strings.NewReader(fmt.Sprint(n%4)), 10, "")
		w.must(err)
		body, _, err := blobs.Open(ctx, blob.Attachments, ref.Hash)
		if err != nil && time.Since(begun) < young-tick {
			t.Fatalf("content %d is gone %s after it was stored: %v", n, time.Since(begun), err)
		}
		if err == nil {
			_ = body.Close()
		}
	}
	close(stop)
	w.must(<-done)
}
