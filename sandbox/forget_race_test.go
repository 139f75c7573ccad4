package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// TestForgetBesideTheNextEpoch: an epoch is forgotten while the next one gets its folders, which are there in the end.
func TestForgetBesideTheNextEpoch(t *testing.T) {
	m := &Manager{stateDir: t.TempDir()}
	for i := range 300 {
		session := fmt.Sprintf("ses_%d", i)
		if err := os.MkdirAll(filepath.Join(m.stateDir, session, "1", "state"), 0o700); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() {
			for range 20 {
				if err := m.ForgetState(t.Context(), session, 1); err != nil {
					t.Error(err)
				}
			}
		})
		state, workspace, err := m.folders(harness.Binding{SessionID: session, Epoch: 2})
		both.Wait()
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{state, workspace} {
			if _, err := os.Stat(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
}
