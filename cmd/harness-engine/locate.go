package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// workerBinary finds harness-worker: where the operator says, else beside this binary.
func workerBinary(given string) (string, error) {
	if given != "" {
		return mustExist(given, "--worker-binary")
	}
	dir, err := ownDir()
	if err != nil {
		return "", err
	}
	return mustExist(filepath.Join(dir, "harness-worker"), "--worker-binary")
}

// nodeDir finds the Node agents: where the operator says, else in worker/node beside this binary or its folder. That
// they are not there ("") is no error: the catalog says what is missing.
func nodeDir(given string) (string, error) {
	if given != "" {
		return mustExist(given, "--node-dir")
	}
	dir, err := ownDir()
	if err != nil {
		return "", err
	}
	for _, base := range []string{dir, filepath.Dir(dir)} {
		if d := filepath.Join(base, "worker", "node"); isDir(d) {
			return d, nil
		}
	}
	return "", nil
}

// claudeDir is the folder of the Claude bridge, beside that of the Node agents; "" where there is none.
func claudeDir(node string) string {
	if dir := node + "-claude"; node != "" && isDir(dir) {
		return dir
	}
	return ""
}

func ownDir() (string, error) {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return "", fmt.Errorf("failed to find this binary: %w", err)
	}
	return filepath.Dir(exe), nil
}

func mustExist(path, flag string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	return filepath.Abs(path)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
