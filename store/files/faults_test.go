package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/store"
)

// tape is the real disk that tells what was done to it, in order, and fails one step when a test says so.
type tape struct {
	root  string
	did   []string
	fail  string // the step whose name begins so
	err   error
	space int64 // free bytes; 0: as it is
}

func (d *tape) step(name, path string) error {
	rel, err := filepath.Rel(d.root, path)
	if err != nil {
		rel = path
	}
	if filepath.Dir(rel) == newName {
		rel = newName + "/*"
	}
	did := name + " " + rel
	d.did = append(d.did, did)
	if d.fail != "" && strings.HasPrefix(did, d.fail) {
		return d.err
	}
	return nil
}

func (d *tape) system() *system {
	return &system{
		create: func(path string) (file, error) {
			if err := d.step("create", path); err != nil {
				return nil, err
			}
			f, err := realSystem.create(path)
			return tapedFile{f, d, path}, err
		},
		mkdir: func(path string) error {
			if err := d.step("mkdir", path); err != nil {
				return err
			}
			return realSystem.mkdir(path)
		},
		rename: func(from, to string) error {
			if err := d.step("rename", to); err != nil {
				return err
			}
			return realSystem.rename(from, to)
		},
		sync: func(path string) error {
			if err := d.step("syncdir", path); err != nil {
				return err
			}
			return realSystem.sync(path)
		},
		free: func(path string) (int64, error) {
			if d.space != 0 {
				return d.space, nil
			}
			return realSystem.free(path)
		},
	}
}

type tapedFile struct {
	file
	tape *tape
	path string
}

func (f tapedFile) Write(p []byte) (int, error) {
	if err := f.tape.step("write", f.path); err != nil {
		return 0, err
	}
	return f.file.Write(p)
}

func (f tapedFile) Sync() error {
	if err := f.tape.step("sync", f.path); err != nil {
		return err
	}
	return f.file.Sync()
}

func (f tapedFile) Close() error {
	err := f.file.Close()
	return errors.Join(f.tape.step("close", f.path), err)
}

func taped(t *testing.T) (*Store, *tape) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "blobs")
	d := &tape{root: root}
	return openAt(t, Options{Folder: root, system: d.system()}), d
}

func put(t *testing.T, s *Store, space blob.Space, content string) (blob.Ref, error) {
	t.Helper()
	return s.Put(t.Context(), space, strings.NewReader(content), 1<<20, "")
}

func hashOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// TestOrderOfAPut: content before its name, and every name before the answer. Each folder on the way is synced once,
// also when it was there before this process, which cannot know whether its name ever became durable.
func TestOrderOfAPut(t *testing.T) {
	s, d := taped(t)
	h := hashOf("x") // 2d711642…
	write := []string{"create unfinished.new/*", "write unfinished.new/*", "sync unfinished.new/*", "close unfinished.new/*"}
	place := []string{"rename attachments/2d/71/" + h, "syncdir attachments/2d/71"}
	folders := []string{"mkdir attachments", "syncdir .", "mkdir attachments/2d", "syncdir attachments", "mkdir attachments/2d/71", "syncdir attachments/2d"}
	check := func(when string, want ...string) {
		t.Helper()
		if !reflect.DeepEqual(d.did, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", when, d.did, want)
		}
		d.did = nil
	}
	if _, err := put(t, s, blob.Attachments, "x"); err != nil {
		t.Fatal(err)
	}
	check("first", slices.Concat(write, folders, place)...)
	if _, err := put(t, s, blob.Attachments, "x"); err != nil {
		t.Fatal(err)
	}
	check("again", slices.Concat(write, place)...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, s.opts)
	if _, err := put(t, s, blob.Attachments, "x"); err != nil {
		t.Fatal(err)
	}
	check("by the next process", slices.Concat(write, folders, place)...)
}

// TestEveryStepCanFail fails each step of a Put with each kind of error: nothing is visible before the blob has its
// name, nothing is left behind, and the same Put succeeds afterwards.
func TestEveryStepCanFail(t *testing.T) {
	h := hashOf("content")
	for _, step := range []string{
		"create", "write", "sync ", "close", "mkdir threads", "syncdir .", "mkdir threads/", "syncdir threads", "rename", "syncdir threads/" + h[:2] + "/" + h[2:4],
	} {
		for name, tc := range map[string]struct{ err, want error }{
			"no space":  {&os.PathError{Op: "x", Path: "y", Err: syscall.ENOSPC}, blob.ErrFull},
			"no quota":  {&os.PathError{Op: "x", Path: "y", Err: syscall.EDQUOT}, blob.ErrFull},
			"i/o error": {&os.PathError{Op: "x", Path: "y", Err: syscall.EIO}, syscall.EIO},
		} {
			s, d := taped(t)
			d.fail, d.err = step, tc.err
			_, err := put(t, s, blob.Threads, "content")
			if !errors.Is(err, tc.want) || errors.Is(err, blob.ErrFull) != (tc.want == blob.ErrFull) {
				t.Errorf("%s, %s: %v", step, name, err)
			}
			named := slices.ContainsFunc(d.did, func(s string) bool { return strings.HasPrefix(s, "rename") && step != "rename" })
			if all, err := s.List(t.Context(), blob.Threads, "", 10); err != nil || len(all) != 0 && !named {
				t.Errorf("%s, %s: it is visible: %v, %v", step, name, all, err)
			}
			if left, err := os.ReadDir(filepath.Join(s.root, newName)); err != nil || len(left) != 0 {
				t.Errorf("%s, %s: left behind: %v, %v", step, name, left, err)
			}
			d.fail = ""
			if ref, err := put(t, s, blob.Threads, "content"); err != nil || ref.Hash != h {
				t.Errorf("%s, %s: afterwards: %+v, %v", step, name, ref, err)
			}
		}
	}
}

