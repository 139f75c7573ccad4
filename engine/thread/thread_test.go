package thread_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/session"
	"github.com/harness-engine/harness-engine/engine/thread"
	"github.com/harness-engine/harness-engine/store/files"
)

func state(content string) harness.State {
	sum := sha256.Sum256([]byte(content))
	return harness.State{Codec: "text", Hash: hex.EncodeToString(sum[:]), Size: int64(len(content)), Body: io.NopCloser(strings.NewReader(content))}
}

func threads(t *testing.T) thread.Threads {
	t.Helper()
	s, err := files.Open(t.Context(), files.Options{Folder: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return thread.Threads{Blobs: s}
}

func read(ctx context.Context, s *harness.Snapshot) (string, error) {
	body, err := s.Open(ctx)
	if err != nil {
		return "", err
	}
	defer body.Close()
	raw, err := io.ReadAll(body)
	return string(raw), err
}

func TestHeadsOfAThread(t *testing.T) {
	ctx, th := t.Context(), threads(t)
	if th.Snapshot("ses_a", 1, session.Head{}) != nil {
		t.Fatal("a thread without a head has a snapshot")
	}
	first, err := th.Save(ctx, "ses_a", 1, "run_1", session.Head{}, state("one"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := th.Save(ctx, "ses_a", 1, "run_2", first, state("two"))
	if err != nil {
		t.Fatal(err)
	}
	if first.Rev != 1 || second.Rev != 2 || second.ByRun != "run_2" || second.Size != 3 {
		t.Fatalf("heads %+v, %+v", first, second)
	}
	// Equal bytes of another epoch and of another conversation are their own.
	for _, other := range []struct {
		id    string
		epoch int64
	}{{"ses_a", 2}, {"ses_b", 1}} {
		if _, err := th.Save(ctx, other.id, other.epoch, "run_3", session.Head{}, state("one")); err != nil {
			t.Fatal(err)
		}
	}
	if err := th.Keep(ctx, "ses_a", 1, second); err != nil {
		t.Fatal(err)
	}
	if got, err := read(ctx, th.Snapshot("ses_a", 1, second)); err != nil || got != "two" {
		t.Fatalf("head: %q, %v", got, err)
	}
	if _, err := read(ctx, th.Snapshot("ses_a", 1, first)); !errors.Is(err, blob.ErrNotFound) {
		t.Fatalf("older state: %v", err)
	}
	if err := th.Keep(ctx, "ses_a", 1, session.Head{}); err != nil {
		t.Fatal(err)
	}
	for _, other := range []struct {
		id    string
		epoch int64
	}{{"ses_a", 2}, {"ses_b", 1}} {
		if got, err := read(ctx, th.Snapshot(other.id, other.epoch, first)); err != nil || got != "one" {
			t.Fatalf("state of %s/%d: %q, %v", other.id, other.epoch, got, err)
		}
	}
}

func TestDamagedStateIsRefused(t *testing.T) {
	s := state("one")
	s.Body = io.NopCloser(strings.NewReader("other"))
	if _, err := threads(t).Save(t.Context(), "ses_a", 1, "run_1", session.Head{}, s); !errors.Is(err, blob.ErrHash) {
		t.Fatalf("saved: %v", err)
	}
}
