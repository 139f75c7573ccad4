package files

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/store/internal/folder"
	"github.com/harness-engine/harness-engine/store/storetest"
)

var quiet = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) {
	storetest.MainBlobs(m, func(location string) (storetest.Blobs, error) {
		s, err := Open(context.Background(), Options{Folder: location, Logger: quiet})
		return storetest.Blobs{Store: s}, err
	}, func() error { return goleak.Find() })
}

// disk is the real disk, with a switch that lets no write find room.
type disk struct {
	full atomic.Bool
}

func (d *disk) system() *system {
	s := realSystem
	s.create = func(path string) (file, error) {
		f, err := realSystem.create(path)
		return fullFile{f, d}, err
	}
	return &s
}

type fullFile struct {
	file
	disk *disk
}

func (f fullFile) Write(p []byte) (int, error) {
	if f.disk.full.Load() {
		n, _ := f.file.Write(p[:len(p)/2]) // a disk is full in the middle of a write
		return n, &os.PathError{Op: "write", Path: "file", Err: syscall.ENOSPC}
	}
	return f.file.Write(p)
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
		if left, err := os.ReadDir(filepath.Join(s.root, newName)); err != nil || len(left) != 0 {
			t.Errorf("left unfinished: %v, %v", left, err)
		}
	})
	return s
}

func blobs(s *Store, d *disk) storetest.Blobs {
	return storetest.Blobs{
		Store: s, Location: s.root, Close: s.Close,
		Reopen: func(t *testing.T) storetest.Blobs {
			d.full.Store(false)
			return blobs(openAt(t, s.opts), d)
		},
		Faults: storetest.BlobFaults{
			FillDisk: func() { d.full.Store(true) },
			FreeDisk: func() { d.full.Store(false) },
			Damage: func(t *testing.T, space blob.Space, hash string, how func([]byte) []byte) {
				path, err := s.path(space, hash)
				if err != nil {
					t.Fatal(err)
				}
				was, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, how(was), folder.FileMode); err != nil {
					t.Fatal(err)
				}
			},
		},
	}
}

func TestSuite(t *testing.T) {
	storetest.RunBlobs(t, func(t *testing.T) storetest.Blobs {
		d := &disk{}
		return blobs(openAt(t, Options{Folder: filepath.Join(t.TempDir(), "data", "blobs"), system: d.system()}), d)
	})
}
