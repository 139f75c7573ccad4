// Package adaptertest checks what every adapter says of its harness, for the adapters' tests.
package adaptertest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/harness-engine/harness-engine/engine/catalog"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// Describes checks that the catalog takes the adapter, and that its capabilities are of the vocabulary. It returns those of which
// nothing is said.
func Describes(t *testing.T, a harness.Adapter) (unsaid []harness.Capability) {
	t.Helper()
	d := a.Descriptor()
	for c := range d.Capabilities {
		if !slices.Contains(harness.Capabilities, c) {
			t.Errorf("capability %s is not in the vocabulary", c)
		}
	}
	for _, c := range harness.Capabilities {
		if d.Capabilities[c] == "" {
			unsaid = append(unsaid, c)
		}
	}
	if _, err := catalog.New(t.Context(), catalog.Options{Adapters: []harness.Adapter{a}}); err != nil {
		t.Errorf("the catalog refuses it: %v", err)
	}
	return unsaid
}

// Options checks which options, as JSON, the schema takes: those that are true.
func Options(t *testing.T, schema json.RawMessage, valid map[string]bool) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("urn:options", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("urn:options")
	if err != nil {
		t.Fatal(err)
	}
	for options, want := range valid {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(options))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiled.Validate(v); (err == nil) != want {
			t.Errorf("%s: %v, want valid %v", options, err, want)
		}
	}
}

// Locked checks that packages, each name@version, are what the npm folder locks, and that its lock file holds digests and no
// registry. It returns the direct dependencies of package.json and the version of every package that is locked.
func Locked(t *testing.T, dir string, packages []string) (direct, locked map[string]string) {
	t.Helper()
	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	readJSON(t, filepath.Join(dir, "package.json"), &manifest)
	var lock struct {
		Packages map[string]struct {
			Version   string `json:"version"`
			Resolved  string `json:"resolved"`
			Integrity string `json:"integrity"`
		} `json:"packages"`
	}
	readJSON(t, filepath.Join(dir, "package-lock.json"), &lock)
	locked = map[string]string{}
	for name, p := range lock.Packages {
		locked[strings.TrimPrefix(name, "node_modules/")] = p.Version
		if name != "" && (p.Resolved != "" || p.Integrity == "") {
			t.Errorf("%s: resolved %q, integrity %q: a lock file holds digests and no registry", name, p.Resolved, p.Integrity)
		}
	}
	for _, p := range packages {
		at := strings.LastIndex(p, "@")
		if locked[p[:at]] != p[at+1:] {
			t.Errorf("%s is locked at %q", p, locked[p[:at]])
		}
	}
	return manifest.Dependencies, locked
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatal(err)
	}
}

// Folder makes a folder with files, content by slash-separated path.
func Folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Program makes a program of one line of shell, and returns its path.
func Program(t *testing.T, line string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+line+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
