package nodejs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestMajor(t *testing.T) {
	for output, want := range map[string]int{"echo v22.1.0": 22, "echo 20.0.0": 20, "echo hello": 0, "exit 3": 0, "echo": 0, "echo v99999999999999999999": 0} {
		path := filepath.Join(t.TempDir(), "node")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+output+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if got, err := Major(t.Context(), path); got != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %d, %v", output, got, err)
		}
	}
	if _, err := Major(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a program that is not there has a version")
	}
}

func TestPackageVersion(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "node_modules", "@scope", "name")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := PackageVersion(dir, "@scope/name"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("not installed: %v", err)
	}
	for manifest, want := range map[string]string{`{"version":"1.2.3"}`: "1.2.3", `{`: "", `{"version":7}`: "", `{}`: ""} {
		if err := os.WriteFile(filepath.Join(folder, "package.json"), []byte(manifest), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := PackageVersion(dir, "@scope/name"); got != want || (err == nil) != (want != "" || manifest == `{}`) {
			t.Errorf("%s: %q, %v", manifest, got, err)
		}
	}
}
