package broker

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/internal/fakemodel"
)

func TestTheSocket(t *testing.T) {
	b := newBench(t, http.NotFoundHandler(), nil)
	info, err := os.Stat(b.socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if _, err := b.broker.Listen(b.socket); err == nil || !strings.Contains(err.Error(), "another engine") {
		t.Errorf("a second listener: %v", err)
	}
	if _, err := b.broker.Listen(filepath.Join(filepath.Dir(b.socket), strings.Repeat("x", 108))); err == nil || !strings.Contains(err.Error(), "at most 107") {
		t.Errorf("a long path: %v", err)
	}
	// What a killed engine leaves: the file, with nobody behind it.
	left := filepath.Join(filepath.Dir(b.socket), "left.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	l, err := b.broker.Listen(left)
	if err != nil {
		t.Fatalf("after a kill: %v", err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err, open := <-l.Done(); open && err != nil {
		t.Error(err)
	}
	file := filepath.Join(filepath.Dir(b.socket), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.broker.Listen(file); err == nil {
		t.Error("a file was taken for a socket")
	}
	if raw, _ := os.ReadFile(file); string(raw) != "precious" {
		t.Error("the file is gone")
	}
}

// Closing in mid-stream must look like a cut, not like the end of the answer.
func TestClosingCutsWhatGoesOn(t *testing.T) {
	b := newBench(t, fakemodel.New(fakemodel.Options{}), nil)
	l, err := b.broker.Listen(b.socket + "2")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", l.Path())
	}}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Do(b.request("POST", "/model/anthropic/v1/messages", say("[[text 1]][[hang]]")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if raw, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("the answer looks whole: %s", raw)
	}
}
