package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/store"
)

// Blobs is an open backend of blobs.
type Blobs struct {
	Store blob.Store

	// Location is where the data is: whatever the opener given to MainBlobs needs to open the same data again.
	Location string
	// Close closes the backend. The suite calls it before it opens the same data again.
	Close func() error
	// Reopen opens the same data after Close.
	Reopen func(t *testing.T) Blobs
	// Faults causes failures. A backend that cannot cause one leaves it nil.
	Faults BlobFaults
}

// BlobFaults causes real failures in what the backend stands on.
type BlobFaults struct {
	// FillDisk leaves no room for any write, and FreeDisk gives room again.
	FillDisk, FreeDisk func()
	// Damage changes what is stored of a blob behind the backend's back.
	Damage func(t *testing.T, space blob.Space, hash string, how func([]byte) []byte)
}

// blobChildLocation is the environment variable that makes the test binary the process that is killed.
const blobChildLocation = "STORETEST_BLOB_CHILD_LOCATION"

// MainBlobs is Main for a backend of blobs.
func MainBlobs(m *testing.M, openAt func(location string) (Blobs, error), check func() error) {
	if location := os.Getenv(blobChildLocation); location != "" {
		os.Exit(putUntilKilled(location, openAt))
	}
	runAndExit(m, check)
}

