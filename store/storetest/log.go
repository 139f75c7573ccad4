package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/store"
)

func logRoundTrip(t *testing.T, s Stores) {
	ctx := t.Context()
	whole := MakeChunk(fresh("run"), 1, 3, 7, "eng_a", 0)
	noMaps := MakeChunk(fresh("run"), 1, 1, 0, "eng_a", 0)
	noMaps.Cursors, noMaps.Facts = nil, nil
	emptyMaps := MakeChunk(fresh("run"), 1, 1, 1, "eng_a", 0)
	emptyMaps.Cursors, emptyMaps.Facts = map[string]event.Cursor{}, map[string]string{}
	terminal := MakeChunk(fresh("run"), 1, 2, 1<<62, "eng_a", 0)
	terminal.Terminal = true
	binary := MakeChunk(fresh("run"), 1, 1, 1, "eng_a", 0)
	binary.Body = []byte("[\"\x00\xff\xfe '\\\"\"]") // the log does not look into bodies
	binary.Facts = map[string]string{"'; DROP TABLE chunks; --": "\u2028\x00\U0010ffff"}
	for name, c := range map[string]event.Chunk{"whole": whole, "no maps": noMaps, "empty maps": emptyMaps, "terminal": terminal, "binary": binary} {
		noError(t, s.Log.Append(ctx, c))
		got, err := s.Log.Get(ctx, c.RunID, c.First)
		noError(t, err)
		if !reflect.DeepEqual(got, c) {
			t.Errorf("%s: got %+v, want %+v", name, got, c)
		}
		tail, err := s.Log.Tail(ctx, c.RunID)
		noError(t, err)
		if !reflect.DeepEqual(tail, c) {
			t.Errorf("%s: tail is %+v, want %+v", name, tail, c)
		}
	}
	_, err := s.Log.Get(ctx, whole.RunID, 2) // inside the chunk, but not its key
	wantError(t, err, event.ErrEmpty)
	_, err = s.Log.Tail(ctx, fresh("run"))
	wantError(t, err, event.ErrEmpty)
	cs, err := s.Log.Read(ctx, fresh("run"), 0, 10)
	noError(t, err)
	if len(cs) != 0 {
		t.Errorf("an unknown run has chunks: %v", cs)
	}
}

func logDuplicate(t *testing.T, s Stores) {
	ctx, id := t.Context(), fresh("run")
	first := MakeChunk(id, 1, 3, 1, "eng_a", 0)
	noError(t, s.Log.Append(ctx, first))
	for _, other := range []event.Chunk{first, MakeChunk(id, 1, 1, 2, "eng_b", 0)} {
		err := s.Log.Append(ctx, other)
		var d *event.DuplicateError
		if !errors.As(err, &d) || d.RunID != id || d.First != 1 {
			t.Fatalf("got %v, want a duplicate of %s at 1", err, id)
		}
	}
	got, err := s.Log.Get(ctx, id, 1)
	noError(t, err)
	if !reflect.DeepEqual(got, first) {
		t.Errorf("a duplicate changed the chunk: %+v", got)
	}
}

