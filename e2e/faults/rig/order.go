package rig

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// Environment of engines under test.
const (
	// StoreFaults names the file in which an engine's store, built with the tag faults, finds its next fault.
	StoreFaults = "HARNESS_STORE_FAULTS"
	// WorkerRecord names the folder of the workers' records.
	WorkerRecord = "HARNESS_WORKER_RECORD"
)

// Order puts the store's next fault into the file that StoreFaults names. The store removes the file when it takes it.
func Order(path, kind string, d time.Duration) error {
	raw, err := json.Marshal(struct {
		Kind string `json:"kind"`
		Ms   int64  `json:"ms"`
	}{kind, d.Milliseconds()})
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(path+".new", raw, 0o600), os.Rename(path+".new", path)); err != nil {
		return fmt.Errorf("failed to order a fault: %w", err)
	}
	return nil
}
