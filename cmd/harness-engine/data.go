package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// dataFolder is where one engine keeps everything. Only this user may read it.
type dataFolder string

// Names of what is in a data folder.
const (
	fileStore    = "engine.sqlite"
	fileOpenFGA  = "openfga.sqlite"
	fileTokenKey = "token.key"   // signs development tokens
	fileEngine   = "engine.json" // where the running engine listens
	fileBroker   = "broker.sock"
	dirSandboxes = "sandboxes"
	dirBlobs     = "blobs" // packed thread states and attachments
)

func openDataFolder(path string) (dataFolder, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("failed to resolve data folder %s: %w", path, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return "", fmt.Errorf("failed to make data folder %s: %w", path, err)
	}
	return dataFolder(abs), nil
}

func (d dataFolder) path(name string) string { return filepath.Join(string(d), name) }

// endpoint is the content of engine.json, for tools on the same machine.
type endpoint struct {
	Addr string `json:"addr"`
	PID  int    `json:"pid"`
}

func (d dataFolder) writeEndpoint(e endpoint) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	tmp := d.path(fileEngine + ".new")
	if err := os.WriteFile(tmp, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("failed to write %s: %w", fileEngine, err)
	}
	return os.Rename(tmp, d.path(fileEngine))
}

func (d dataFolder) removeEndpoint() { _ = os.Remove(d.path(fileEngine)) }
