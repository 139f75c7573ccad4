// Package sandbox gives each conversation its worker: it names, starts, finds again and destroys them, and owns the
// folders in which harness state and workspaces outlive a worker. How a worker is kept apart from the machine is a
// backend's business.
package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"regexp"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// Backend starts and ends workers in one kind of sandbox. A sandbox's folder is made and removed by the manager.
type Backend interface {
	// Isolation is what the backend puts between the worker and the host.
	Isolation() event.Isolation
	// Launch starts a worker that outlives this process and returns when it listens. When it fails nothing is left
	// running, as far as ctx allows.
	Launch(ctx context.Context, s Spec) error
	// Alive reports whether the worker of a sandbox still runs.
	Alive(s Spec) (bool, error)
	// Kill ends the worker and everything that it started, where ask is true first by asking it. It is idempotent.
	Kill(ctx context.Context, s Spec, ask bool) error
}

// Spec is one sandbox, as the manager laid it out. All paths are absolute.
type Spec struct {
	Addr       string
	Dir        string // the sandbox's own folder
	Socket     string // where the worker is to listen
	SecretFile string
	Lock       string        // file that is locked while anything of the sandbox lives; known only when it is started
	Owner      string        // file that says which sandbox may hold the lock; known only when it is started
	Claim      string        // content of Owner that lets this one start; known only when it is started
	State      string        // known only when it is started
	Workspace  string        // known only when it is started
	OrphanTTL  time.Duration // known only when it is started
	ParkedTTL  time.Duration // known only when it is started
}

// addrPattern is the form of an address. It is a folder's name, so nothing else may be in it.
var addrPattern = regexp.MustCompile(`^sbx_[0-9a-v]{20}$`)

var addrEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// address names the sandbox of a binding. It is no secret and tells nothing of the session.
func address(b harness.Binding) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s:%d:%d", len(b.SessionID), b.SessionID, b.Epoch, b.SandboxGen))
	return "sbx_" + addrEncoding.EncodeToString(sum[:])[:20]
}
