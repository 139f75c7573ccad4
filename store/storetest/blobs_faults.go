package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/store"
)

// blobEqualAtOnce: many write the same and others read it meanwhile; whoever sees it sees it whole.
func blobEqualAtOnce(t *testing.T, s Blobs) {
	ctx := t.Context()
	for round := range 5 {
		b, own := content(fmt.Sprint("equal ", round), 200<<10), func(i int) []byte { return content(fmt.Sprint(round, " own ", i), 1000) }
		for _, err := range outcomes(24, func(i int) error {
			if i%3 == 0 {
				for range 20 {
					if got, err := get(ctx, s.Store, blob.Attachments, hashOf(b)); err != nil && !errors.Is(err, blob.ErrNotFound) || err == nil && !bytes.Equal(got, b) {
						return fmt.Errorf("read %d bytes: %w", len(got), err)
					}
				}
				return nil
			}
			_, err := s.Store.Put(ctx, blob.Attachments, bytes.NewReader(b), 1<<20, hashOf(b))
			_, errOwn := s.Store.Put(ctx, blob.Attachments, bytes.NewReader(own(i)), 1<<20, "")
			return errors.Join(err, errOwn)
		}) {
			noError(t, err)
		}
		if got := s.listAll(t, blob.Attachments, 1000); len(got) != 17*(round+1) {
			t.Fatalf("round %d: %d blobs", round, len(got))
		}
	}
}

// blobPutAndDelete: nobody's delete breaks another's put, and what is put last is there.
func blobPutAndDelete(t *testing.T, s Blobs) {
	ctx, space := t.Context(), blob.Space("threads.ses_1")
	contents := [][]byte{content("a", 100), content("b", 100), content("c", 100)}
	for _, err := range outcomes(12, func(i int) error {
		b := contents[i%3]
		for range 40 {
			if i%2 == 0 {
				if _, err := s.Store.Put(ctx, space, bytes.NewReader(b), 100, hashOf(b)); err != nil {
					return err
				}
			} else if err := s.Store.Delete(ctx, space, hashOf(b)); err != nil {
				return err
			}
			if got, err := get(ctx, s.Store, space, hashOf(b)); err != nil && !errors.Is(err, blob.ErrNotFound) || err == nil && !bytes.Equal(got, b) {
				return fmt.Errorf("read %d bytes: %w", len(got), err)
			}
		}
		return nil
	}) {
		noError(t, err)
	}
	for _, b := range contents {
		s.mustPut(t, space, b)
	}
	s.holds(t, space, contents...)
}

func blobReopen(t *testing.T, s Blobs) {
	b := content("reopen", 500<<10)
	s.mustPut(t, blob.Attachments, b)
	s.mustPut(t, "threads.ses_1", b[:100])
	noError(t, s.Close())
	s = s.Reopen(t)
	s.holds(t, blob.Attachments, b)
	s.holds(t, "threads.ses_1", b[:100])
}

func blobClosed(t *testing.T, s Blobs) {
	b := content("closed", 100)
	s.mustPut(t, blob.Threads, b)
	noError(t, errors.Join(s.Close(), s.Close()))
	_, err := s.Store.Put(t.Context(), blob.Threads, bytes.NewReader(b), 100, "")
	wantError(t, err, store.ErrClosed)
	_, _, err = s.Store.Open(t.Context(), blob.Threads, hashOf(b))
	wantError(t, err, store.ErrClosed)
	_, err = s.Store.List(t.Context(), blob.Threads, "", 10)
	wantError(t, err, store.ErrClosed)
	wantError(t, s.Store.Delete(t.Context(), blob.Threads, hashOf(b)), store.ErrClosed)
}

// blobDamage: what is not what it was is never given to its end, and storing it again repairs it.
func blobDamage(t *testing.T, s Blobs) {
	if s.Faults.Damage == nil {
		t.Skip("the backend cannot damage a blob")
	}
	for _, size := range []int{0, 1, 1000, 300 << 10} {
		for name, how := range map[string]func([]byte) []byte{
			"emptied":     func([]byte) []byte { return nil },
			"cut":         func(b []byte) []byte { return b[:max(0, len(b)-1)] },
			"longer":      func(b []byte) []byte { return append(b, 0) },
			"first byte":  func(b []byte) []byte { return flip(b, 0) },
			"last byte":   func(b []byte) []byte { return flip(b, len(b)-1) },
			"all another": func(b []byte) []byte { return content("another", len(b)+1) },
		} {
			b := content(name, size)
			hash := s.mustPut(t, blob.Threads, b)
			damaged := false
			s.Faults.Damage(t, blob.Threads, hash, func(was []byte) []byte {
				now := how(slices.Clone(was))
				damaged = !bytes.Equal(was, now)
				return now
			})
			if !damaged {
				continue // nothing to cut off an empty blob
			}
			_, err := get(t.Context(), s.Store, blob.Threads, hash)
			wantError(t, err, blob.ErrHash)
			r, n, err := s.Store.Open(t.Context(), blob.Threads, hash)
			noError(t, err)
			if n > 0 { // who reads exactly the size is told too
				if _, err := io.ReadFull(r, make([]byte, n)); !errors.Is(err, blob.ErrHash) {
					t.Fatalf("%d bytes, %s: read whole: %v", size, name, err)
				}
			}
			noError(t, r.Close())
			s.mustPut(t, blob.Threads, b)
			if got, err := get(t.Context(), s.Store, blob.Threads, hash); err != nil || !bytes.Equal(got, b) {
				t.Fatalf("%d bytes, %s: after the repair: %v", size, name, err)
			}
		}
	}
}