func logKeepsNoReference(t *testing.T, s Stores) {
	ctx := t.Context()
	c := MakeChunk(fresh("run"), 1, 1, 1, "eng_a", 0)
	want := MakeChunk(c.RunID, 1, 1, 1, "eng_a", 0)
	noError(t, s.Log.Append(ctx, c))
	clear(c.Body)
	c.Cursors[event.SourceWorker] = event.Cursor{}
	c.Facts["nativeSession"] = "changed"
	for range 2 { // what is given out is the caller's too
		got, err := s.Log.Get(ctx, want.RunID, 1)
		noError(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		clear(got.Body)
		got.Facts["nativeSession"] = "changed"
	}
}

// logReadEveryPosition reads a log of chunks of every kind of size from every position with several page sizes.
func logReadEveryPosition(t *testing.T, s Stores) {
	ctx, id := t.Context(), fresh("run")
	noise := []string{id + "0", id[:len(id)-1], fresh("run")} // neighbours of the key
	sizes := []int{1, 2, 256, 1, 255, 3, 7, 256, 256, 1, 1, 1, 64}
	var all []event.Chunk
	first := int64(1)
	for _, n := range sizes {
		c := MakeChunk(id, first, n, 1, "eng_a", 0)
		noError(t, s.Log.Append(ctx, c))
		for _, other := range noise {
			noError(t, s.Log.Append(ctx, MakeChunk(other, first, n, 1, "eng_a", 0)))
		}
		all, first = append(all, c), c.Last+1
	}
	end := first - 1
	for _, page := range []int{1, 2, 100, 256, 300, store.MaxReadEvents} {
		for after := int64(0); after <= end+1; after++ {
			got, err := s.Log.Read(ctx, id, after, page)
			noError(t, err)
			if after >= end {
				if len(got) != 0 {
					t.Fatalf("read after %d of %d: got %d chunks", after, end, len(got))
				}
				continue
			}
			at, events := -1, int64(0)
			for i, c := range all {
				if c.Last > after {
					at = i
					break
				}
			}
			for i, c := range got {
				if !reflect.DeepEqual(c, all[at+i]) {
					t.Fatalf("read after %d page %d: chunk %d is %d..%d, want %d..%d", after, page, i, c.First, c.Last, all[at+i].First, all[at+i].Last)
				}
				events += c.Last - c.First + 1
			}
			if len(got) == 0 || len(got) > 1 && events > int64(page) {
				t.Fatalf("read after %d page %d: %d chunks with %d events", after, page, len(got), events)
			}
			if next := at + len(got); next < len(all) && events+all[next].Last-all[next].First+1 <= int64(page) {
				t.Fatalf("read after %d page %d: stopped after %d events although the next chunk fits", after, page, events)
			}
		}
	}
	if got := readAll(ctx, t, s.Log, id, 300); !reflect.DeepEqual(got, all) {
		t.Fatal("paging to the end gives another log")
	}
}

// logReadBounds checks that one read does not load a huge log.
func logReadBounds(t *testing.T, s Stores) {
	ctx, id := t.Context(), fresh("run")
	const chunks = 12
	for i := range int64(chunks) {
		noError(t, s.Log.Append(ctx, MakeChunk(id, 1+i, 1, 1, "eng_a", event.MaxChunkBytes-200)))
	}
	got, err := s.Log.Read(ctx, id, 0, store.MaxReadEvents)
	noError(t, err)
	bytes := 0
	for _, c := range got {
		bytes += len(c.Body)
	}
	if len(got) == 0 || bytes > store.MaxReadBytes {
		t.Fatalf("one read gave %d chunks with %d bytes", len(got), bytes)
	}
	if n := len(readAll(ctx, t, s.Log, id, store.MaxReadEvents)); n != chunks {
		t.Fatalf("paging gave %d chunks, want %d", n, chunks)
	}
	for _, bad := range []struct {
		after int64
		max   int
	}{{-1, 10}, {0, 0}, {0, -1}, {0, store.MaxReadEvents + 1}} {
		_, err := s.Log.Read(ctx, id, bad.after, bad.max)
		wantError(t, err, store.ErrInvalid)
	}
}

func logManyWriters(t *testing.T, s Stores) {
	const writers, chunks = 64, 20
	ctx, ids := t.Context(), make([]string, writers)
	for i := range ids {
		ids[i] = fresh("run")
	}
	size := func(i int, k int64) int { return 1 + (i+int(k))%5 }
	for _, err := range outcomes(writers, func(i int) error {
		for first, k := int64(1), int64(0); k < chunks; k++ {
			c := MakeChunk(ids[i], first, size(i, k), 1, "eng_a", 100)
			if err := s.Log.Append(ctx, c); err != nil {
				return err
			}
			// Durable and visible at once: the newest committed state holds what was acknowledged.
			tail, err := s.Log.Tail(ctx, ids[i])
			if err != nil || tail.First != first {
				return fmt.Errorf("tail after append at %d is %d (%w)", first, tail.First, err)
			}
			first = c.Last + 1
		}
		return nil
	}) {
		noError(t, err)
	}
	for i, id := range ids {
		all := readAll(ctx, t, s.Log, id, 7)
		if len(all) != chunks {
			t.Fatalf("run %d has %d chunks, want %d", i, len(all), chunks)
		}
		for k, c := range all {
			if want := MakeChunk(id, c.First, size(i, int64(k)), 1, "eng_a", 100); !reflect.DeepEqual(c, want) {
				t.Fatalf("run %d chunk %d differs", i, k)
			}
		}
	}
}

func logOneKey(t *testing.T, s Stores) {
	ctx := t.Context()
	for range 20 {
		id := fresh("run")
		chunk := func(i int) event.Chunk { return MakeChunk(id, 1, 1+i%4, int64(i), fmt.Sprintf("eng_%d", i), 0) }
		winner := oneWinner(t, outcomes(24, func(i int) error { return s.Log.Append(ctx, chunk(i)) }), isDuplicate)
		all := readAll(ctx, t, s.Log, id, 100)
		if len(all) != 1 || !reflect.DeepEqual(all[0], chunk(winner)) {
			t.Fatalf("the log holds %d chunks, not the winner's", len(all))
		}
	}
}

func logLimits(t *testing.T, s Stores) {
	ctx := t.Context()
	good := func() event.Chunk { return MakeChunk(fresh("run"), 1, 1, 1, "eng_a", 0) }
	largest := MakeChunk(fresh("run"), 1, event.MaxChunkEvents, 1, "eng_a", 0)
	largest.Body = append(largest.Body, strings.Repeat(" ", event.MaxChunkBytes-len(largest.Body))...)
	noError(t, s.Log.Append(ctx, largest))
	for _, test := range []struct {
		name, field string
		want        error
		change      func(*event.Chunk)
	}{
		{"no run", "runId", store.ErrInvalid, func(c *event.Chunk) { c.RunID = "" }},
		{"long run", "runId", store.ErrTooLarge, func(c *event.Chunk) { c.RunID = strings.Repeat("r", store.MaxKeyBytes+1) }},
		{"run with NUL", "runId", store.ErrInvalid, func(c *event.Chunk) { c.RunID = "run_\x00" }},
		{"run not UTF-8", "runId", store.ErrInvalid, func(c *event.Chunk) { c.RunID = "run_\xff" }},
		{"no session", "sessionId", store.ErrInvalid, func(c *event.Chunk) { c.SessionID = "" }},
		{"no writer", "writer", store.ErrInvalid, func(c *event.Chunk) { c.Writer = "" }},
		{"sequence 0", "first", store.ErrInvalid, func(c *event.Chunk) { c.First = 0 }},
		{"backwards", "last", store.ErrInvalid, func(c *event.Chunk) { c.First, c.Last = 5, 4 }},
		{"too many events", "events", store.ErrTooLarge, func(c *event.Chunk) { c.Last = c.First + event.MaxChunkEvents }},
		{"overflow", "events", store.ErrTooLarge, func(c *event.Chunk) { c.Last = 1<<63 - 1 }},
		{"negative generation", "gen", store.ErrInvalid, func(c *event.Chunk) { c.Gen = -1 }},
		{"no body", "body", store.ErrInvalid, func(c *event.Chunk) { c.Body = nil }},
		{"large body", "body", store.ErrTooLarge, func(c *event.Chunk) { c.Body = make([]byte, event.MaxChunkBytes+1) }},
		{"large facts", "facts", store.ErrTooLarge, func(c *event.Chunk) { c.Facts = map[string]string{"f": strings.Repeat("f", store.MaxChunkMeta)} }},
		{"facts not UTF-8", "facts", store.ErrInvalid, func(c *event.Chunk) { c.Facts = map[string]string{"f": "\xff"} }},
		{"large cursors", "cursors", store.ErrTooLarge, func(c *event.Chunk) {
			c.Cursors = map[string]event.Cursor{"w": {Incarnation: strings.Repeat("c", store.MaxChunkMeta)}}
		}},
	} {
		c := good()
		id := c.RunID
		test.change(&c)
		err := s.Log.Append(ctx, c)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.field) {
			t.Errorf("%s: got %v, want %v that names %s", test.name, err, test.want, test.field)
		}
		if _, err := s.Log.Tail(ctx, id); !errors.Is(err, event.ErrEmpty) {
			t.Errorf("%s: something was written (%v)", test.name, err)
		}
	}
}

