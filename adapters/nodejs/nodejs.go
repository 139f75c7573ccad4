// Package nodejs looks for what harnesses written for Node.js need on this machine. Nothing of it starts more than
// `node --version`.
package nodejs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// versionTimeout bounds asking Node for its version.
const versionTimeout = 10 * time.Second

// maxManifest bounds what is read of a package.json, in bytes.
const maxManifest = 1 << 20

// Major asks Node for its version and gives the major one. An empty path looks up "node" in the PATH.
func Major(ctx context.Context, path string) (int, error) {
	if path == "" {
		path = "node"
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("failed to ask node for its version: %w", err)
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(out)), "v"), ".")
	major, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("failed to read node's version: %w", err)
	}
	return major, nil
}

// PackageVersion is the version of a package that is installed in a folder. The error is an os.ErrNotExist where it is
// not.
func PackageVersion(dir, name string) (string, error) {
	f, err := os.Open(filepath.Join(dir, "node_modules", filepath.FromSlash(name), "package.json"))
	if err != nil {
		return "", fmt.Errorf("failed to find package %s: %w", name, err)
	}
	defer func() { _ = f.Close() }()
	var manifest struct {
		Version string `json:"version"`
	}
	if err := json.NewDecoder(io.LimitReader(f, maxManifest)).Decode(&manifest); err != nil {
		return "", fmt.Errorf("failed to read package %s: %w", name, err)
	}
	return manifest.Version, nil
}