func flip(b []byte, i int) []byte {
	if i >= 0 && i < len(b) {
		b[i] ^= 1
	}
	return b
}

// blobDiskFull fills the disk: nothing is stored and all that was is there, and when there is room all goes on.
func blobDiskFull(t *testing.T, s Blobs) {
	if s.Faults.FillDisk == nil {
		t.Skip("the backend cannot fill its disk")
	}
	before, more := content("before", 1000), content("more", 400<<10)
	s.mustPut(t, blob.Attachments, before)
	s.Faults.FillDisk()
	for _, err := range outcomes(8, func(int) error {
		_, err := s.Store.Put(t.Context(), blob.Attachments, bytes.NewReader(more), 1<<20, "")
		return err
	}) {
		wantError(t, err, blob.ErrFull)
	}
	s.holds(t, blob.Attachments, before)
	s.Faults.FreeDisk()
	s.mustPut(t, blob.Attachments, more)
	noError(t, s.Close())
	s = s.Reopen(t)
	s.holds(t, blob.Attachments, before, more)
}

// The child of the kill test of blobs.
const (
	crashPutters  = 6
	crashMaxBytes = 64 << 10
	crashBlobAcks = 120
)

func crashBlob(i int, n int64) []byte {
	return content(fmt.Sprint("crash ", i, " ", n), int(n*7919+int64(i)*104729)%crashMaxBytes)
}

func crashSpace(i int) blob.Space {
	if i%2 == 0 {
		return blob.Attachments
	}
	return blob.Space(fmt.Sprintf("threads.ses_%d", i))
}

// putUntilKilled is the child. It goes on behind the last blob of each writer that it finds.
func putUntilKilled(location string, openAt func(string) (Blobs, error)) int {
	s, err := openAt(location)
	if err != nil {
		fmt.Println("failed", err)
		return 1
	}
	ctx, failed := context.Background(), make(chan error)
	for i := range crashPutters {
		go func() {
			n := int64(1)
			for ; ; n++ {
				if _, err := get(ctx, s.Store, crashSpace(i), hashOf(crashBlob(i, n))); err != nil {
					break
				}
			}
			for ; ; n++ {
				b := crashBlob(i, n)
				if _, err := s.Store.Put(ctx, crashSpace(i), bytes.NewReader(b), crashMaxBytes, ""); err != nil {
					failed <- err
					return
				}
				_, _ = fmt.Fprintf(os.Stdout, "blob %d %d\n", i, n) // one write a line
			}
		}()
	}
	fmt.Println("failed", <-failed)
	return 1
}

// blobCrash kills a process that stores, again and again: what it was told is stored is there, and nothing is there in
// part.
func blobCrash(t *testing.T, s Blobs) {
	if s.Location == "" {
		t.Skip("the backend has no location that another process can open")
	}
	acked := map[string]int64{}
	for round := range crashRounds {
		noError(t, s.Close())
		runAndKill(t, blobChildLocation, s.Location, crashBlobAcks, acked)
		s = s.Reopen(t)
		known := map[blob.Space][]string{}
		for i := range crashPutters {
			last := acked[fmt.Sprint("blob ", i)]
			if last == 0 {
				t.Errorf("writer %d was never acknowledged: the test tests too little", i)
			}
			for n := int64(1); n <= last+1; n++ { // one may be stored and not acknowledged
				b := crashBlob(i, n)
				got, err := get(t.Context(), s.Store, crashSpace(i), hashOf(b))
				if n > last && errors.Is(err, blob.ErrNotFound) {
					continue
				}
				if err != nil || !bytes.Equal(got, b) {
					t.Fatalf("round %d: blob %d of writer %d, acknowledged were %d: %v", round, n, i, last, err)
				}
				known[crashSpace(i)] = append(known[crashSpace(i)], hashOf(b))
			}
		}
		for space, want := range known {
			slices.Sort(want)
			if got := s.listAll(t, space, 100); !slices.Equal(got, want) {
				t.Fatalf("round %d: space %s holds %d blobs, %d are known", round, space, len(got), len(want))
			}
		}
	}
}