// RunBlobs runs the suite. open gives an empty backend and registers its end with t.Cleanup.
func RunBlobs(t *testing.T, open func(t *testing.T) Blobs) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s Blobs)
	}{
		{"round trip", blobRoundTrip},
		{"readers of every kind", blobReaders},
		{"limit", blobLimit},
		{"wanted hash", blobWantedHash},
		{"spaces", blobSpaces},
		{"delete", blobDelete},
		{"refused arguments", blobRefused},
		{"giving up", blobGivingUp},
		{"against a model", blobModel},
		{"equal content at once", blobEqualAtOnce},
		{"put and delete at once", blobPutAndDelete},
		{"reopen", blobReopen},
		{"closed", blobClosed},
		{"faults/damage", blobDamage},
		{"faults/disk full", blobDiskFull},
		{"crash/kill", blobCrash},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// content makes bytes that differ from those of another seed.
func content(seed string, size int) []byte {
	out := make([]byte, 0, size+sha256.Size)
	for i := 0; len(out) < size; i++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", seed, i))
		out = append(out, sum[:]...)
	}
	return out[:size]
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// mustPut stores content that fits exactly.
func (s Blobs) mustPut(t *testing.T, space blob.Space, b []byte) string {
	t.Helper()
	ref, err := s.Store.Put(t.Context(), space, bytes.NewReader(b), int64(len(b)), "")
	noError(t, err)
	if want := (blob.Ref{Hash: hashOf(b), Size: int64(len(b))}); ref != want {
		t.Fatalf("stored as %+v, want %+v", ref, want)
	}
	return ref.Hash
}

// get reads a blob to its end.
func get(ctx context.Context, s blob.Store, space blob.Space, hash string) ([]byte, error) {
	r, size, err := s.Open(ctx, space, hash)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	if err == nil && int64(len(b)) != size {
		err = fmt.Errorf("%d bytes, but the size was %d", len(b), size)
	}
	return b, errors.Join(err, r.Close())
}

// holds checks that a space holds exactly these contents.
func (s Blobs) holds(t *testing.T, space blob.Space, contents ...[]byte) {
	t.Helper()
	var want []string
	for _, b := range contents {
		want = append(want, hashOf(b))
		got, err := get(t.Context(), s.Store, space, hashOf(b))
		noError(t, err)
		if !bytes.Equal(got, b) {
			t.Fatalf("space %s: another content under %s", space, hashOf(b))
		}
	}
	slices.Sort(want)
	if got := s.listAll(t, space, 3); !slices.Equal(got, want) {
		t.Fatalf("space %s holds %v, want %v", space, got, want)
	}
}

// listAll lists a space in pages.
func (s Blobs) listAll(t rapid.TB, space blob.Space, page int) (all []string) {
	t.Helper()
	for after := ""; ; {
		hashes, err := s.Store.List(context.Background(), space, after, page)
		if err != nil || len(hashes) > page {
			t.Fatalf("listed %d of %d: %v", len(hashes), page, err)
		}
		for _, h := range hashes {
			if h <= after {
				t.Fatalf("%s is listed after %s", h, after)
			}
			after = h
		}
		if all = append(all, hashes...); len(hashes) < page {
			return all
		}
	}
}

func blobRoundTrip(t *testing.T, s Blobs) {
	var all [][]byte
	for _, size := range []int{0, 1, 2, 1000, 256<<10 - 1, 256 << 10, 256<<10 + 1, 512 << 10, 3<<20 + 7} {
		b := content("round trip", size)
		all = append(all, b)
		hash := s.mustPut(t, blob.Attachments, b)
		ref, err := s.Store.Put(t.Context(), blob.Attachments, bytes.NewReader(b), 1<<40, hash)
		if err != nil || ref != (blob.Ref{Hash: hash, Size: int64(size)}) {
			t.Fatalf("%d bytes again: %+v, %v", size, ref, err)
		}
		r, n, err := s.Store.Open(t.Context(), blob.Attachments, hash)
		noError(t, err)
		noError(t, iotest.TestReader(r, b))
		if noError(t, r.Close()); n != int64(size) {
			t.Fatalf("%d bytes are opened as %d", size, n)
		}
	}
	s.holds(t, blob.Attachments, all...)
}

// cut gives some bytes and then the error of content that was cut off on its way, as a body of HTTP does.
func cut(b []byte) io.Reader {
	return io.MultiReader(bytes.NewReader(b), iotest.ErrReader(io.ErrUnexpectedEOF))
}

// silent never gives anything and never ends.
type silent struct{}

func (silent) Read([]byte) (int, error) { return 0, nil }

func blobReaders(t *testing.T, s Blobs) {
	b := content("readers", 300<<10)
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"one byte": iotest.OneByteReader, "half": iotest.HalfReader, "error with data": iotest.DataErrReader,
	} {
		ref, err := s.Store.Put(t.Context(), blob.Threads, wrap(bytes.NewReader(b)), int64(len(b)), hashOf(b))
		if err != nil || ref.Size != int64(len(b)) {
			t.Fatalf("%s: %+v, %v", name, ref, err)
		}
	}
	s.holds(t, blob.Threads, b)
	for name, tc := range map[string]struct {
		r    io.Reader
		want error
	}{
		"fails at once":       {iotest.ErrReader(iotest.ErrTimeout), iotest.ErrTimeout},
		"fails late":          {io.MultiReader(bytes.NewReader(content("late", 400<<10)), iotest.ErrReader(iotest.ErrTimeout)), iotest.ErrTimeout},
		"cut off":             {cut(content("cut", 100)), io.ErrUnexpectedEOF},
		"cut off before all":  {cut(nil), io.ErrUnexpectedEOF},
		"cut off at a step":   {cut(content("cut", 256<<10)), io.ErrUnexpectedEOF},
		"wrapped end":         {iotest.ErrReader(fmt.Errorf("wrapped: %w", io.EOF)), io.EOF},
		"never gives any":     {silent{}, io.ErrNoProgress},
		"never gives another": {io.MultiReader(bytes.NewReader(content("silent", 100)), silent{}), io.ErrNoProgress},
	} {
		if ref, err := s.Store.Put(t.Context(), blob.Threads, tc.r, 1<<30, ""); !errors.Is(err, tc.want) {
			t.Errorf("%s: %+v, %v", name, ref, err)
		}
	}
	s.holds(t, blob.Threads, b)
}

