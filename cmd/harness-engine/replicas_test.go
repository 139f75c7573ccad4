package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/id"
	"github.com/harness-engine/harness-engine/store/replicas"
	"github.com/harness-engine/harness-engine/store/sqlite"
)

// asStopped makes the test program an engine of the data folder that it names, at a commit.
const asStopped = "HARNESS_TEST_AS_ENGINE_IN_COMMIT"

func beInCommit(data string) error {
	if _, err := replicas.Join(replicas.Options{Folder: filepath.Join(data, dirReplicas), Info: replicas.Info{ID: id.New(id.Boot), PID: os.Getpid()}}); err != nil {
		return err
	}
	gate, err := os.OpenFile(filepath.Join(data, "engine.commit"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(gate.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	fmt.Println("in commit")
	select {}
}

// TestStartBesideStoppedEngine: an engine that is stopped in a commit is ended by one that only starts, too: it needs to write
// before it serves.
func TestStartBesideStoppedEngine(t *testing.T) {
	data := t.TempDir()
	other := exec.Command(os.Args[0]) //nolint:gosec // the test program
	other.Env = append(os.Environ(), asStopped+"="+data)
	out, err := other.StdoutPipe()
	if err := errors.Join(err, other.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = other.Process.Kill(), other.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "in commit\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := other.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e := &engine{data: dataFolder(data), log: slog.New(slog.DiscardHandler)}
	defer func() {
		if err := e.close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	if err := e.join(ctx, serveCmd{Lease: minLease}, id.New(id.Boot), ""); err != nil {
		t.Fatal(err)
	}
	if e.store, err = sqlite.Open(ctx, sqlite.Options{Path: e.data.path(fileStore), Blocked: e.blocked, Logger: e.log}); err != nil {
		t.Fatal(err)
	}
	e.later(func(context.Context) error { return e.store.Close() })
	if _, err := e.incarnation(ctx); err != nil {
		t.Fatalf("the start could not write: %v", err)
	}
}
