package folder

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var roomy = Limits{Packed: 1 << 20, Content: 1 << 20, Entries: 100}

func write(t testing.TB, dir, name, content string, mode os.FileMode) {
	t.Helper()
	full := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func pack(t testing.TB, dir string, paths ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Pack(t.Context(), &b, dir, paths, roomy); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tree lists a folder: a line an entry, with its mode, and its content where it is a file.
func tree(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		fmt.Fprintf(&b, "%s %v", rel, st.Mode())
		if st.Mode().IsRegular() {
			raw, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %q", raw)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRoundTrip(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write(t, from, "one.json", "1", 0o640)
	write(t, from, "deep/er/two", "2", 0o755)
	write(t, from, "deep/ä", "", 0o600)
	write(t, from, "left/out", "never", 0o600)
	write(t, from, "deep/"+strings.Repeat("l", 200)+"/"+strings.Repeat("n", 200), "long", 0o600)
	if err := os.Mkdir(filepath.Join(from, "deep/empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Unpack(t.Context(), bytes.NewReader(pack(t, from, "one.json", "deep", "none", "no/ne")), to, roomy); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(from, "left")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"deep", "deep/er", "deep/empty"} {
		if err := os.Chmod(filepath.Join(from, p), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for p, mode := range map[string]os.FileMode{"one.json": 0o600, "deep/er/two": 0o700} {
		if err := os.Chmod(filepath.Join(from, p), mode); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := tree(t, to), tree(t, from); got != want {
		t.Fatalf("got\n%swant\n%s", got, want)
	}
}

// TestSameContentSameBytes: neither times nor order nor owners' permissions show.
func TestSameContentSameBytes(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		files := rapid.MapOfN(rapid.StringMatching(`[a-c]{1,3}(/[a-c]{4,6}){0,2}`), rapid.StringN(0, 20, 60), 0, 6).Draw(r, "files")
		var packed [][]byte
		for i := range 2 {
			dir, err := os.MkdirTemp("", "f")
			if err != nil {
				r.Fatal(err)
			}
			defer os.RemoveAll(dir)
			names := make([]string, 0, len(files))
			for n := range files { // in any order
				names = append(names, n)
			}
			tops := map[string]bool{}
			for _, n := range names {
				tops[strings.SplitN(n, "/", 2)[0]] = true
				full := filepath.Join(dir, n)
				if os.MkdirAll(filepath.Dir(full), 0o700) != nil || os.WriteFile(full, []byte(files[n]), 0o600) != nil {
					r.Skip("a file where another wants a folder")
				}
				when := time.Unix(int64(1000*i), 0)
				if err := os.Chtimes(full, when, when); err != nil {
					r.Fatal(err)
				}
			}
			paths := make([]string, 0, len(tops))
			for n := range tops {
				paths = append(paths, n)
			}
			if i == 1 {
				slices.Reverse(paths)
			}
			var b bytes.Buffer
			if err := Pack(t.Context(), &b, dir, paths, roomy); err != nil {
				r.Fatal(err)
			}
			packed = append(packed, b.Bytes())
		}
		if !bytes.Equal(packed[0], packed[1]) {
			r.Fatal("the bytes differ")
		}
	})
}

func TestPathsThatAreRefused(t *testing.T) {
	for _, paths := range [][]string{
		{""}, {"."}, {".."}, {"/etc"}, {"../x"}, {"a/../b"}, {"a//b"}, {"a/"}, {"./a"}, {"a\x00b"}, {"\xff"},
		{strings.Repeat("x", maxName+1)}, {"a", "a"}, {"a", "a/b"}, {"a/b", "b", "a"}, {"a", "a.b", "a/b"},
	} {
		if err := Pack(t.Context(), io.Discard, t.TempDir(), paths, roomy); err == nil {
			t.Errorf("took %.40q", paths)
		}
	}
	if err := CheckPaths([]string{"a", "a.b", "ab", "b/a"}); err != nil {
		t.Error(err)
	}
}

func TestPackRefuses(t *testing.T) {
	outside := t.TempDir()
	write(t, outside, "secret", "secret", 0o600)
	for name, tc := range map[string]struct {
		make   func(dir string) error
		limits Limits
		want   error
	}{
		"a link":              {func(dir string) error { return os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "p")) }, roomy, ErrKind},
		"a link that dangles": {func(dir string) error { return os.Symlink("nowhere", filepath.Join(dir, "p")) }, roomy, ErrKind},
		"a linked folder":     {func(dir string) error { return os.Symlink(outside, filepath.Join(dir, "p")) }, roomy, ErrKind},
		"a link inside": {func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "p"), 0o700), os.Symlink(".", filepath.Join(dir, "p/l")))
		}, roomy, ErrKind},
		"a pipe":               {func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "p"), 0o600) }, roomy, ErrKind},
		"a large file":         {func(dir string) error { return os.WriteFile(filepath.Join(dir, "p"), make([]byte, 11), 0o600) }, Limits{Packed: 1 << 20, Content: 10, Entries: 9}, ErrTooLarge},
		"many files":           {func(dir string) error { return os.MkdirAll(filepath.Join(dir, "p/a/b/c"), 0o700) }, Limits{Packed: 1 << 20, Content: 10, Entries: 3}, ErrTooLarge},
		"much, packed":         {func(dir string) error { return os.WriteFile(filepath.Join(dir, "p"), []byte("some content"), 0o600) }, Limits{Packed: 40, Content: 100, Entries: 3}, ErrTooLarge},
		"a hole of a terabyte": {func(dir string) error { return sparse(filepath.Join(dir, "p"), 1<<40) }, roomy, ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := tc.make(dir); err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := Pack(t.Context(), &b, dir, []string{"p"}, tc.limits); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if bytes.Contains(b.Bytes(), []byte("secret")) {
				t.Fatal("what is outside was read")
			}
		})
	}
	t.Run("a linked folder above", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "real/p", "x", 0o600)
		if err := os.Symlink("real", filepath.Join(dir, "up")); err != nil {
			t.Fatal(err)
		}
		if err := Pack(t.Context(), io.Discard, dir, []string{"up/p"}, roomy); !errors.Is(err, ErrKind) {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "p", "x", 0o600)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("why")
		cancel(why)
		if err := Pack(ctx, io.Discard, dir, []string{"p"}, roomy); !errors.Is(err, why) {
			t.Fatalf("got %v", err)
		}
	})
}

