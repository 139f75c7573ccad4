package sqlite

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/store/sqlite/internal/faultdisk"
	"github.com/harness-engine/harness-engine/store/storetest"
)

func TestMain(m *testing.M) {
	storetest.Main(m, func(location string) (storetest.Stores, error) {
		s, err := Open(context.Background(), Options{Path: location, Logger: quiet})
		return stores(s, nil), err
	}, func() error { return goleak.Find() })
}

var quiet = slog.New(slog.DiscardHandler)

// stores names the store by the ports that it implements.
func stores(s *Store, d *faultdisk.Disk) storetest.Stores {
	out := storetest.Stores{Log: s, Sessions: s, Runs: s, Agents: s, Files: s, Values: s, Retention: s, Content: s}
	if s == nil || d == nil {
		return out
	}
	out.Location, out.Close = s.opts.Path, s.Close
	out.Reopen = func(t *testing.T) storetest.Stores {
		d.Heal()
		return stores(openAt(t, Options{Path: s.opts.Path, vfs: d.Name}), d)
	}
	out.Faults = storetest.Faults{
		FailCommit: d.FailCommit,
		FillDisk:   func() { d.Fill(func() bool { return true }) },
		FreeDisk:   d.Heal,
	}
	return out
}

// openAt opens a store that the end of the test closes.
func openAt(t *testing.T, o Options) *Store {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("failed to close: %v", err)
		}
	})
	return s
}

func newPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "data", "engine.db")
}

func TestSuite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Stores {
		d := newFaultDisk(t)
		return stores(openAt(t, Options{Path: newPath(t), vfs: d.Name}), d)
	})
}
