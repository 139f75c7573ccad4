package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// FuzzClaim: an owner file gives the generation and the address that were written to it, or nothing.
func FuzzClaim(f *testing.F) {
	f.Add(claimOf(harness.Binding{SessionID: "s", Epoch: 1, SandboxGen: 7}))
	f.Add("")
	f.Add("7")
	f.Add("7 sbx_../../x\n")
	f.Fuzz(func(t *testing.T, s string) {
		gen, addr := parseClaim(s)
		if (gen == 0) != (addr == "") || addr != "" && (gen < 1 || !addrPattern.MatchString(addr)) {
			t.Fatalf("%q: %d %q", s, gen, addr)
		}
	})
}

// TestOwnerRises: of engines that claim a folder at once, the highest generation is the owner in the end, and none gets the
// folder from a higher one.
func TestOwnerRises(t *testing.T) {
	dir := t.TempDir()
	bind := func(gen int64) harness.Binding { return harness.Binding{SessionID: "ses_1", Epoch: 1, SandboxGen: gen} }
	const most = 16
	var all sync.WaitGroup
	for gen := int64(1); gen <= most; gen++ {
		all.Add(1)
		go func() {
			defer all.Done()
			before, err := replaceOwner(t.Context(), bind(gen), dir)
			if err != nil {
				if !errors.Is(err, harness.ErrConflict) {
					t.Error(err)
				}
				return
			}
			for later := gen + 1; later <= most; later++ {
				if before == address(bind(later)) {
					t.Errorf("generation %d took the folder from %d", gen, later)
				}
			}
		}()
	}
	all.Wait()
	if raw, err := os.ReadFile(filepath.Join(dir, ownerFile)); err != nil || string(raw) != claimOf(bind(most)) {
		t.Fatalf("owner %q, %v", raw, err)
	}
	// The same one may claim again, and a torn file says nothing.
	if before, err := replaceOwner(t.Context(), bind(most), dir); err != nil || before != address(bind(most)) {
		t.Fatalf("%q %v", before, err)
	}
	if err := os.WriteFile(filepath.Join(dir, ownerFile), []byte("16 sb"), 0o600); err != nil {
		t.Fatal(err)
	}
	if before, err := replaceOwner(t.Context(), bind(1), dir); err != nil || before != "" {
		t.Fatalf("%q %v", before, err)
	}
}

// TestOwnerIsHeld: an engine that holds the folder for too long keeps others out, not for ever.
func TestOwnerIsHeld(t *testing.T) {
	dir := t.TempDir()
	held, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := lockFolder(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := replaceOwner(ctx, harness.Binding{SessionID: "ses_1", Epoch: 1, SandboxGen: 1}, dir); err == nil {
		t.Fatal("the folder was held")
	}
}
