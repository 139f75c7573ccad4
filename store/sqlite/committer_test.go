package sqlite

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/store"
	"github.com/harness-engine/harness-engine/store/sqlite/internal/faultdisk"
	"github.com/harness-engine/harness-engine/store/storetest"
)

var someFilter = run.Filter{Environment: "e", Subject: "s"}

func chunkAt(runID string, first int64) event.Chunk {
	return storetest.MakeChunk(runID, first, 1, 1, "eng_a", 0)
}

// idle makes a committer whose loop does not run.
func idle() *committer { return newCommitter(nil, nil, &disk{}, quiet) }

func enqueueAll(t *testing.T, c *committer, writes ...*write) {
	t.Helper()
	for _, w := range writes {
		w.done = make(chan error, 1)
		if err := c.enqueue(w); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGroupHoldsOneChunkOfEachRun(t *testing.T) {
	c := idle()
	for i := range 3 {
		for r := range 4 {
			enqueueAll(t, c, &write{run: fmt.Sprintf("run_%d", r), bytes: i})
		}
	}
	for i := range 3 {
		group := c.take()
		if len(group) != 4 {
			t.Fatalf("group %d has %d writes", i, len(group))
		}
		for r, w := range group {
			if w.run != fmt.Sprintf("run_%d", r) || w.bytes != i {
				t.Errorf("group %d: write %d is %s with %d", i, r, w.run, w.bytes)
			}
		}
	}
	if len(c.take()) != 0 || c.bytes != 0 {
		t.Errorf("%d bytes are left", c.bytes)
	}
}

// TestGroupStarvesNobody fills both queues far above a group: each group takes from both, in order, within bounds.
func TestGroupStarvesNobody(t *testing.T) {
	c := idle()
	const chunks, docs = 3000, 1000
	for i := range chunks {
		enqueueAll(t, c, &write{run: fmt.Sprintf("run_%d", i), bytes: 20_000})
	}
	for range docs {
		enqueueAll(t, c, &write{bytes: 60_000})
	}
	enqueueAll(t, c, &write{bytes: groupDocBytes * 3}, &write{run: "run_large", bytes: groupBytes * 2}) // larger than a group
	next, taken := 0, 0
	for group := c.take(); len(group) > 0; group = c.take() {
		var nc, nd, bc, bd int
		for _, w := range group {
			if w.run == "" {
				nd, bd = nd+1, bd+w.bytes
				continue
			}
			if w.run != "run_large" && w.run != fmt.Sprintf("run_%d", next) {
				t.Fatalf("%s is out of order", w.run)
			}
			nc, bc, next = nc+1, bc+w.bytes, next+1
		}
		if nc > groupChunks || nd > groupDocs || nc > 1 && bc > groupBytes || nd > 1 && bd > groupDocBytes {
			t.Fatalf("group of %d chunks with %d bytes, %d documents with %d bytes", nc, bc, nd, bd)
		}
		if next < chunks && nd == 0 && taken < docs {
			t.Fatalf("documents starve after %d", taken)
		}
		taken += nd
	}
	if next != chunks+1 || taken != docs+1 || c.bytes != 0 {
		t.Errorf("taken: %d chunks, %d documents, %d bytes left", next, taken, c.bytes)
	}
}

func TestQueueIsBounded(t *testing.T) {
	c := idle()
	enqueueAll(t, c, &write{run: "run_1", bytes: queueBytes - 10})
	if err := c.enqueue(&write{bytes: 11}); !errors.Is(err, store.ErrOverloaded) {
		t.Errorf("too many bytes: %v", err)
	}
	c = idle()
	for range queueWrites {
		enqueueAll(t, c, &write{})
	}
	if err := c.enqueue(&write{run: "run_1"}); !errors.Is(err, store.ErrOverloaded) {
		t.Errorf("too many writes: %v", err)
	}
}

func TestWithdrawnWriteIsDropped(t *testing.T) {
	c := idle()
	w, other := &write{run: "run_1", bytes: 5}, &write{run: "run_2", bytes: 7}
	enqueueAll(t, c, w, other)
	if !c.withdraw(w) {
		t.Fatal("a waiting write could not be withdrawn")
	}
	if group := c.take(); len(group) != 1 || group[0] != other || c.withdraw(other) || c.bytes != 0 {
		t.Errorf("took %d writes, %d bytes left", len(group), c.bytes)
	}
}

// TestFailedGroupAcknowledgesNobody breaks one write of a group with a failure that is its own: none of the group is
// written or acknowledged, and the next group works.
func TestFailedGroupAcknowledgesNobody(t *testing.T) {
	s := openAt(t, Options{Path: newPath(t)})
	release, held := make(chan struct{}), make(chan struct{})
	go func() {
		_ = s.committer.do(context.Background(), &write{apply: func(*tx) (error, error) { close(held); <-release; return nil, nil }})
	}()
	<-held // what is queued now becomes one group
	broken := errors.New("broken")
	results := make(chan error, 4)
	for i := range 3 {
		go func() { results <- s.Append(context.Background(), chunkAt(fmt.Sprintf("run_%d", i), 1)) }()
	}
	go func() {
		results <- s.committer.do(context.Background(), &write{apply: func(*tx) (error, error) { return nil, broken }})
	}()
	for waiting := 0; waiting < 4; {
		s.committer.mu.Lock()
		waiting = len(s.committer.chunks) + len(s.committer.docs)
		s.committer.mu.Unlock()
	}
	close(release)
	for range 4 {
		if err := <-results; !errors.Is(err, broken) || errors.Is(err, event.ErrUnknownOutcome) {
			t.Errorf("a write of the broken group got %v", err)
		}
	}
	for i := range 3 {
		c := chunkAt(fmt.Sprintf("run_%d", i), 1)
		if _, err := s.Tail(t.Context(), c.RunID); !errors.Is(err, event.ErrEmpty) {
			t.Errorf("run %d: something was written: %v", i, err)
		}
		if err := s.Append(t.Context(), c); err != nil {
			t.Errorf("run %d: after the broken group: %v", i, err)
		}
	}
}

// TestGivingUpDuringTheCommit lets the disk hang in the sync: the caller is told that the outcome is unknown, others
// in the group are told the truth when the disk answers.
func TestGivingUpDuringTheCommit(t *testing.T) {
	d := newFaultDisk(t)
	s := openAt(t, Options{Path: newPath(t), vfs: d.Name})
	if err := s.Append(t.Context(), chunkAt("run_1", 1)); err != nil {
		t.Fatal(err)
	}
	s.committer.grace = time.Millisecond
	syncing, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var hang faultdisk.Decide = func(bool) int32 { once.Do(func() { close(syncing); <-release }); return lib.SQLITE_OK }
	d.OnSync.Store(&hang)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error, 1)
	go func() { results <- s.Append(ctx, chunkAt("run_1", 2)) }()
	<-syncing
	cancel()
	if err := <-results; !errors.Is(err, event.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	retry := make(chan error, 1)
	go func() { retry <- s.Append(t.Context(), chunkAt("run_1", 2)) }() // waits behind the commit
	close(release)
	var dup *event.DuplicateError
	if err := <-retry; !errors.As(err, &dup) {
		t.Errorf("the retry got %v", err)
	}
	if s.Err() != nil {
		t.Errorf("a slow disk is no failure: %v", s.Err())
	}
}

// TestAbandonedWriteKeepsItsBytes lets a caller give up while its group is at work, and use its buffer again.
func TestAbandonedWriteKeepsItsBytes(t *testing.T) {
	s := openAt(t, Options{Path: newPath(t)})
	s.committer.grace = time.Millisecond
	block := func(runID string) (begun, release chan struct{}) {
		begun, release = make(chan struct{}), make(chan struct{})
		go func() {
			_ = s.committer.do(context.Background(), &write{run: runID, apply: func(*tx) (error, error) {
				close(begun)
				<-release
				return nil, nil
			}})
		}()
		return begun, release
	}
	waitFor := func(n int) {
		for waiting := 0; waiting < n; {
			s.committer.mu.Lock()
			waiting = len(s.committer.chunks)
			s.committer.mu.Unlock()
		}
	}
	begun, release := block("run_a")
	<-begun
	begunNext, releaseNext := block("run_b") // the first of the next group
	waitFor(1)
	c, want := chunkAt("run_1", 1), chunkAt("run_1", 1)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.Append(ctx, c) }()
	waitFor(2)
	close(release)
	<-begunNext
	cancel()
	if err := <-result; !errors.Is(err, event.ErrUnknownOutcome) {
		t.Fatalf("got %v", err)
	}
	clear(c.Body)
	close(releaseNext)
	var dup *event.DuplicateError
	if err := s.Append(t.Context(), want); !errors.As(err, &dup) {
		t.Fatalf("the retry got %v", err)
	}
	if got, err := s.Get(t.Context(), "run_1", 1); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the log holds %+v (%v)", got, err)
	}
}

func TestErrorsNameWhatFailed(t *testing.T) {
	s := openAt(t, Options{Path: newPath(t)})
	_ = s.Append(t.Context(), chunkAt("run_1", 1))
	err := s.Append(t.Context(), chunkAt("run_1", 1))
	if want := "failed to append to run run_1 at 1"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}
