package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/sandbox"
	"github.com/harness-engine/harness-engine/sandbox/process"
	"github.com/harness-engine/harness-engine/worker"
)

// one runs a check that finds one thing.
func one(t *testing.T, look check, c doctorCmd) finding {
	t.Helper()
	found := look(t.Context(), c)
	if len(found) == 0 {
		t.Fatal("nothing was found")
	}
	return found[0]
}

func wantResult(t *testing.T, f finding, want verdict, detail string) {
	t.Helper()
	if f.Result != want || !strings.Contains(f.Detail+f.Help, detail) {
		t.Errorf("got %+v, want %s with %q", f, want, detail)
	}
	if (f.Result == verdictMissing) && f.Help == "" {
		t.Errorf("%s does not say how to get it", f.Check)
	}
}

func write(t *testing.T, path, content string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDoctorLooksForPrograms(t *testing.T) {
	dir := t.TempDir()
	wantResult(t, one(t, checkWorker, doctorCmd{WorkerBinary: write(t, dir+"/w", "#!/bin/sh\n", 0o755)}), verdictOK, dir)
	wantResult(t, one(t, checkWorker, doctorCmd{WorkerBinary: write(t, dir+"/x", "", 0o644)}), verdictMissing, "cannot be run")
	wantResult(t, one(t, checkWorker, doctorCmd{WorkerBinary: dir + "/nothing"}), verdictMissing, "make build")

	for version, want := range map[string]verdict{"v20.1.0": verdictOK, "v22.0.0": verdictOK, "v18.20.1": verdictMissing, "nonsense": verdictMissing} {
		write(t, dir+"/bin/node", "#!/bin/sh\necho "+version+"\n", 0o755)
		t.Setenv("PATH", dir+"/bin")
		wantResult(t, one(t, checkNode, doctorCmd{}), want, version)
	}
	t.Setenv("PATH", dir)
	wantResult(t, one(t, checkNode, doctorCmd{}), verdictMissing, "nodejs.org")
}

func TestDoctorComparesPackages(t *testing.T) {
	node := t.TempDir() + "/node"
	write(t, node+"/package.json", `{"dependencies":{"@a/b":"1.2.3","c":"4.5.6"}}`, 0o644)
	write(t, node+"-other/package.json", `{"dependencies":{"d":"1.0.0"}}`, 0o644)
	look := func() []finding { return checkNodePackages(context.Background(), doctorCmd{NodeDir: node}) }
	found := look()
	if len(found) != 2 {
		t.Fatalf("got %+v", found)
	}
	wantResult(t, found[0], verdictMissing, "@a/b is not installed; c is not installed")
	wantResult(t, found[1], verdictNote, "d is not installed")

	write(t, node+"/node_modules/@a/b/package.json", `{"version":"1.2.3"}`, 0o644)
	write(t, node+"/node_modules/c/package.json", `{"version":"4.5.7"}`, 0o644)
	write(t, node+"-other/node_modules/d/package.json", `{`, 0o644)
	found = look()
	wantResult(t, found[0], verdictMissing, "c is 4.5.7, not 4.5.6")
	wantResult(t, found[1], verdictNote, "d cannot be read")

	write(t, node+"/node_modules/c/package.json", `{"version":"4.5.6"}`, 0o644)
	write(t, node+"-other/node_modules/d/package.json", `{"version":"1.0.0"}`, 0o644)
	for _, f := range look() {
		wantResult(t, f, verdictOK, "exact version")
	}
	wantResult(t, one(t, checkNodePackages, doctorCmd{NodeDir: node + "-none"}), verdictMissing, "make node")
}

func TestDoctorLooksAtTheDataFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	wantResult(t, one(t, checkDataFolder, doctorCmd{Data: dir}), verdictOK, dir)
	wantResult(t, one(t, checkDataFolder, doctorCmd{Data: dir + "/a/b"}), verdictOK, "the engine makes it")
	wantResult(t, one(t, checkDataFolder, doctorCmd{Data: write(t, dir+"/file", "", 0o600)}), verdictMissing, "is no folder")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	wantResult(t, one(t, checkDataFolder, doctorCmd{Data: dir}), verdictNote, "chmod 700")
	wantResult(t, one(t, checkDataFolder, doctorCmd{Data: "/proc"}), verdictMissing, "cannot be written to")
	wantResult(t, one(t, checkDisk, doctorCmd{Data: "/proc"}), verdictMissing, "0.0 GiB free") // a file system without room
	if left, err := filepath.Glob(dir + "/*"); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

// The longest path that the doctor passes is one that the engine takes, and one byte more is one that it refuses.
func TestDoctorKnowsTheLongestPath(t *testing.T) {
	base := t.TempDir()
	room := worker.MaxSocketPath - len(filepath.Join(base, "x", longestSocket)) + 1
	if room < 2 {
		t.Skipf("the folder for temporary files has a path of %d bytes", len(base))
	}
	backend, err := process.New(process.Options{AllowUnisolated: true, Worker: "/bin/sh"})
	if err != nil {
		t.Fatal(err)
	}
	for extra, want := range map[int]verdict{0: verdictOK, 1: verdictMissing} {
		data := filepath.Join(base, strings.Repeat("x", room+extra))
		wantResult(t, one(t, checkSocketPath, doctorCmd{Data: data}), want, "bytes")
		_, err := sandbox.NewManager(sandbox.Options{
			Data: filepath.Join(data, dirSandboxes), BrokerSocket: filepath.Join(data, dirReplicas, "0123456789ab"+brokerSuffix),
			Backends: map[string]sandbox.Backend{"process": backend}, Profiles: []sandbox.Profile{{ID: "process", Backend: "process"}},
		})
		if (err == nil) != (want == verdictOK) {
			t.Errorf("%d bytes more: the doctor says %s, the engine %v", extra, want, err)
		}
	}
}

func TestDoctorLooksForTheEngine(t *testing.T) {
	ready := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" && r.URL.Path != "/healthz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(ready)
	}))
	defer s.Close()
	data := folderWith(t, s.Listener.Addr().String(), false)
	c := doctorCmd{Data: string(data), Addr: "127.0.0.1:0"}
	wantResult(t, one(t, checkEngine, c), verdictOK, "ready")
	c.OpenFGAURL = s.URL + "/"
	wantResult(t, one(t, checkOpenFGA, c), verdictOK, "answers")
	ready = http.StatusServiceUnavailable
	wantResult(t, one(t, checkEngine, c), verdictNote, "not ready (503)")
	wantResult(t, one(t, checkOpenFGA, c), verdictMissing, "503")
	s.Close()
	wantResult(t, one(t, checkEngine, c), verdictNote, "does not answer")
	wantResult(t, one(t, checkOpenFGA, c), verdictMissing, "cannot be reached")
	wantResult(t, one(t, checkOpenFGA, doctorCmd{}), verdictOK, "embedded")

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	found := checkEngine(t.Context(), doctorCmd{Data: t.TempDir(), Addr: taken.Addr().String()})
	wantResult(t, found[0], verdictNote, "not running")
	wantResult(t, found[1], verdictMissing, "--addr")
}

