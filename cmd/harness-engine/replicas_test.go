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

// asStopped makes the test program an engine, or with asTool an administrator's command, of the data folder that it names, at
// a commit.
const (
	asStopped = "HARNESS_TEST_AS_ENGINE_IN_COMMIT"
	asTool    = "HARNESS_TEST_AS_TOOL"
)

func beInCommit(data string) error {
	if os.Getenv(asTool) != "" {
		if _, _, err := (dataFlag{Data: data}).openShared(context.Background()); err != nil {
			return err
		}
	} else if _, err := replicas.Join(replicas.Options{Folder: filepath.Join(data, dirReplicas), Info: replicas.Info{ID: id.New(id.Boot), PID: os.Getpid()}}); err != nil {
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

// stoppedInCommit is an engine, or a tool, of the data folder that is stopped in a commit.
func stoppedInCommit(t *testing.T, data string, tool bool) {
	t.Helper()
	other := exec.Command(os.Args[0]) //nolint:gosec // the test program
	other.Env = append(os.Environ(), asStopped+"="+data)
	if tool {
		other.Env = append(other.Env, asTool+"=1")
	}
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
}

// TestStartBesideStoppedEngine: an engine that is stopped in a commit is ended by one that only starts, too: it needs to write
// before it serves. A tool that is stopped so is ended likewise, and is counted among the engines by nobody.
func TestStartBesideStoppedEngine(t *testing.T) {
	for name, tool := range map[string]bool{"engine": false, "tool": true} {
		t.Run(name, func(t *testing.T) { startBeside(t, tool) })
	}
}

// TestToolBesideStopped: an administrator's command ends who is stopped in a commit, as an engine does.
func TestToolBesideStopped(t *testing.T) {
	for name, tool := range map[string]bool{"engine": false, "tool": true} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(data, fileStore), Logger: slog.New(slog.DiscardHandler)})
			if err := errors.Join(err, s.Close()); err != nil {
				t.Fatal(err)
			}
			stoppedInCommit(t, data, tool)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, leave, err := dataFlag{Data: data}.openShared(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
			if _, err := s.PutValueIfAbsent(ctx, "test", []byte("written")); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func startBeside(t *testing.T, tool bool) {
	data := t.TempDir()
	if tool {
		s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(data, fileStore), Logger: slog.New(slog.DiscardHandler)})
		if err := errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	stoppedInCommit(t, data, tool)
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
	if tool && !e.Alone() {
		t.Error("a tool counts as an engine")
	}
	var err error
	if e.store, err = sqlite.Open(ctx, sqlite.Options{Path: e.data.path(fileStore), Blocked: e.blocked, Logger: e.log}); err != nil {
		t.Fatal(err)
	}
	e.later(func(context.Context) error { return e.store.Close() })
	if _, err := e.incarnation(ctx); err != nil {
		t.Fatalf("the start could not write: %v", err)
	}
}
