package shim

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"
)

// FuzzListen: whatever a worker writes, the shim takes numbers within bounds that are whole lines, and the last of them counts.
func FuzzListen(f *testing.F) {
	for _, s := range []string{"", "5\n", "5\n7\n", "-1\n", "99999999999999999999\n", strings.Repeat("x", 100) + "7\n", "5", " 5 \n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		c := &child{vouch: make(chan time.Duration, 1)}
		c.listen(io.NopCloser(bytes.NewReader(said)))
		want := time.Duration(-1)
		lines := strings.SplitAfter(string(said), "\n")
		for _, line := range lines {
			if ms, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64); err == nil && strings.HasSuffix(line, "\n") &&
				len(line) <= 64 && ms >= 0 && ms <= maxVouch.Milliseconds() {
				want = time.Duration(ms) * time.Millisecond
			}
		}
		got := time.Duration(-1)
		select {
		case got = <-c.vouch:
		default:
		}
		if got != want {
			t.Fatalf("%q: got %v, want %v", said, got, want)
		}
	})
}
