package enginetest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestPace: what is far too late is late on any machine, what is in time is not, and a slow machine gets more time.
func TestPace(t *testing.T) {
	folder := t.TempDir()
	if err := FolderPace(t.Context(), folder).Within("it came", 24*time.Hour, time.Second); err == nil {
		t.Error("a day is taken for a second")
	}
	if err := FolderPace(t.Context(), folder).Within("it came", time.Second, time.Second); err != nil {
		t.Error(err)
	}
	slow := &Pace{stop: func() {}, done: make(chan struct{}), slow: time.Second}
	close(slow.done)
	if err := slow.Within("it came", 15*time.Second, time.Second); err != nil {
		t.Error(err)
	}
	if _, err := FolderPace(t.Context(), filepath.Join(folder, "nowhere")).Slowest(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("where nothing can be written, the machine's pace is %v", err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestRelease: the gate is opened in each workspace of the conversation and in no other's.
func TestRelease(t *testing.T) {
	data := t.TempDir()
	e := &Engine{opts: Options{Data: data}}
	at := func(session string) string {
		return filepath.Join(data, "sandboxes", "state", session, "1", "workspace")
	}
	for _, session := range []string{"ses_a", "ses_b"} {
		if err := os.MkdirAll(at(session), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	open := func(session string) bool {
		_, err := os.Stat(filepath.Join(at(session), gate))
		return err == nil
	}
	if err := e.Release(t.Context(), "ses_a"); err != nil || !open("ses_a") || open("ses_b") {
		t.Errorf("one: %v, open %t and %t", err, open("ses_a"), open("ses_b"))
	}
	if err := e.Release(t.Context(), ""); err != nil || !open("ses_b") {
		t.Errorf("all: %v, open %t", err, open("ses_b"))
	}
}
