package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/harness-engine/harness-engine/adapters/deepagents"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// How to get programs.
const (
	getNode   = "install Node 20 or newer (https://nodejs.org)"
	getBuild  = "run `make build`, or name it with --worker-binary"
	getAgents = "run `make node` in the source tree, or name their folder with --node-dir"
)

func checkWorker(_ context.Context, c doctorCmd) []finding {
	path, err := workerBinary(c.WorkerBinary)
	if err != nil {
		return []finding{{"worker program", verdictMissing, "harness-worker is not there: " + err.Error(), getBuild}}
	}
	if _, err := exec.LookPath(path); err != nil {
		return []finding{{"worker program", verdictMissing, path + " cannot be run: " + err.Error(), getBuild}}
	}
	return []finding{{"worker program", verdictOK, path, ""}}
}

func checkNode(ctx context.Context, _ doctorCmd) []finding {
	out, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return []finding{{"Node", verdictMissing, "node was not found or did not answer", getNode}}
	}
	version := strings.TrimSpace(string(out))
	text, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if major, err := strconv.Atoi(text); err != nil || major < deepagents.MinNodeMajor {
		return []finding{{"Node", verdictMissing, fmt.Sprintf("node is %q, %d or newer is needed", version, deepagents.MinNodeMajor), getNode}}
	}
	return []finding{{"Node", verdictOK, version, ""}}
}

// maxManifest bounds what is read of a package.json, in bytes.
const maxManifest = 1 << 20

// manifest is what counts of a package.json.
type manifest struct {
	Version      string            `json:"version"`
	Dependencies map[string]string `json:"dependencies"`
}

func readManifest(dir string) (manifest, error) {
	f, err := os.Open(filepath.Join(dir, "package.json"))
	if err != nil {
		return manifest{}, err
	}
	defer f.Close()
	var m manifest
	if err := json.NewDecoder(io.LimitReader(f, maxManifest)).Decode(&m); err != nil {
		return manifest{}, fmt.Errorf("failed to read %s: %w", f.Name(), err)
	}
	return m, nil
}

// checkNodePackages compares, folder by folder, what is installed with the exact versions that the folder asks for. The
// folders lie beside each other: that of the agents, and one for each harness with packages of its own.
func checkNodePackages(_ context.Context, c doctorCmd) []finding {
	node, err := nodeDir(c.NodeDir)
	if err == nil && node == "" {
		err = os.ErrNotExist
	}
	if err != nil {
		return []finding{{"Node packages", verdictMissing, "the folder of the Node agents is not there: " + err.Error(), getAgents}}
	}
	siblings, _ := filepath.Glob(node + "-*") // the pattern is well-formed, unless the path has brackets
	var findings []finding
	for _, dir := range append([]string{node}, siblings...) {
		m, err := readManifest(dir)
		if os.IsNotExist(err) && dir != node {
			continue
		}
		f := finding{Check: "packages " + filepath.Base(dir), Result: verdictOK}
		switch wrong := wrongPackages(dir, m); {
		case err != nil:
			f.Result, f.Detail = verdictMissing, err.Error()
		case len(wrong) > 0:
			f.Result, f.Detail = verdictMissing, strings.Join(wrong, "; ")
		default:
			f.Detail = fmt.Sprintf("%d packages, each in its exact version", len(m.Dependencies))
		}
		if f.Result != verdictOK {
			f.Help = "run `npm ci` in " + dir
			if dir != node { // only one harness is without them
				f.Result = verdictNote
			}
		}
		findings = append(findings, f)
	}
	return findings
}

// wrongPackages names the packages that are not installed in the version that is asked for.
func wrongPackages(dir string, m manifest) []string {
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(m.Dependencies)) {
		installed, err := readManifest(filepath.Join(dir, "node_modules", filepath.FromSlash(name)))
		switch {
		case os.IsNotExist(err):
			wrong = append(wrong, name+" is not installed")
		case err != nil:
			wrong = append(wrong, name+" cannot be read")
		case installed.Version != m.Dependencies[name]:
			wrong = append(wrong, fmt.Sprintf("%s is %s, not %s", name, installed.Version, m.Dependencies[name]))
		}
	}
	return wrong
}

// checkHarnesses asks each adapter what it finds. Only the default harness is something that one cannot be without.
func checkHarnesses(ctx context.Context, c doctorCmd) []finding {
	node, err := nodeDir(c.NodeDir)
	if err != nil {
		node = "" // said by checkNodePackages
	}
	var findings []finding
	for _, a := range adapters(node) {
		d, p := a.Descriptor(), a.Probe(ctx)
		f := finding{Check: "harness " + d.ID, Result: verdictOK, Detail: fmt.Sprintf("%s %s", d.DisplayName, p.HarnessVersion)}
		if p.Availability != harness.Available {
			f.Result, f.Detail, f.Help = verdictNote, string(p.Availability), p.Detail
			if d.ID == harness.Default {
				f.Result = verdictMissing
			}
		}
		findings = append(findings, f)
	}
	return findings
}
