package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/harness-engine/harness-engine/store/replicas"
)

// dataFolder is where the engines of one host keep everything. Only this user may read it.
type dataFolder string

// Names of what is in a data folder.
const (
	fileStore    = "engine.sqlite"
	fileOpenFGA  = "openfga.sqlite"
	fileTokenKey = "token.key" // signs development tokens
	dirReplicas  = "replicas"  // the engines that run on the folder
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

// endpoint is where an engine listens, for tools on the same machine.
type endpoint struct {
	Addr string
	PID  int
}

// errNoEngine: no engine runs on the data folder.
var errNoEngine = errors.New("no engine runs on the data folder")

// running finds an engine of the folder, or errNoEngine.
func (d dataFolder) running(ctx context.Context) (endpoint, error) {
	living, err := replicas.Living(ctx, d.path(dirReplicas))
	if err != nil {
		return endpoint{}, err
	}
	for _, e := range living {
		if e.Addr != "" { // else it is still starting
			return endpoint{Addr: e.Addr, PID: e.PID}, nil
		}
	}
	return endpoint{}, errNoEngine
}