func blobLimit(t *testing.T, s Blobs) {
	for _, size := range []int{1, 100, 256 << 10, 256<<10 + 1, 600 << 10} {
		b := content("limit", size)
		_, err := s.Store.Put(t.Context(), blob.Attachments, bytes.NewReader(b), int64(size-1), "")
		wantError(t, err, blob.ErrTooLarge)
		_, err = s.Store.Put(t.Context(), blob.Attachments, bytes.NewReader(b), int64(size-1), hashOf(b))
		wantError(t, err, blob.ErrTooLarge)
	}
	// What has no end is refused at the limit.
	_, err := s.Store.Put(t.Context(), blob.Attachments, endless{}, 1<<20, "")
	wantError(t, err, blob.ErrTooLarge)
	s.holds(t, blob.Attachments)
	_, err = s.Store.Put(t.Context(), blob.Attachments, strings.NewReader(""), 0, "")
	noError(t, err)
	s.holds(t, blob.Attachments, nil)
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func blobWantedHash(t *testing.T, s Blobs) {
	b := content("wanted", 5000)
	for _, other := range [][]byte{nil, b[:4999], append(slices.Clone(b), 0)} {
		_, err := s.Store.Put(t.Context(), blob.Threads, bytes.NewReader(other), 1<<20, hashOf(b))
		wantError(t, err, blob.ErrHash)
	}
	s.holds(t, blob.Threads)
	_, err := s.Store.Put(t.Context(), blob.Threads, bytes.NewReader(b), 1<<20, hashOf(b))
	noError(t, err)
	s.holds(t, blob.Threads, b)
}

// blobSpaces: equal content in two spaces is two blobs.
func blobSpaces(t *testing.T, s Blobs) {
	spaces := []blob.Space{blob.Threads, blob.Attachments, "threads.ses_1", "threads.ses_2", "attachments.ses_1", "new", "unfinished", "files", "threads.sub"}
	b := content("spaces", 100)
	for i, space := range spaces {
		s.holds(t, space)
		s.mustPut(t, space, b)
		s.mustPut(t, space, content(string(space), 10))
		for _, before := range spaces[:i] {
			s.holds(t, before, b, content(string(before), 10))
		}
	}
	for i, space := range spaces {
		noError(t, s.Store.Delete(t.Context(), space, hashOf(b)))
		s.holds(t, space, content(string(space), 10))
		for _, later := range spaces[i+1:] {
			s.holds(t, later, b, content(string(later), 10))
		}
	}
}

func blobDelete(t *testing.T, s Blobs) {
	for _, space := range []blob.Space{blob.Attachments, "threads.ses_1"} {
		b := content("delete", 100)
		noError(t, s.Store.Delete(t.Context(), space, hashOf(b)))
		for range 3 {
			_, err := get(t.Context(), s.Store, space, hashOf(b))
			wantError(t, err, blob.ErrNotFound)
			s.mustPut(t, space, b)
			s.holds(t, space, b)
			r, _, err := s.Store.Open(t.Context(), space, hashOf(b))
			noError(t, err)
			noError(t, s.Store.Delete(t.Context(), space, hashOf(b)))
			// Who has it open reads it to its end.
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, b) {
				t.Fatalf("an open blob that was deleted: %d bytes, %v", len(got), err)
			}
			noError(t, errors.Join(r.Close(), s.Store.Delete(t.Context(), space, hashOf(b))))
			s.holds(t, space)
		}
	}
}

