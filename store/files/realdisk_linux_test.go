package files

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/engine/blob"
)

// TestRealFullDisk fills a small file system. It needs the right to mount one.
func TestRealFullDisk(t *testing.T) {
	folder := t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("cannot mount a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, 0); err != nil {
			t.Error(err)
		}
	})
	s, err := Open(t.Context(), Options{Folder: filepath.Join(folder, "blobs"), Logger: quiet, MinFreeBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	kept := 0
	for i := range 30 {
		content := bytes.Repeat([]byte{byte(i)}, 200<<10)
		_, err := s.Put(t.Context(), blob.Attachments, bytes.NewReader(content), 1<<20, "")
		if errors.Is(err, blob.ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		kept++
	}
	all, err := s.List(t.Context(), blob.Attachments, "", 100)
	if err != nil || len(all) != kept || len(all) == 0 || len(all) == 30 {
		t.Fatalf("%d blobs are kept, %d were acknowledged: %v", len(all), kept, err)
	}
	for _, hash := range all {
		r, _, err := s.Open(t.Context(), blob.Attachments, hash)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, r); err != nil || n != 200<<10 {
			t.Errorf("%s: %d bytes, %v", hash, n, err)
		}
		_ = r.Close()
	}
	if err := s.Delete(t.Context(), blob.Attachments, all[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := put(t, s, blob.Attachments, "small"); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
