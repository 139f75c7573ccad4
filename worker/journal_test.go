package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

func bodies(r reading) string {
	s := ""
	for _, e := range r.entries {
		s += fmt.Sprintf("%d:%s ", e.seq, e.body)
	}
	return s
}

func TestJournalBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(1<<20, 2)
		for _, b := range []string{"a", "b"} {
			if err := j.append(t.Context(), []byte(b), false); err != nil {
				t.Fatal(err)
			}
		}
		third := make(chan error, 1)
		go func() { third <- j.append(t.Context(), []byte("c"), false) }()
		synctest.Wait()
		select {
		case err := <-third:
			t.Fatalf("a full journal took a step: %v", err)
		default:
		}
		if err := j.ack(1); err != nil {
			t.Fatal(err)
		}
		if err := <-third; err != nil {
			t.Fatal(err)
		}
		r, err := j.read(1, 1<<20)
		if err != nil || bodies(r) != "2:b 3:c " || r.ended {
			t.Fatalf("read %q %v %v", bodies(r), r.ended, err)
		}
	})
}

func TestJournalFullAndCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(10, 100)
		if err := j.append(t.Context(), []byte("more than ten bytes"), false); err != nil {
			t.Fatal("an empty journal takes any step:", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- j.append(ctx, []byte("x"), false) }()
		synctest.Wait()
		why := errors.New("why")
		cancel(why)
		if err := <-done; !errors.Is(err, why) {
			t.Fatalf("got %v, want the cause", err)
		}
		// The terminal always has room.
		j.end([]byte("closing"), []byte("terminal"))
		r, err := j.read(1, 1<<20)
		if err != nil || bodies(r) != "2:closing 3:terminal " || !r.ended {
			t.Fatalf("read %q %v %v", bodies(r), r.ended, err)
		}
		if err := j.append(t.Context(), []byte("late"), false); !errors.Is(err, errJournalEnded) {
			t.Fatalf("got %v, want errJournalEnded", err)
		}
		if j.forgotten() {
			t.Fatal("forgotten before it was acknowledged")
		}
		if err := j.ack(3); err != nil || !j.forgotten() {
			t.Fatalf("not forgotten after the last acknowledgement: %v", err)
		}
		if r, err := j.read(3, 1); err != nil || !r.ended || len(r.entries) != 0 {
			t.Fatalf("read at the end: %+v %v", r, err)
		}
	})
}

// TestJournalAgainstModel compares the journal with a plain list under any order of operations.
func TestJournalAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := newJournal(200, 5)
		var all []string // everything ever said
		var floor int
		ended := false
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				b := rapid.StringN(0, 60, 60).Draw(t, "body")
				err := j.append(cancelled, []byte(b), false) // cancelled: a full journal answers at once
				var size int
				for _, s := range all[floor:] {
					size += len(s) + entryOverhead
				}
				room := len(all) == floor || len(all)-floor < 5 && size+len(b) <= 200
				switch {
				case ended:
					if !errors.Is(err, errJournalEnded) {
						t.Fatalf("append after the end: %v", err)
					}
				case room != (err == nil):
					t.Fatalf("append with room=%v: %v", room, err)
				case room:
					all = append(all, b)
				}
			},
			"end": func(t *rapid.T) {
				j.end([]byte("terminal"))
				if !ended {
					all = append(all, "terminal")
				}
				ended = true
			},
			"ack": func(t *rapid.T) {
				n := rapid.IntRange(0, len(all)+1).Draw(t, "seq")
				err := j.ack(int64(n))
				if (n > len(all)) != errors.Is(err, errJournalGone) {
					t.Fatalf("ack %d of %d: %v", n, len(all), err)
				}
				if n <= len(all) {
					floor = max(floor, n)
				}
			},
			"read": func(t *rapid.T) {
				after := rapid.IntRange(0, len(all)+2).Draw(t, "after")
				limit := rapid.IntRange(0, 100).Draw(t, "limit")
				r, err := j.read(int64(after), limit)
				if after < floor || after > len(all) {
					if !errors.Is(err, errJournalGone) {
						t.Fatalf("read after %d of %d..%d: %v", after, floor, len(all), err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if len(r.entries) == 0 && after < len(all) {
					t.Fatal("nothing read though there is something")
				}
				size := 0
				for i, e := range r.entries {
					if e.seq != int64(after+i+1) || string(e.body) != all[after+i] {
						t.Fatalf("entry %d is %d %q", after+i+1, e.seq, e.body)
					}
					size += len(e.body)
				}
				if len(r.entries) > 1 && size > limit {
					t.Fatalf("read %d bytes above the limit %d", size, limit)
				}
				if r.ended != (ended && after+len(r.entries) == len(all)) {
					t.Fatalf("ended is %v", r.ended)
				}
			},
		})
	})
}

func BenchmarkJournal(b *testing.B) {
	j := newJournal(DefaultJournalBytes, DefaultJournalSteps)
	body := make([]byte, 200)
	b.ReportAllocs()
	var seq int64
	for b.Loop() {
		if err := j.append(b.Context(), body, false); err != nil {
			b.Fatal(err)
		}
		if seq++; seq%256 == 0 {
			if _, err := j.read(seq-256, 1<<20); err != nil {
				b.Fatal(err)
			}
			if err := j.ack(seq); err != nil {
				b.Fatal(err)
			}
		}
	}
}
