package sqlite

import (
	"testing"

	"github.com/harness-engine/harness-engine/store/sqlite/internal/faultdisk"
)

// newFaultDisk registers a file system for the test.
func newFaultDisk(t *testing.T) *faultdisk.Disk {
	t.Helper()
	d, err := faultdisk.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}
