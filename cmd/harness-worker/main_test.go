package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinksNothingThatItMustNot: what runs beside model-directed code has no store, no authorization and no GraphQL in
// it, and no cloud SDK.
func TestLinksNothingThatItMustNot(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 50 {
		t.Fatalf("go list names only %d packages", len(deps))
	}
	const ours = "github.com/harness-engine/harness-engine/"
	forbidden := []string{
		ours + "store", ours + "openfga", ours + "graph", ours + "resolvers", ours + "transport", ours + "broker", ours + "sandbox",
		ours + "gateway", ours + "cmd/harness-engine", ours + "engine/run", ours + "engine/session", ours + "engine/agent",
		ours + "engine/catalog", ours + "engine/authz",
		"github.com/openfga/", "github.com/99designs/", "github.com/vektah/", "modernc.org/", "go.mongodb.org/",
		"github.com/aws/", "k8s.io/", "google.golang.org/grpc", "github.com/gorilla/",
	}
	for _, d := range deps {
		if d == "database/sql" { // not its driver package, whose interface ids implement
			t.Errorf("links %s", d)
		}
		for _, f := range forbidden {
			if strings.HasPrefix(d, f) {
				t.Errorf("links %s", d)
			}
		}
	}
}

func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := openLog(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if n, err := l.Write(bytes.Repeat([]byte{byte('a' + i%26)}, 30)); n != 30 || err != nil {
			t.Fatalf("%d %v", n, err)
		}
	}
	l.close()
	if n, err := l.Write([]byte("late")); n != 4 || err != nil {
		t.Fatalf("%d %v", n, err)
	}
	for _, p := range []string{path, path + ".1"} {
		st, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if st.Size() > 100 || st.Size() == 0 || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %d bytes, mode %v", filepath.Base(p), st.Size(), st.Mode())
		}
	}
	// The next process goes on where this one ended.
	if l, err = openLog(path, 100); err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if l.size == 0 {
		t.Error("the old size is not known")
	}
}

func TestSecret(t *testing.T) {
	dir := t.TempDir()
	write := func(content string, mode os.FileMode) string {
		path := filepath.Join(dir, "secret")
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := strings.Repeat("s", minSecret)
	if got, err := readSecret(write(good+"\n", 0o600)); err != nil || got != good {
		t.Errorf("%q %v", got, err)
	}
	for name, path := range map[string]func() string{
		"missing":  func() string { return filepath.Join(dir, "none") },
		"short":    func() string { return write(good[1:], 0o600) },
		"long":     func() string { return write(strings.Repeat("s", maxSecret+1), 0o600) },
		"readable": func() string { return write(good, 0o640) },
	} {
		if got, err := readSecret(path()); err == nil {
			t.Errorf("%s: took %q", name, got)
		} else if strings.Contains(err.Error(), "sss") {
			t.Errorf("%s: the error holds the secret: %v", name, err)
		}
	}
}

// TestCommandLine: bad ones are refused with a message that names the flag, and nothing is left.
func TestCommandLine(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "harness-worker")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("s", minSecret)), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	with := func(args ...string) []string {
		return append([]string{"--socket", socket, "--secret-file", secret, "--mark", "m"}, args...)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"nothing":         {nil, "missing flags"},
		"unknown flag":    {with("--state", dir, "--workspace", dir, "--secret", "x"), "unknown flag --secret"},
		"state missing":   {with("--state", dir+"/none", "--workspace", dir), "--state: not a folder"},
		"workspace":       {with("--state", dir, "--workspace", secret), "--workspace: not a folder"},
		"level":           {with("--state", dir, "--workspace", dir, "--log-level", "loud"), "--log-level"},
		"no secret":       {append(with("--state", dir, "--workspace", dir), "--secret-file", dir+"/none"), "failed to read secret"},
		"socket too long": {append(with("--state", dir, "--workspace", dir), "--socket", "/"+strings.Repeat("x", 120)), "107"},
		"socket exists":   {append(with("--state", dir, "--workspace", dir), "--socket", secret), "exists already"},
	} {
		out, err := exec.Command(bin, tc.args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("%s: %v %s, want %q", name, err, out, tc.want)
		}
	}
	if _, err := os.Lstat(socket); err == nil {
		t.Error("a socket is left")
	}
}