// logGivingUp lets callers give up at any moment beside others that do not: the others are not harmed, and what a
// caller was told is true.
func logGivingUp(t *testing.T, s Stores) {
	ctx := t.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	c := MakeChunk(fresh("run"), 1, 1, 1, "eng_a", 0)
	wantError(t, s.Log.Append(ended, c), context.Canceled)
	_, err := s.Log.Tail(ctx, c.RunID)
	wantError(t, err, event.ErrEmpty)

	const writers, rounds = 32, 30
	ids := make([]string, writers)
	for i := range ids {
		ids[i] = fresh("run")
	}
	last := make([]int64, writers)
	for i, err := range outcomes(writers, func(i int) error {
		for range rounds {
			limit := time.Hour
			if i%2 == 0 { // the impatient half
				limit = time.Duration(rand.IntN(3000)) * time.Microsecond
			}
			short, cancel := context.WithTimeout(ctx, limit)
			c := MakeChunk(ids[i], last[i]+1, 1, 1, "eng_a", 0)
			err := s.Log.Append(short, c)
			cancel()
			for errors.Is(err, event.ErrUnknownOutcome) { // resolved by the same chunk under the same key
				err = s.Log.Append(ctx, c)
			}
			switch {
			case err == nil || isDuplicate(err):
				last[i]++
			case i%2 == 0 && errors.Is(err, context.DeadlineExceeded):
			default:
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Fatalf("writer %d: %v", i, err)
		}
	}
	for i, id := range ids {
		if n := int64(len(readAll(ctx, t, s.Log, id, 100))); n != last[i] {
			t.Errorf("writer %d: the log has %d chunks, %d were acknowledged", i, n, last[i])
		}
		if i%2 == 1 && last[i] != rounds {
			t.Errorf("patient writer %d wrote %d of %d", i, last[i], rounds)
		}
	}
}