func TestDoctorKeepsKeysToItself(t *testing.T) {
	for _, name := range []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"} {
		t.Setenv(name, "")
	}
	wantResult(t, one(t, checkModelKeys, doctorCmd{}), verdictNote, "fake model")
	t.Setenv("OPENAI_BASE_URL", "https://user:canary@example.org/v1")
	wantResult(t, one(t, checkModelKeys, doctorCmd{}), verdictNote, "without a key: openai")
	t.Setenv("OPENAI_API_KEY", "canary-key")
	f := one(t, checkModelKeys, doctorCmd{})
	wantResult(t, f, verdictOK, "openai")
	if strings.Contains(f.Detail+f.Help, "canary") {
		t.Errorf("the key shows: %+v", f)
	}
}

func TestReports(t *testing.T) {
	findings := []finding{{"a", verdictOK, "fine", ""}, {"b", verdictNote, "so so", "do this"}}
	var b strings.Builder
	if err := report(&b, findings); err != nil || !strings.Contains(b.String(), "-> do this\nEverything that is needed is there.\n") {
		t.Errorf("got %q, %v", b.String(), err)
	}
	findings = append(findings, finding{"c", verdictMissing, "none", "get it"})
	b.Reset()
	if err := report(&b, findings); err != nil || !strings.HasSuffix(b.String(), "Something that is needed is missing.\n") {
		t.Errorf("got %q, %v", b.String(), err)
	}
	b.Reset()
	if err := reportJSON(&b, findings); err != nil {
		t.Fatal(err)
	}
	var got struct {
		OK       bool      `json:"ok"`
		Findings []finding `json:"findings"`
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil || got.OK || len(got.Findings) != 3 || got.Findings[2] != findings[2] {
		t.Errorf("got %+v, %v", got, err)
	}
}
