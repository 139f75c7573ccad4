package resolvers

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whoever follows endCursor while hasNextPage sees everything that may be shown, once, in order, in pages that are
// never too large.
func TestCollectShowsEverythingOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shown := rapid.SliceOfN(rapid.Bool(), 0, 60).Draw(t, "shown")
		first := rapid.IntRange(1, 7).Draw(t, "first")
		var want []int
		for i, ok := range shown {
			if ok {
				want = append(want, i)
			}
		}
		read := func(after *int, limit int) ([]int, error) {
			from := 0
			if after != nil {
				from = *after + 1
			}
			var out []int
			for i := from; i < len(shown) && len(out) < limit; i++ {
				out = append(out, i)
			}
			return out, nil
		}
		keep := func(items []int) ([]int, error) {
			return slices.DeleteFunc(slices.Clone(items), func(i int) bool { return !shown[i] }), nil
		}
		var got []int
		var after *int
		for range len(shown) + 2 {
			page, last, more, err := collect(first, after, read, keep)
			if err != nil || len(page) > first {
				t.Fatalf("page of %d: %v, %v", first, page, err)
			}
			got = append(got, page...)
			if !more {
				if !slices.Equal(got, want) {
					t.Fatalf("got %v, want %v", got, want)
				}
				return
			}
			if last == nil || (after != nil && *last <= *after) {
				t.Fatalf("no progress after %v", after)
			}
			after = last
		}
		t.Fatal("the list does not end")
	})
}

func TestCursorsAreOfOneList(t *testing.T) {
	c := encodeCursor("runs", "1700000000000", "run_1")
	if got, err := decodeCursor("runs", &c, 2); err != nil || got[1] != "run_1" {
		t.Errorf("own cursor: %v, %v", got, err)
	}
	for name, bad := range map[string]string{
		"another list": encodeCursor("agents", "1700000000000", "run_1"), "too few parts": encodeCursor("runs", "1"),
		"not base64": "§", "empty": "", "too long": string(make([]byte, 600)), "padded": c + "=",
		"with a line end": c[:4] + "\n" + c[4:], "ends in a line end": c + "\r\n",
	} {
		if got, err := decodeCursor("runs", &bad, 2); err == nil {
			t.Errorf("%s: taken as %v", name, got)
		}
	}
	for _, bad := range []string{"-1", "x", "", "9223372036854775808"} {
		if _, err := decodeNumber(bad); err == nil {
			t.Errorf("number %q taken", bad)
		}
	}
}

func FuzzDecodeCursor(f *testing.F) {
	f.Add(encodeCursor("runs", "1", "run_1"))
	f.Add("")
	f.Add("cnVucwAAcnKHJV\nucwA")
	f.Fuzz(func(t *testing.T, s string) {
		parts, err := decodeCursor("runs", &s, 2)
		if err == nil && encodeCursor("runs", parts...) != s {
			t.Errorf("%q is taken, and is not what it decodes to", s)
		}
	})
}