func blobRefused(t *testing.T, s Blobs) {
	ctx, hash := t.Context(), hashOf(nil)
	try := func(name string, space blob.Space, hash string) {
		t.Helper()
		_, err := s.Store.Put(ctx, space, strings.NewReader(""), 10, hash)
		_, _, errOpen := s.Store.Open(ctx, space, hash)
		_, errList := s.Store.List(ctx, space, hash, 10)
		for call, err := range map[string]error{"put": err, "open": errOpen, "list": errList, "delete": s.Store.Delete(ctx, space, hash)} {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: %s: %v", name, call, err)
			}
		}
	}
	for _, space := range []blob.Space{"", ".", "..", "a/b", "../a", "/a", `a\b`, "A", "a.", ".a", "a.b.c", "a..", "a.B", "a b", "a\x00", "ä",
		blob.Space(strings.Repeat("a", 200)), blob.Space("a." + strings.Repeat("b", 200))} {
		try(fmt.Sprintf("space %.20q", space), space, hash)
	}
	for _, h := range []string{"x", "..", "../../x", hash[:63], hash + "0", strings.ToUpper(hash), hash[:63] + "g", hash[:63] + "\x00", hash[:62] + "/."} {
		try(fmt.Sprintf("hash %.20q", h), blob.Threads, h)
	}
	_, _, err := s.Store.Open(ctx, blob.Threads, "")
	wantError(t, err, store.ErrInvalid)
	wantError(t, s.Store.Delete(ctx, blob.Threads, ""), store.ErrInvalid)
	_, err = s.Store.Put(ctx, blob.Threads, strings.NewReader(""), -1, "")
	wantError(t, err, store.ErrInvalid)
	for _, limit := range []int{-1, 0, store.MaxPage + 1} {
		_, err = s.Store.List(ctx, blob.Threads, "", limit)
		wantError(t, err, store.ErrInvalid)
	}
	s.holds(t, blob.Threads)
}

// stopping cancels after some bytes.
type stopping struct {
	left int
	stop context.CancelCauseFunc
}

var errStopped = errors.New("stopped by the test")

func (r *stopping) Read(p []byte) (int, error) {
	if r.left -= len(p); r.left <= 0 {
		r.stop(errStopped)
	}
	return len(p), nil
}

func blobGivingUp(t *testing.T, s Blobs) {
	for _, after := range []int{0, 1, 600 << 10} {
		ctx, stop := context.WithCancelCause(t.Context())
		if after == 0 {
			stop(errStopped)
		}
		_, err := s.Store.Put(ctx, blob.Attachments, &stopping{left: after, stop: stop}, 1<<40, "")
		wantError(t, err, errStopped)
	}
	s.holds(t, blob.Attachments)
}

// blobModel compares with maps.
func blobModel(t *testing.T, s Blobs) {
	spaces := []blob.Space{blob.Attachments, "threads.ses_1", "threads.ses_2"}
	model := map[blob.Space]map[string][]byte{}
	for _, space := range spaces {
		model[space] = map[string][]byte{}
	}
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			space := rapid.SampledFrom(spaces).Draw(rt, "space")
			b := content("model", rapid.IntRange(0, 40).Draw(rt, "size"))
			hash := hashOf(b)
			switch rapid.SampledFrom([]string{"put", "delete", "open", "list"}).Draw(rt, "call") {
			case "put":
				if ref, err := s.Store.Put(t.Context(), space, bytes.NewReader(b), 40, ""); err != nil || ref.Hash != hash {
					rt.Fatalf("put: %+v, %v", ref, err)
				}
				model[space][hash] = b
			case "delete":
				if err := s.Store.Delete(t.Context(), space, hash); err != nil {
					rt.Fatal(err)
				}
				delete(model[space], hash)
			case "open":
				got, err := get(t.Context(), s.Store, space, hash)
				if want, ok := model[space][hash]; ok && (err != nil || !bytes.Equal(got, want)) || !ok && !errors.Is(err, blob.ErrNotFound) {
					rt.Fatalf("open: %d bytes, %v, want %v", len(got), err, ok)
				}
			case "list":
				all := slices.Sorted(maps.Keys(model[space]))
				if got := s.listAll(rt, space, rapid.IntRange(1, 7).Draw(rt, "page")); !slices.Equal(got, all) {
					rt.Fatalf("list: %v, want %v", got, all)
				}
				at, _ := slices.BinarySearch(all, hash)
				if at < len(all) && all[at] == hash {
					at++
				}
				if got, err := s.Store.List(t.Context(), space, hash, 1000); err != nil || !slices.Equal(got, all[at:]) {
					rt.Fatalf("list after %s: %v, %v, want %v", hash, got, err, all[at:]) // a place that need not be there
				}
			}
		}
	})
}
