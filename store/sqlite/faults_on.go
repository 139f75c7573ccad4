//go:build faults

package sqlite

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"github.com/harness-engine/harness-engine/store/sqlite/internal/faultdisk"
)

// faultsVariable names the file in which the tester puts one order at a time.
const faultsVariable = "HARNESS_STORE_FAULTS"

// maxOrder bounds an order, in bytes.
const maxOrder = 1 << 10

// Kinds of orders. Each but "full" is for the transaction that takes it.
const (
	orderDelay   = "delay"   // wait before the transaction begins
	orderHold    = "hold"    // wait in the transaction, before its COMMIT
	orderRefuse  = "refuse"  // write nothing and say so
	orderUnknown = "unknown" // commit, and say that the outcome is not known
	orderIO      = "io"      // the disk fails to write the commit's first frame
	orderFsync   = "fsync"   // the disk fails to sync the commit, and every later one
	orderFull    = "full"    // there is no room, but the reserve's, for a time
	orderLie     = "lie"     // write nothing and claim to have: what must never be, to prove those who look for it
)

// order is what the file holds.
type order struct {
	Kind string `json:"kind"`
	Ms   int64  `json:"ms"` // how long, where the kind takes a time
	// After is how many transactions go well before.
	After int64 `json:"after"`
}

// faults take an order at the beginning of a transaction. The file is removed when its order is taken: so the tester
// sees that it was, and no order is taken twice. Only the committer calls begin, ending and answer.
type faults struct {
	path    string
	disk    *faultdisk.Disk
	reserve string
	next    *order // taken, and not due yet
	now     order
	full    atomic.Int64 // until when there is no room, Unix nanoseconds
}

// loadFaults puts the store on a file system that can fail. Without the variable there are no faults.
func loadFaults(o *Options) (*faults, error) {
	path := os.Getenv(faultsVariable)
	if path == "" {
		return nil, nil
	}
	d, err := faultdisk.New()
	if err != nil {
		return nil, err
	}
	o.vfs = d.Name
	f := &faults{path: path, disk: d, reserve: newDisk(*o).reservePath()}
	d.Fill(func() bool {
		if !f.isFull() {
			return false
		}
		_, err := os.Stat(f.reserve) // given up, its room is there for what is vital
		return err == nil
	})
	return f, nil
}

// begin takes an order, if there is one.
func (f *faults) begin() error {
	if f == nil {
		return nil
	}
	f.now = order{}
	if err := f.take(); err != nil {
		return fmt.Errorf("failed to take an order for a fault: %w", err)
	}
	if f.next == nil {
		return nil
	}
	if f.next.After--; f.next.After >= 0 {
		return nil
	}
	f.now, f.next = *f.next, nil
	switch f.now.Kind {
	case orderDelay:
		time.Sleep(f.now.time())
	case orderRefuse:
		return errors.New("write refused by order")
	case orderIO:
		f.disk.FailCommit(false)
	case orderFsync:
		f.disk.FailCommit(true)
	case orderFull:
		f.full.Store(time.Now().Add(f.now.time()).UnixNano())
	case orderHold, orderUnknown, orderLie:
	default:
		return fmt.Errorf("failed to take an order for a fault: %.32q is none", f.now.Kind)
	}
	return nil
}

// take reads the order that waits, if there is one.
func (f *faults) take() error {
	raw, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.Remove(f.path)
	}
	if err == nil && len(raw) > maxOrder {
		err = errors.New("order is too long")
	}
	var o order
	if err == nil {
		err = json.Unmarshal(raw, &o)
	}
	if err == nil {
		f.next = &o
	}
	return err
}

// ending waits in the transaction, and gives the statement that ends it.
func (f *faults) ending() string {
	switch {
	case f != nil && f.now.Kind == orderHold:
		time.Sleep(f.now.time())
	case f != nil && f.now.Kind == orderLie:
		return rollbackGroup
	}
	return commitGroup
}

// answer is the error of a transaction that was committed.
func (f *faults) answer() error {
	if f != nil && f.now.Kind == orderUnknown {
		return fmt.Errorf("%w: by order", errUnknown)
	}
	return nil
}

func (f *faults) isFull() bool { return time.Now().UnixNano() < f.full.Load() }

// freeBytes is what an imitated disk has free; ok where there is one.
func (f *faults) freeBytes() (free int64, ok bool) { return 0, f != nil && f.isFull() }

func (o order) time() time.Duration { return time.Duration(o.Ms) * time.Millisecond }