func sparse(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// growing writes to the file that is being packed when the first bytes of the stream come out.
type growing struct {
	path string
	once bool
}

func (g *growing) Write(p []byte) (int, error) {
	if !g.once {
		g.once = true
		f, err := os.OpenFile(g.path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return 0, err
		}
		_, err = f.WriteString("more")
		return len(p), errors.Join(err, f.Close())
	}
	return len(p), nil
}

func TestPackNoticesAWriter(t *testing.T) {
	dir := t.TempDir()
	// Not compressible and long, so that the stream begins before the file ends.
	raw := make([]byte, 512<<10)
	state := uint32(1)
	for i := range raw {
		state = state*1664525 + 1013904223
		raw[i] = byte(state >> 24)
	}
	write(t, dir, "p", string(raw), 0o600)
	if err := Pack(t.Context(), &growing{path: filepath.Join(dir, "p")}, dir, []string{"p"}, roomy); !errors.Is(err, ErrChanged) {
		t.Fatalf("got %v, want ErrChanged", err)
	}
}

// archive makes a stream by hand.
func archive(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range headers {
		content := strings.Repeat("c", int(h.Size))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpackRefuses(t *testing.T) {
	file := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: 1}
	}
	good := archive(t, file("a"))
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	w := tar.NewWriter(z)
	if err := errors.Join(w.Close(), func() error { _, err := z.Write(make([]byte, 4<<20)); return err }(), z.Close()); err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 0xff
	for name, tc := range map[string]struct {
		raw  []byte
		want error
	}{
		"nothing":         {nil, ErrDamaged},
		"no gzip":         {[]byte("hello, this is no packed folder"), ErrDamaged},
		"cut":             {good[:len(good)-9], ErrDamaged},
		"flipped":         {flipped, ErrDamaged},
		"something after": {append(bytes.Clone(good), 'x'), ErrDamaged},
		"two of them":     {append(bytes.Clone(good), good...), ErrDamaged},
		"climbing":        {archive(t, file("../a")), ErrDamaged},
		"climbing inside": {archive(t, file("a/../../b")), ErrDamaged},
		"absolute":        {archive(t, file("/a")), ErrDamaged},
		"the folder":      {archive(t, tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o700}), ErrDamaged},
		"twice":           {archive(t, file("a"), file("a")), ErrDamaged},
		"link":            {archive(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/etc"}), ErrKind},
		"hard link":       {archive(t, tar.Header{Typeflag: tar.TypeLink, Name: "a", Linkname: "../a"}), ErrKind},
		"device":          {archive(t, tar.Header{Typeflag: tar.TypeChar, Name: "a"}), ErrKind},
		"pipe":            {archive(t, tar.Header{Typeflag: tar.TypeFifo, Name: "a"}), ErrKind},
		"long name":       {archive(t, file(strings.Repeat("x", maxName+1))), ErrDamaged},
		"much":            {archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 2000}), ErrTooLarge},
		"many":            {archive(t, file("a"), file("b"), file("c"), file("d")), ErrTooLarge},
		"much padding":    {bomb.Bytes(), ErrDamaged},
		"much, packed":    {append(bytes.Clone(good), make([]byte, 10_000)...), ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			up := t.TempDir()
			dir := filepath.Join(up, "in")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			err := Unpack(t.Context(), bytes.NewReader(tc.raw), dir, Limits{Packed: 9_000, Content: 1000, Entries: 3})
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if left, err := os.ReadDir(up); err != nil || len(left) != 1 {
				t.Fatalf("outside: %v %v", left, err)
			}
		})
	}
	t.Run("source fails", func(t *testing.T) {
		why := errors.New("why")
		r := io.MultiReader(bytes.NewReader(good[:20]), failing{why})
		if err := Unpack(t.Context(), r, t.TempDir(), roomy); !errors.Is(err, why) {
			t.Fatalf("got %v", err)
		}
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestEmpty(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, outside, "kept", "x", 0o600)
	write(t, dir, "locked/in/file", "x", 0o400)
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"locked/in", "locked"} {
		if err := os.Chmod(filepath.Join(dir, p), 0o500); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Empty(dir); err != nil {
			t.Fatal(err)
		}
		if got := tree(t, dir); got != "" {
			t.Fatalf("left:\n%s", got)
		}
	}
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Fatal(err)
	}
}

// FuzzUnpack: no stream makes anything appear outside, and what is taken packs again.
func FuzzUnpack(f *testing.F) {
	file := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: 1}
	}
	for _, raw := range [][]byte{archive(f, file("a"), file("b/c")), archive(f, file("../a")), archive(f, tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: ".."}), {}} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		up := t.TempDir()
		dir := filepath.Join(up, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		err := Unpack(t.Context(), bytes.NewReader(raw), dir, roomy)
		if left, err := os.ReadDir(up); err != nil || len(left) != 1 {
			t.Fatalf("outside: %v %v", left, err)
		}
		if err != nil {
			return
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, e := range entries {
			paths = append(paths, e.Name())
		}
		if err := Pack(t.Context(), io.Discard, dir, paths, Limits{Packed: 16 << 20, Content: 1 << 20, Entries: 1000}); err != nil {
			t.Fatal(err)
		}
	})
}
