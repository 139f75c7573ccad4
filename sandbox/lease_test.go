package sandbox

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/engine/harness"
)

func FuzzParseLease(f *testing.F) {
	for _, s := range []string{"", "1\n", "7 ended\n", "-1\n", "9223372036854775807\n", "9223372036854775808\n", "1 x\n", "1 ended ended\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := parseLease(s)
		if r.gen < 0 || r.ended && s != r.String() && s+"\n" != r.String() && parseLease(r.String()) != r {
			t.Fatalf("%q is read as %+v", s, r)
		}
		if parseLease(r.String()) != r {
			t.Fatalf("%+v is read back as %+v", r, parseLease(r.String()))
		}
	})
}

// TestLeases: whoever has attached last may end the sandbox, and whoever ends it first keeps others from attaching.
func TestLeases(t *testing.T) {
	m, b := newTestManager(t)
	s := m.spec(address(harness.Binding{SessionID: "s", Epoch: 1, SandboxGen: 1}))
	ctx := t.Context()
	want := func(got, want error) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
	want(holdLease(ctx, s, 1), harness.ErrGone)
	want(m.Destroy(ctx, s.Addr, 1), nil) // idempotent
	if err := os.Mkdir(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	b.killed = nil
	want(holdLease(ctx, s, 3), nil)
	want(holdLease(ctx, s, 3), nil)
	want(holdLease(ctx, s, 2), harness.ErrStaleLease)
	want(m.Destroy(ctx, s.Addr, 2), harness.ErrStaleLease)
	want(m.Kill(ctx, s.Addr, 2), harness.ErrStaleLease)
	if found, err := m.Leases(ctx); err != nil || found[s.Addr] != 3 || len(b.killed) != 0 {
		t.Fatalf("%v, %v, killed %v", found, err, b.killed)
	}
	want(endLease(ctx, s, 3), nil) // and the engine is stopped before it kills
	want(holdLease(ctx, s, 4), harness.ErrGone)
	want(m.Kill(ctx, s.Addr, 4), nil)
	if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) || len(b.killed) != 1 {
		t.Fatalf("%v, killed %v", err, b.killed)
	}

	// An engine that is stopped with the folder in its hands holds others up for a bounded time.
	if err := os.Mkdir(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	want(holdLease(short, s, 1), harness.ErrUnreachable)
}
