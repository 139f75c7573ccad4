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

// Order puts the store's next fault into the file that StoreFaults names: of the transaction that comes after so many others.
// The store removes the file when it takes it, which is in the next one.
func Order(path, kind string, d time.Duration, after int) error {
	raw, err := json.Marshal(struct {
		Kind  string `json:"kind"`
		Ms    int64  `json:"ms"`
		After int    `json:"after"`
	}{kind, d.Milliseconds(), after})
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(path+".new", raw, 0o600), os.Rename(path+".new", path)); err != nil {
		return fmt.Errorf("failed to order a fault: %w", err)
	}
	return nil
}
