// Package enginetest runs a built engine from outside, as its operators and clients do: it starts, kills and restarts
// the process, looks at the processes that the engine leaves, and speaks GraphQL with it over HTTP and WebSocket. The
// end-to-end tests, the demo and the benchmarks are built on it.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Programs that a built engine consists of.
const (
	engineProgram = "harness-engine"
	workerProgram = "harness-worker"
)

// What has to be installed before the harnesses can run: the one in the Node folder, the other in the folder beside it.
const (
	agentPackage  = "deepagents"
	claudePackage = "@agentclientprotocol/claude-agent-acp"
	claudeSuffix  = "-claude"
)

// Binaries names the built programs and the folder of the Node agents.
type Binaries struct {
	Engine  string // path of harness-engine
	Worker  string // path of harness-worker
	NodeDir string // folder worker/node of the source tree
}

// FindBinaries takes the programs from the folder dir, which `make build` fills.
func FindBinaries(dir string) (Binaries, error) {
	root, err := sourceRoot()
	if err != nil {
		return Binaries{}, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return Binaries{}, fmt.Errorf("failed to resolve folder %s: %w", dir, err)
	}
	b := Binaries{
		Engine:  filepath.Join(dir, engineProgram),
		Worker:  filepath.Join(dir, workerProgram),
		NodeDir: filepath.Join(root, "worker", "node"),
	}
	for _, p := range []string{b.Engine, b.Worker} {
		if _, err := os.Stat(p); err != nil {
			return Binaries{}, fmt.Errorf("failed to find %s: run `make build` first: %w", filepath.Base(p), err)
		}
	}
	return b, nil
}

// Build builds the programs of this source tree into dir, with the build tags.
func Build(ctx context.Context, dir string, tags ...string) (Binaries, error) {
	root, err := sourceRoot()
	if err != nil {
		return Binaries{}, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", strings.Join(tags, ","), "-o", dir+string(filepath.Separator), "./cmd/"+engineProgram, "./cmd/"+workerProgram)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return Binaries{}, fmt.Errorf("failed to build the engine: %w\n%s", err, out)
	}
	return FindBinaries(dir)
}

// DependOnSources reads every folder of the source tree that has a part in the built programs. The go command keeps a
// test's result until a file changes that the test depends on or has looked at, and a test of a built program depends
// on none of that program's packages.
func DependOnSources() error {
	root, err := sourceRoot()
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("failed to look at the sources: %w", err)
		}
		if d.IsDir() && slices.Contains(notSources, d.Name()) {
			return filepath.SkipDir
		}
		return nil
	})
}

// notSources are folders of the source tree with nothing to build.
var notSources = []string{".git", "node_modules", "data", "results", "bin", "testdata", "docs"}

// CheckNode tells what is missing before the deepagents harness can run; it never says less than how to get it.
func (b Binaries) CheckNode() error { return checkPackage(b.NodeDir, agentPackage) }

// CheckClaude is CheckNode for the claude_agent_sdk harness.
func (b Binaries) CheckClaude() error { return checkPackage(b.NodeDir+claudeSuffix, claudePackage) }

func checkPackage(folder, name string) error {
	if _, err := exec.LookPath("node"); err != nil {
		return errors.New("node is not installed: install Node 20 or newer (https://nodejs.org), then run `make node`")
	}
	if _, err := os.Stat(filepath.Join(folder, "node_modules", filepath.FromSlash(name), "package.json")); err != nil {
		return fmt.Errorf("the package %s is not installed: run `make node`", name)
	}
	return nil
}

// sourceRoot is the folder of the module, found from this file's own place in it.
func sourceRoot() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if ok && filepath.IsAbs(file) {
		return filepath.Dir(filepath.Dir(filepath.Dir(file))), nil
	}
	// Built with -trimpath: the tools are run in the source tree.
	for dir, err := os.Getwd(); err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return "", errors.New("failed to find the source tree: run from within it")
}
