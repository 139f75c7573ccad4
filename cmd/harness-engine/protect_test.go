package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// asMain makes the test program behave as the engine's own.
const asMain = "HARNESS_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	if data := os.Getenv(asStopped); data != "" {
		fmt.Fprintln(os.Stderr, beInCommit(data))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestKeysAreOutOfReach runs the program with a key in its environment, and looks for that as another process of the
// same user does, for instance a worker without isolation.
func TestKeysAreOutOfReach(t *testing.T) {
	const key = "sk-canary"
	environ := func(cmd *exec.Cmd) ([]byte, error) {
		t.Helper()
		cmd.Env = append(os.Environ(), asMain+"=1", "ANTHROPIC_API_KEY="+key)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var raw []byte
		var failed error
		unprivileged(t, func() {
			if err = cmd.Start(); err != nil {
				return
			}
			if _, err = out.Read(make([]byte, 1)); err == nil { // it is at work
				raw, failed = os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/environ")
			}
			_ = cmd.Process.Signal(syscall.SIGTERM)
		})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		return raw, failed
	}
	raw, err := environ(exec.Command(os.Args[0], "serve", "--dev", "--addr", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "d"),
		"--worker-binary", os.Args[0])) // none is started
	if err == nil || bytes.Contains(raw, []byte(key)) {
		t.Error("another process of the user can read the engine's environment")
	}
	raw, err = environ(exec.Command("yes"))
	if err != nil || !bytes.Contains(raw, []byte(key)) {
		t.Errorf("the environment of an unprotected program was not readable either, so this shows nothing: %v", err)
	}
}

// unprivileged calls f on a thread without capabilities, which the programs that it starts have not either.
func unprivileged(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) // only root may, and need
		}
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		err := unix.Capset(&header, &none[0])
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