// TestRoom: Put leaves the last of the room to others, also when it goes while it writes; admission stops earlier.
func TestRoom(t *testing.T) {
	s, d := taped(t)
	for _, tc := range []struct {
		free       int64
		put, admit error
	}{
		{1 << 40, nil, nil}, {defaultAdmitFree, nil, nil}, {defaultAdmitFree - 1, nil, blob.ErrFull}, {defaultMinFree, nil, blob.ErrFull},
		{defaultMinFree - 1, blob.ErrFull, blob.ErrFull},
	} {
		d.space = tc.free
		if err := s.Admit(); !errors.Is(err, tc.admit) {
			t.Errorf("%d free: admission: %v", tc.free, err)
		}
		if _, err := put(t, s, blob.Threads, "x"); !errors.Is(err, tc.put) {
			t.Errorf("%d free: put: %v", tc.free, err)
		}
	}
	d.space = 1 << 40
	going := io.MultiReader(bytes.NewReader(make([]byte, 2*step)), callback(func() { d.space = 1 }), bytes.NewReader(make([]byte, 2*step)))
	if _, err := s.Put(t.Context(), blob.Threads, going, 1<<30, ""); !errors.Is(err, blob.ErrFull) {
		t.Errorf("room that goes meanwhile: %v", err)
	}
	open := openAt(t, Options{Folder: filepath.Join(t.TempDir(), "b"), MinFreeBytes: -1, AdmitFreeBytes: -1, system: d.system()})
	if _, err := put(t, open, blob.Threads, "x"); err != nil || open.Admit() != nil {
		t.Errorf("without limits: %v, %v", err, open.Admit())
	}
	if err := open.Close(); err != nil || !errors.Is(open.Admit(), store.ErrClosed) {
		t.Errorf("closed: %v, %v", err, open.Admit())
	}
}

// callback is an empty reader that does something.
type callback func()

func (f callback) Read([]byte) (int, error) { f(); return 0, io.EOF }

// TestTwoProcessesShareTheFolder: each makes the folders anew that the other has removed, and leaves alone what the other
// is writing.
func TestTwoProcessesShareTheFolder(t *testing.T) {
	root := filepath.Join(t.TempDir(), "blobs")
	s, other := openAt(t, Options{Folder: root}), openAt(t, Options{Folder: root})
	syncs := 0
	counting := realSystem
	counting.sync = func(path string) error { syncs++; return realSystem.sync(path) }
	s.system = &counting
	store := func() (made int) {
		t.Helper()
		syncs = 0
		ref, err := put(t, s, "threads.ses_2", "x")
		if err != nil {
			t.Fatal(err)
		}
		made = syncs
		if err := other.Delete(t.Context(), "threads.ses_2", ref.Hash); err != nil {
			t.Fatal(err)
		}
		return made
	}
	if first, again := store(), store(); again < first {
		t.Errorf("%d folders were made durable, then %d: a name that another process had removed was taken for durable", first, again)
	}
	busy := filepath.Join(root, newName, "BUSY")
	if err := os.WriteFile(busy, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	openAt(t, Options{Folder: root})
	if _, err := os.Stat(busy); err != nil {
		t.Errorf("what another process may still write was removed: %v", err)
	}
	_ = os.Remove(busy)
	lock, err := s.lockRound(unix.LOCK_SH)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := s.removeFolders(); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("a folder in use may be removed: %v", err)
	}
}

func TestOpen(t *testing.T) {
	root := filepath.Join(t.TempDir(), "data", "blobs")
	s := openAt(t, Options{Folder: root})
	if _, err := Open(t.Context(), Options{Logger: quiet}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no folder: %v", err)
	}
	for _, space := range []blob.Space{blob.Attachments, "threads.ses_1"} {
		if _, err := put(t, s, space, "x"); err != nil {
			t.Fatal(err)
		}
	}
	unfinished := filepath.Join(root, newName, "LEFT")
	if err := errors.Join(s.Close(), os.WriteFile(unfinished, []byte("half"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, Options{Folder: root})
	if _, err := os.Stat(unfinished); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a crash has left is there: %v", err)
	}
	files := 0
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		} else {
			files++
		}
		if info, err := e.Info(); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
		return nil
	})
	if err != nil || files != 5 { // two blobs and three locks
		t.Errorf("%d files, %v", files, err)
	}
	// A file that is no blob, and folders that are no part of a hash, are nobody's.
	for _, path := range []string{"attachments/zz/zz/file", "attachments/2d/71/notes.txt", "attachments/2d/file", "attachments/long/x/y"} {
		full := filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o700), os.WriteFile(full, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := s.List(t.Context(), blob.Attachments, "", 10); err != nil || !slices.Equal(all, []string{hashOf("x")}) {
		t.Errorf("listed %v, %v", all, err)
	}
	// A part of a space leaves no folder when its last blob goes.
	if err := s.Delete(t.Context(), "threads.ses_1", hashOf("x")); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(root, "threads.sub", "*", "*")); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func BenchmarkPut(b *testing.B) {
	for name, size := range map[string]int{"1KiB": 1 << 10, "64KiB": 64 << 10, "8MiB": 8 << 20} {
		b.Run(name, func(b *testing.B) {
			s, err := Open(b.Context(), Options{Folder: filepath.Join(b.TempDir(), "blobs"), Logger: quiet})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			content := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				content[0], content[1], content[2] = byte(i), byte(i>>8), byte(i>>16)
				if _, err := s.Put(b.Context(), "threads.ses_1", bytes.NewReader(content), int64(size), ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
